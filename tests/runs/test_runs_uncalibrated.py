"""A run without calibration data: dynamic ranges and weights alone in 8 bits, from the first trial to recovery."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import quaver
from quaver import demo
from quaver.adapters import AdapterOptions, load_model
from quaver.adapters.abilities import weight_errors
from quaver.command.main import main
from quaver.demo import run as digits
from quaver.engine.event_base import Event
from quaver.engine.events import Uncalibrated
from quaver.history import read_snapshot

CNN = Path(demo.__file__).parent / "digits_dscnn.onnx"
INPUTS, HIDDEN, CLASSES = 24, 64, 10
RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(200, INPUTS)).astype(np.float32)


def perceptron(bad: float = 1.0) -> onnx.ModelProto:
    """Three layers; the first weight of the second one is multiplied by a factor, and so is its scale."""
    rng = np.random.default_rng(1)
    sizes = (INPUTS, HIDDEN, HIDDEN, CLASSES)
    nodes, constants, x = [], {}, "x"
    for layer, (inner, outer) in enumerate(itertools.pairwise(sizes)):
        matrix = rng.normal(size=(inner, outer)).astype(np.float32) / np.sqrt(inner)
        if layer == 1:
            matrix[0] *= bad
        constants |= {f"w{layer}": matrix.astype(np.float32), f"b{layer}": rng.normal(size=outer).astype(np.float32)}
        nodes.append(helper.make_node("Gemm", [x, f"w{layer}", f"b{layer}"], [f"g{layer}"], f"layer{layer}"))
        x = f"y{layer}"
        nodes.append(helper.make_node("Tanh", [f"g{layer}"], [x]))
    graph = helper.make_graph(
        nodes,
        "perceptron",
        [helper.make_tensor_value_info("x", 1, [None, INPUTS])],
        [helper.make_tensor_value_info(x, 1, [None, CLASSES])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def labels(model: onnx.ModelProto) -> Any:
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": IMAGES})[0].argmax(axis=1)


def fit(model: Any, tmp_path: Path, **settings: Any) -> quaver.TuneResult:
    right = labels(model)
    chosen = {"workspace": tmp_path / "run", "verbose": 0, "report": False, **settings}
    return quaver.fit(model, eval_func=lambda tried: float((tried(IMAGES).argmax(axis=1) == right).mean()), **chosen)


STRATEGIES = ("auto", "basic", "bayesian", "conservative", "exhaustive", "mse", "mse_v2", "random")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_works_without_calibration_data(strategy: str, tmp_path: Path) -> None:
    heard: list[Event] = []
    model = perceptron()
    result = fit(model, tmp_path, strategy=strategy, relative=0.05, max_trials=12, observer=heard.append)
    assert result.met and result.best is not None
    assert {pick.mode for trial in result.trials for pick in trial.config.values()} <= {"", "dynamic", "weight_only"}
    assert result.best.config.quantized_ops
    (said,) = [event for event in heard if isinstance(event, Uncalibrated)]
    assert (said.ops, said.left_out) == (3, 0)
    assert "ranked by the error of their weights" in (result.workspace / "quaver.log").read_text()


def test_it_is_said_aloud_where_nobody_listens(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="no calibration data: 3 ops can run with dynamic ranges"):
        fit(perceptron(), tmp_path, relative=0.05)


def test_ops_fall_back_in_the_order_of_the_error_of_their_weights(tmp_path: Path) -> None:
    model = perceptron(bad=3000.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = fit(model, tmp_path, strategy="mse", relative=1e-9, max_trials=4)
    notes = read_snapshot(result.history_path).notes
    assert not any(name.startswith(("probe.latency", "probe.time", "probe.speed")) for name in notes)
    fallen = list(dict.fromkeys(name for trial in result.trials for name in trial.config.fp32_ops))
    with contextlib.closing(load_model(model, AdapterOptions())) as adapter:
        errors = weight_errors(adapter, result.trials[0].config)
    ranked = sorted(errors, key=lambda name: -errors[name])
    assert len(set(errors.values())) == 3
    # One that does not help is taken back, so the sets do not grow; each op falls back for the first time in its turn.
    assert len(fallen) >= 2 and fallen == ranked[: len(fallen)]


@pytest.mark.filterwarnings("ignore:no calibration data")
def test_every_trial_is_recovered_to_the_byte_and_the_run_goes_on(tmp_path: Path) -> None:
    model = perceptron()
    result = fit(model, tmp_path, strategy="exhaustive", timeout=600, max_trials=6)
    for trial in result.trials:
        assert quaver.recover(model, result.history_path, trial.number).sha256 == trial.model_hash
    again = fit(model, tmp_path, workspace=None, resume=result.history_path, max_trials=9, observer=print)
    assert len(again.trials) == 9
    assert {pick.mode for trial in again.trials for pick in trial.config.values()} <= {"", "dynamic", "weight_only"}


def test_a_network_that_only_gets_smaller_is_refused_unless_size_is_what_counts(tmp_path: Path) -> None:
    def score(model: Any) -> float:
        return 1.0 + 0 * float(model(digits.digits()[2][:8]).sum())

    with pytest.raises(quaver.SettingsError, match=r'only smaller: pass calib_dataloader .*objective="size"'):
        quaver.fit(CNN, eval_func=score, op_type_dict={"Gemm": "fp32"}, workspace=tmp_path / "one", verbose=0)
    heard: list[Event] = []
    result = quaver.fit(
        CNN,
        eval_func=score,
        objective="size",
        workspace=tmp_path / "two",
        verbose=0,
        observer=heard.append,
        report=False,
    )
    assert result.met and result.best is not None
    assert {pick.mode for pick in result.best.config.values() if pick.quantized} == {"dynamic", "weight_only"}
    assert result.best.model_size < 0.6 * CNN.stat().st_size


def test_rules_that_leave_nothing_without_ranges_are_named(tmp_path: Path) -> None:
    rule = {"layer1": {"activation": {"mode": ["static"], "dtype": ["int8"]}}}
    with pytest.raises(quaver.SettingsError, match=r"op 'layer1' .* calibrated ranges only"):
        fit(perceptron(), tmp_path, op_name_dict=rule)
    static = {"Gemm": {"activation": {"mode": ["static"]}}}
    with pytest.raises(quaver.SettingsError, match="none of its ops can run in 8 bits without calibrated ranges"):
        fit(perceptron(), tmp_path, op_type_dict=static, workspace=tmp_path / "other")


def test_diagnosis_needs_samples(tmp_path: Path) -> None:
    with pytest.raises(quaver.SettingsError, match="diagnosis=True runs samples through the model"):
        fit(perceptron(), tmp_path, diagnosis=True)


def test_the_command_line_takes_no_calib(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = perceptron()
    onnx.save(model, tmp_path / "model.onnx")
    (tmp_path / "score.py").write_text("def score(model):\n    return 1.0\n")
    out = tmp_path / "out.onnx"
    arguments = ["--model", tmp_path / "model.onnx", "--eval", f"{tmp_path / 'score.py'}:score", "-o", out]
    code = main(["tune", *map(str, arguments), "--workspace", str(tmp_path / "run")])
    said = capsys.readouterr()
    assert code == 0 and out.is_file()
    assert "no calibration data" in said.out + said.err
