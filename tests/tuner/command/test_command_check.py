"""`quaver check` in a process of its own: exit codes, JSON by its schema, JUnit, and metrics without code."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import numpy as np
import pytest
import quantizers
from command_samples import quaver
from emulator import needs_emulator

from quaver.demo.data import digits

ROOT = Path(__file__).parents[3]
MODEL = ROOT / "tests" / "data" / "digits_resnet.onnx"
SCHEMA = json.loads((ROOT / "docs" / "check.schema.json").read_text(encoding="utf-8"))
EVAL = """
import numpy as np

images, labels = np.load("x.npy"), np.load("y.npy")


def accuracy(model):
    return float((model(images).argmax(axis=1) == labels).mean())


def right(model):
    for first in range(0, len(images), 100):
        yield model(images[first : first + 100]).argmax(axis=1) == labels[first : first + 100]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, data, and an evaluation."""
    folder = tmp_path_factory.mktemp("check")
    x, _, images, labels = digits()
    (folder / "model.onnx").write_bytes(MODEL.read_bytes())
    quantizers.by_ort(MODEL, folder / "int8.onnx", x[:128])
    quantizers.by_ort(MODEL, folder / "ruined.onnx", x[:128] * 0.02)
    np.save(folder / "x.npy", images)
    np.save(folder / "y.npy", labels)
    np.save(folder / "few.npy", images[:60])
    (folder / "few.txt").write_text("\n".join(map(str, labels[:60])))
    (folder / "my_eval.py").write_text(EVAL)
    return folder


METRIC = ("--metric", "top1", "--data", "x.npy", "--labels", "y.npy")
FEW = ("--metric", "top1", "--data", "few.npy", "--labels", "few.txt")


@pytest.mark.parametrize(
    ("quantized", "words", "code", "verdict"),
    [
        ("int8.onnx", (*METRIC, "--relative", "5%"), 0, "met"),
        ("int8.onnx", ("--eval", "my_eval.py:right", "--relative", "0.05"), 0, "met"),
        ("int8.onnx", ("--eval", "my_eval.py:accuracy", "--relative", "0.05"), 0, "met"),
        ("int8.onnx", ("--metric", "agreement", "--data", "x.npy", "--absolute", "0.05"), 0, "met"),
        ("ruined.onnx", (*METRIC, "--relative", "0.05"), 3, "not met"),
        ("int8.onnx", (*METRIC, "--relative", "0.05", "--faster-than", "1e6"), 3, "not met"),
        ("int8.onnx", FEW, 4, "inconclusive"),
    ],
)
def test_the_exit_code_the_json_and_the_junit_file_say_the_same(
    folder: Path, quantized: str, words: tuple[str, ...], code: int, verdict: str
) -> None:
    done = quaver(folder, "check", "model.onnx", quantized, *words, "--json", "--junit", "reports/check.xml")
    assert done.returncode == code, done.stderr
    found = json.loads(done.stdout)
    jsonschema.validate(found, SCHEMA, cls=jsonschema.Draft202012Validator)
    assert found["verdict"] == verdict
    suite = ElementTree.parse(folder / "reports" / "check.xml").getroot()
    failures = [failure.get("type") for failure in suite.iter("failure")]
    assert len(suite.findall("testcase")) == int(suite.get("tests", "0")) == 1 + ("--faster-than" in words)
    assert failures == ([] if code == 0 else [verdict])
    assert suite.get("failures") == str(len(failures))


@needs_emulator
def test_another_processor_is_part_of_the_verdict_the_json_and_the_junit_file(folder: Path) -> None:
    words = (*FEW, "--relative", "0.4", "--cpu", "haswell", "--cpu-samples", "8", "--json", "--junit", "cpu.xml")
    done = quaver(folder, "check", "model.onnx", "int8.onnx", *words)
    found = json.loads(done.stdout)
    jsonschema.validate(found, SCHEMA, cls=jsonschema.Draft202012Validator)
    there = found["processor"]
    assert there["cpu"] == "haswell" and 8 <= there["samples"] <= 60
    assert done.returncode == (0 if there["verdict"] == "met" else 3), done.stderr
    suite = ElementTree.parse(folder / "cpu.xml").getroot()
    assert [case.get("name") for case in suite.findall("testcase")] == ["loss of top1", "answers on haswell"]


def test_the_schema_refuses_what_is_no_verdict() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"verdict": "perhaps"}, SCHEMA)


def test_the_verdict_is_told_in_a_few_lines(folder: Path) -> None:
    done = quaver(folder, "check", "model.onnx", "int8.onnx", *METRIC, "--relative", "0.05", "--faster-than", "0.001")
    first, limit, speed = done.stdout.splitlines()
    assert first == "met"
    assert limit.startswith("top1 0.") and "from 719 samples" in limit and "5.00% allowed: met" in limit
    assert speed.startswith("speed ") and "0.001x required: met" in speed


def test_without_confidence_the_score_alone_decides(folder: Path) -> None:
    done = quaver(folder, "check", "model.onnx", "int8.onnx", *FEW, "--relative", "0.05", "--confidence", "0", "--json")
    found = json.loads(done.stdout)
    jsonschema.validate(found, SCHEMA)
    assert found["verdict"] in ("met", "not met")
    assert found["confidence"] is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "pass --eval"),
        ((*METRIC, "--eval", "my_eval.py:right"), "pass --eval or --metric, not both"),
        (("--eval", "my_eval.py:right", "--labels", "y.npy"), "--labels belongs to --metric"),
        (("--metric", "top1", "--labels", "y.npy"), "--metric needs --data"),
        (("--metric", "topp1", "--data", "x.npy", "--labels", "y.npy"), "did you mean 'top1'"),
        (("--metric", "top1", "--data", "x.npy"), "needs labels"),
        (("--metric", "top1", "--data", "x.npy", "--labels", "z.npy"), "--labels: there is no file 'z.npy'"),
        (("--metric", "top1", "--data", "z.npy", "--labels", "y.npy"), "--data: there is nothing at 'z.npy'"),
        ((*METRIC, "--metric-option", "outputs=1"), "did you mean 'output'"),
        ((*METRIC, "--confidence", "95"), "between 0.5 and 1"),
        ((*METRIC, "--junit", "."), "is a folder"),
    ],
)
def test_what_cannot_be_meant_ends_with_2_and_one_paragraph(folder: Path, words: tuple[str, ...], message: str) -> None:
    done = quaver(folder, "check", "model.onnx", "int8.onnx", *words)
    assert done.returncode == 2
    assert message in done.stderr and "Traceback" not in done.stderr


def test_tune_needs_no_code_and_writes_json(folder: Path) -> None:
    done = quaver(
        folder, "tune", "--model", "model.onnx", "--calib", "x.npy", "--metric", "top1", "--labels", "y.npy",
        "--objective", "int8_ops", "--workspace", "run", "-o", "tuned.onnx", "--json", "--no-report",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["met"] is True
    assert found["best"]["met"] is True and found["best"]["int8"] > 0
    assert found["evaluations"] == 1 + len(found["trials"])
    assert found["saved"] == "tuned.onnx" and (folder / "tuned.onnx").exists()
    checked = quaver(folder, "check", "model.onnx", "tuned.onnx", *METRIC, "--relative", "0.05")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_an_error_rate_is_known_to_be_one(folder: Path) -> None:
    done = quaver(folder, "check", "model.onnx", "int8.onnx", "--metric", "cer", "--data", "x.npy", "--labels", "y.npy")
    assert "needs an output with three axes" in done.stderr
