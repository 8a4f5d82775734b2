"""`check(cpu=...)`: answers of a quantized model on an emulated processor without VNNI."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulator import needs_emulator

import quaver
from quaver import EvaluationError, SettingsError, Verdict, metrics
from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.adapters.options import AdapterOptions
from quaver.demo.data import digits
from quaver.engine import emulation
from quaver.processors import this_processor
from quaver.space import TuningSpace

MODEL = Path(__file__).parents[2] / "data" / "digits_resnet.onnx"
needs_vnni = pytest.mark.skipif(not this_processor().has_vnni, reason="this processor saturates like the emulated one")


@pytest.fixture(scope="module")
def int8(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """The model with all ops in int8, portable or not."""
    folder, paths = tmp_path_factory.mktemp("int8"), {}
    for portable in (False, True):
        adapter = OnnxAdapter.load(MODEL, AdapterOptions(threads=1, portable=portable))
        adapter.calibrate([{"image": digits()[0][:64]}])
        config = TuningSpace(adapter.ops()).default_config()
        paths[portable] = adapter.assemble(config).save(folder / f"{portable}.onnx")
        adapter.close()
    return paths


@pytest.fixture(scope="module")
def data() -> Any:
    images, labels = digits()[2:]
    return images[:32], labels[:32]


@needs_emulator
@needs_vnni
def test_a_portable_model_answers_the_same_there(int8: dict[bool, Path], data: Any) -> None:
    progress: list[int] = []
    found = quaver.check(
        MODEL, int8[True], metrics.top1(*data), relative=0.2, cpu="haswell", cpu_samples=None, progress=progress.append
    )
    there = found.processor
    assert there is not None and there.verdict is Verdict.MET and found.verdict is Verdict.MET
    assert there.samples == 32 == progress[-1]
    assert there.emulated_error == pytest.approx(there.native_error, rel=1e-3) and 0 < there.native_error < 0.1
    assert there.native_top1 == there.emulated_top1 == 1.0
    (limit,) = there.limits
    assert limit.score == found.limits[0].score
    assert "on haswell, emulated (AVX2 without VNNI" in str(found) and "32 samples" in str(found)


@needs_emulator
@needs_vnni
def test_another_model_does_not_and_few_samples_are_enough_to_see_it(int8: dict[bool, Path], data: Any) -> None:
    images, labels = data

    def accuracy(model: Any) -> float:
        outputs = [model.session.run(None, {"image": image[None]})[0] for image in images]
        return float(np.mean(np.concatenate(outputs).argmax(axis=1) == labels))

    found = quaver.check(MODEL, int8[False].read_bytes(), accuracy, relative=0.2, cpu="Haswell", cpu_samples=5)
    there = found.processor
    assert there is not None and there.verdict is Verdict.NOT_MET and found.verdict is Verdict.NOT_MET
    assert there.samples == 5 and there.limits == () and not there.identical
    assert there.emulated_error > 3 * there.native_error
    assert [limit.verdict for limit in found.limits] == [Verdict.MET]


@needs_emulator
def test_an_eval_func_that_does_not_call_the_model_is_named(int8: dict[bool, Path]) -> None:
    with pytest.raises(EvaluationError, match="eval_func does not call the model that it gets"):
        quaver.check(MODEL, int8[True], lambda model: 0.9, cpu="haswell")


def test_an_error_of_the_emulated_process_is_repeated(tmp_path: Path, int8: dict[bool, Path]) -> None:
    from quaver.adapters import load_unmodified

    native = load_unmodified(str(int8[True]), 1)
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    with pytest.raises(EvaluationError, match=r"(?s)the emulated process ended with exit code 1: .*bad.onnx"):
        emulation.EmulatedSession(tmp_path / "bad.onnx", [], native).run(None, {})
    session = emulation.EmulatedSession(int8[True], [], native)
    with pytest.raises(EvaluationError, match=r"the model fails on the emulated processor: .*image"):
        session.run(None, {"image": np.zeros((1, 3), np.float32)})
    outputs = [output.name for output in native.session.get_outputs()]
    assert session.run(outputs, {"image": np.zeros((1, 1, 8, 8), np.float32)})[0].shape == (1, 10)
    session.close()


def unreachable(model: Any) -> float:
    raise AssertionError("nothing may be scored before the settings are right")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cpu": "hasswell"}, "unknown processor 'hasswell'; did you mean 'haswell'"),
        ({"cpu": 3}, "unknown processor 3"),
        ({"cpu": "haswell", "cpu_samples": 0}, "`cpu_samples` must be a whole number of at least 1"),
    ],
)
def test_what_cannot_be_meant_is_named_before_any_work(int8: dict[bool, Path], settings: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        quaver.check(MODEL, int8[True], unreachable, **settings)


def test_without_an_emulator_it_is_said_what_to_install(
    int8: dict[bool, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SettingsError, match=r"needs qemu-x86_64, which is not installed: .*apt-get install qemu-user"):
        quaver.check(MODEL, int8[True], unreachable, cpu="haswell")
    old = tmp_path / emulation.EMULATOR
    old.write_text("#!/bin/sh\necho 'qemu-x86_64 version 6.2.0'\n")
    old.chmod(0o755)
    with pytest.raises(SettingsError, match=r"needs a newer qemu-x86_64 than 'qemu-x86_64 version 6\.2\.0'"):
        quaver.check(MODEL, int8[True], unreachable, cpu="haswell")


def test_a_processor_that_is_no_x86_cannot_emulate_one(int8: dict[bool, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulation.platform, "machine", lambda: "aarch64")
    with pytest.raises(SettingsError, match="which is aarch64: check the model on an x86-64 machine"):
        quaver.check(MODEL, int8[True], unreachable, cpu="haswell")
