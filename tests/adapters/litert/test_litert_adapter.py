"""A whole run with a Keras network: fit, every strategy, resume, recover, the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import litert_models as models
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

import quaver

ONNX = models.WEIGHTS.parent / "digits_resnet.onnx"
DATA = Path(__file__).parent
SETTINGS: dict[str, Any] = {"calib_dataloader": models.digits()[0][:256], "eval_func": models.accuracy, "threads": 1}
# They make no file smaller, so that objective="size" leaves them in fp32.
WEIGHTLESS = tuple(name for name in models.LAYERS if name.endswith("_add") or name == "pool")

BOTH = """
import json, sys
import numpy as np
import quaver
from litert_models import accuracy, digits, network
from quaver.demo import data

train, _, images, labels = data.digits()
onnx_accuracy = lambda model: float((model(images).argmax(axis=1) == labels).mean())
roads = {
    "onnx": lambda: quaver.fit(sys.argv[2], calib_dataloader=train[:64], eval_func=onnx_accuracy, strategy="basic"),
    "keras": lambda: quaver.fit(network(), calib_dataloader=digits()[0][:64], eval_func=accuracy, strategy="basic"),
}
for name in sys.argv[1].split(","):
    result = roads[name]()
    print(json.dumps([name, result.model_path.suffix, len(result.trials[0].config.int8_ops)]))
"""


def test_an_easy_network_takes_one_trial(digits_model: Any, tmp_path: Path) -> None:
    result = quaver.fit(digits_model, **SETTINGS, strategy="basic", objective="size", workspace=tmp_path / "run")
    assert result.met and result.evaluations == 2
    assert result.baseline == pytest.approx(0.9875, abs=1e-4)
    assert result.best is not None and result.best.score == pytest.approx(result.baseline, abs=0.01)
    assert result.best.config.fp32_ops == WEIGHTLESS
    path = result.save(tmp_path / "digits.tflite")
    images, labels = models.digits()[2:]
    runner = Interpreter(str(path)).get_signature_runner()
    given = np.concatenate([runner(image=images[at : at + 100])["output_0"] for at in range(0, len(images), 100)])
    assert float((given.argmax(axis=1) == labels).mean()) == result.best.score
    assert path.read_bytes() == (tmp_path / "run" / "best_model.tflite").read_bytes()


@pytest.mark.parametrize("planted", [(2,), (1, 3)])
def test_auto_finds_the_planted_culprits_and_no_others(planted: tuple[int, ...], tmp_path: Path) -> None:
    result = quaver.fit(
        models.trained(*planted), **SETTINGS, strategy="auto", objective="size", timeout=60, workspace=tmp_path / "run"
    )
    assert result.met and result.best is not None
    culprits = {f"block{block}_{part}" for block in planted for part in ("depthwise", "pointwise")}
    assert set(result.best.config.fp32_ops) == {*culprits, *WEIGHTLESS}
    default_score = max(trial.score or 0.0 for trial in result.trials if trial.config.fp32_ops == WEIGHTLESS)
    assert default_score < result.baseline - 0.05 < (result.best.score or 0.0)


@pytest.mark.parametrize("strategy", sorted({*quaver.strategies.strategies()} - {"exhaustive"}))
def test_every_strategy_tunes_a_keras_network(strategy: str, tmp_path: Path) -> None:
    result = quaver.fit(
        models.trained(2), **SETTINGS, strategy=strategy, objective="size", max_trials=60, workspace=tmp_path / "run"
    )
    assert result.met, result
    assert not any(trial.failed for trial in result.trials)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> quaver.TuneResult:
    folder = tmp_path_factory.mktemp("tuned") / "run"
    return quaver.fit(models.trained(2), **SETTINGS, strategy="auto", objective="size", workspace=folder)


def test_any_trial_is_rebuilt_byte_for_byte_from_any_form(tuned: quaver.TuneResult, tmp_path: Path) -> None:
    model = models.trained(2)
    model.save(tmp_path / "model.keras")
    floats = quaver.recover(model, tuned.history_path, 0).save(tmp_path / "float.tflite")
    assert tuned.best is not None
    for trial in tuned.trials:
        assert quaver.recover(floats, tuned.history_path, trial.number).sha256 == trial.model_hash
    for form in (model, tmp_path / "model.keras"):
        assert quaver.recover(form, tuned.history_path, tuned.best.number).sha256 == tuned.best.model_hash
    assert models.accuracy(quaver.recover(floats, tuned.history_path, tuned.best.number)) == tuned.best.score


def test_a_history_of_another_network_is_refused(tuned: quaver.TuneResult) -> None:
    with pytest.raises(quaver.HistoryError, match="belongs to another model"):
        quaver.recover(models.trained(3), tuned.history_path, 1)
    with pytest.raises(quaver.HistoryError, match="belongs to a model of litert, not of onnxrt"):
        quaver.recover(ONNX, tuned.history_path, 1)


def test_a_run_resumes_where_it_stopped(tmp_path: Path) -> None:
    settings = {**SETTINGS, "strategy": "basic", "objective": "size"}
    first = quaver.fit(models.trained(2), **settings, max_trials=3, workspace=tmp_path / "run")
    calls = []

    def counting(model: Any) -> float:
        calls.append(1)
        return models.accuracy(model)

    again = quaver.fit(models.trained(2), **{**settings, "eval_func": counting}, max_trials=5, resume=tmp_path / "run")
    assert len(first.trials) == 3 and [t.model_hash for t in again.trials[:3]] == [t.model_hash for t in first.trials]
    assert len(calls) == len(again.trials) - 3


def test_rules_can_name_layers_and_operators(digits_model: Any, tmp_path: Path) -> None:
    result = quaver.fit(
        digits_model,
        **SETTINGS,
        strategy="basic",
        objective="int8_ops",
        op_name_dict={"block[01]_.*": "fp32"},
        op_type_dict={"CONV_2D": {"weight": {"granularity": ["per_tensor"]}}},
        workspace=tmp_path / "run",
    )
    config = result.trials[0].config
    assert set(config.fp32_ops) == {name for name in models.LAYERS if name.startswith(("block0", "block1"))}
    assert config["block2_pointwise"].granularity == "per_tensor"
    assert config["block2_depthwise"].granularity == "per_channel"


def test_the_command_line_takes_a_keras_file(forms: dict[str, Any], tmp_path: Path) -> None:
    train, _, images, labels = models.digits()
    np.savez(tmp_path / "calib.npz", image=train[:64])
    np.savez(tmp_path / "test.npz", images=images, labels=labels)
    (tmp_path / "mine.py").write_text(
        "import numpy as np\ntest = np.load('test.npz')\n"
        "def accuracy(model):\n    return float((model(test['images']).argmax(axis=1) == test['labels']).mean())\n"
    )
    arguments = ["--calib", "calib.npz", "--eval", "mine.py:accuracy", "--strategy", "basic", "-o", "out.tflite"]
    done = subprocess.run(
        [sys.executable, "-m", "quaver.command.main", "tune", "--model", str(forms["keras"]), *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "Criterion met" in done.stdout and (tmp_path / "out.tflite").read_bytes()[4:8] == b"TFL3"


@pytest.mark.parametrize("order", ["onnx,keras", "keras,onnx"])
def test_both_frameworks_run_in_one_process(order: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(DATA)!r})\n{BOTH}", order, str(ONNX)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert [name for name, *_ in said] == order.split(",")
    assert {suffix for _, suffix, _ in said} == {".onnx", ".tflite"} and all(count > 0 for *_, count in said)
