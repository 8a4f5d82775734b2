"""Whole runs on a trained ResNet v2 whose first convolution is made hard for int8, and what is seen inside."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mxnet_networks as networks
import numpy as np
import pytest

import quaver
from benchmarks import mxnet_resnet as resnet
from benchmarks import mxnet_walk
from quaver.adapters import AdapterOptions
from quaver.adapters.abilities import local_errors_one_by_one
from quaver.adapters.mxnet.adapter import MXNetAdapter
from quaver.space import TuningSpace

ROOT = Path(__file__).parents[2]
STRATEGIES = ("auto", "basic", "bayesian", "conservative", "mse", "mse_v2", "random")


@pytest.fixture(scope="module")
def net() -> Any:
    """A few blocks are enough, and half a minute of training."""
    made = resnet.trained(layers=(1, 1), epochs=4, few=True)
    resnet.plant(made)
    return made


@pytest.fixture(scope="module")
def accuracy() -> resnet.Accuracy:
    _, _, images, labels = resnet.digits()
    return resnet.Accuracy(images, labels)


@pytest.fixture(scope="module")
def calibration() -> Any:
    images, labels, _, _ = resnet.digits()
    return resnet.mx.io.NDArrayIter(images[:128], labels[:128], 64)


def fitted(net: Any, calibration: Any, accuracy: Any, folder: Path, **settings: Any) -> quaver.TuneResult:
    chosen = {"relative": 0.015, "max_trials": 40, "verbose": 0, **settings}
    return quaver.fit(net, calib_dataloader=calibration, eval_func=accuracy, workspace=folder, **chosen)


def test_the_planted_fault_keeps_fp32_and_ruins_int8(net: Any, calibration: Any, accuracy: Any) -> None:
    adapter = MXNetAdapter.load(net, AdapterOptions())
    adapter.calibrate(calibration)
    config = TuningSpace(adapter.ops()).default_config()
    fp32 = accuracy(adapter.build(None))
    assert fp32 == accuracy(net) > 0.85
    assert accuracy(adapter.build(config)) < 0.6
    assert accuracy(adapter.build(config.fallback(resnet.GUILTY))) > 0.98 * fp32


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name in quaver.strategies.strategies()])
def test_each_strategy_moves_the_guilty_op_to_fp32(
    strategy: str, net: Any, calibration: Any, accuracy: Any, tmp_path: Path
) -> None:
    result = fitted(net, calibration, accuracy, tmp_path, strategy=strategy)
    assert result.met, result
    assert resnet.GUILTY in result.best.config.fp32_ops


class WorstFirst(quaver.Strategy):
    """Ops back to fp32 one after another, those that hurt most first."""

    name = "worst_first"

    def propose(self, space: Any, probe: Any) -> Iterator[Any]:
        """Follow the ranking of the ops."""
        config = space.default_config()
        yield config
        for op in probe.ranking():
            config = config.fallback(op)
            yield config


# Evaluations of Neural Compressor 2.6 on this network; bayesian did not meet the criterion within its limit.
NEURAL_COMPRESSOR = {"basic": 88, "mse": 26, "bayesian": 500}
OWN_LIMIT = 40


@pytest.mark.parametrize("strategy", ["basic", "mse", "bayesian", "custom", "auto"])
def test_the_same_network_in_onnx_needs_no_more_evaluations_than_neural_compressor(
    strategy: str, net: Any, tmp_path: Path
) -> None:
    walk = mxnet_walk.in_onnx(net, tmp_path)
    known = WorstFirst() if strategy == "custom" else strategy
    result = fitted(walk.model, walk.data, walk.accuracy, tmp_path / "run", strategy=known)
    assert result.met, result
    assert result.evaluations <= NEURAL_COMPRESSOR.get(strategy, OWN_LIMIT)
    assert strategy not in ("basic", "custom") or "resnetv2_conv0_fwd" in result.best.config.fp32_ops


def test_any_trial_is_recovered_without_calibration_data(
    net: Any, calibration: Any, accuracy: Any, tmp_path: Path
) -> None:
    result = fitted(net, calibration, accuracy, tmp_path / "run", strategy="basic")
    assert len(result.trials) > 1
    for trial in result.trials:
        again = quaver.recover(net, result.history_path, trial.number)
        assert again.sha256 == trial.model_hash
        assert accuracy(again) == trial.score
    path = result.save(tmp_path / "best.params")
    recovered = quaver.recover(net, result.history_path, result.best.number)
    assert Path(path).read_bytes() == recovered.SerializeToString()
    recovered.export(tmp_path / "exported")
    for saved in (path, tmp_path / "exported-symbol.json"):
        provenance = quaver.read_provenance(saved)
        assert provenance.scores == {"score": result.best.score} and provenance.baseline == {"score": result.baseline}
        assert provenance.config == result.best.config.fingerprint and provenance.is_unchanged is True
        assert provenance.versions["mxnet"] == version("mxnet")
    block = resnet.mx.gluon.SymbolBlock.imports(
        str(tmp_path / "exported-symbol.json"), ["data"], str(tmp_path / "exported-0000.params")
    )
    assert accuracy(block) == result.best.score


def test_local_errors_equal_those_of_single_ops(net: Any, calibration: Any) -> None:
    """Each op that reads the same range alone as among others gives the same numbers."""
    adapter = MXNetAdapter.load(net, AdapterOptions())
    adapter.calibrate(calibration)
    config = TuningSpace(adapter.ops()).default_config()
    beside = adapter.local_errors(config)
    alone = local_errors_one_by_one(adapter, config)
    same = [name for name in config if np.allclose(beside[name], alone[name], rtol=0.02)]
    assert resnet.GUILTY in same
    assert len(same) >= len(config) / 3
    for name in config:
        assert beside[name][1] == pytest.approx(alone[name][1], rel=1e-3)
        assert beside[name][0] < 10 * alone[name][0] + 1e-9


def test_diagnosis_shows_scales_weights_and_errors_of_every_op(net: Any, calibration: Any) -> None:
    found = quaver.diagnose(net, calib_dataloader=calibration, timing=False)
    names = {op.name for op in found.ops}
    assert resnet.GUILTY in names
    assert {row.op for row in found.weights} == names
    assert {row.op for row in found.layers} == names
    assert set(found.precisions.values()) == {"int8"}


def test_ops_are_timed_and_unquantizable_nodes_named(net: Any, calibration: Any) -> None:
    adapter = MXNetAdapter.load(net, AdapterOptions(threads=1))
    adapter.calibrate(calibration)
    seconds = adapter.op_seconds(None, threads=1)
    assert set(seconds) == {"", *(op.name for op in adapter.ops())}
    assert sum(seconds.values()) > 0
    assert adapter.unquantizable() == []
    others = MXNetAdapter.load(networks.joined(), AdapterOptions())
    assert {one.kind: one.count for one in others.unquantizable()} == {"relu": 1, "sigmoid": 2, "mean": 1}


def test_a_saved_model_is_profiled_from_the_command_line(net: Any, calibration: Any, tmp_path: Path) -> None:
    adapter = MXNetAdapter.load(net, AdapterOptions())
    adapter.calibrate(calibration)
    adapter.assemble(TuningSpace(adapter.ops()).default_config()).save(tmp_path / "int8.params")
    np.save(tmp_path / "data.npy", resnet.digits()[0][:8])
    told = subprocess.run(
        [sys.executable, "-m", "quaver.command.main", "profile", "int8.params", "--calib", "data.npy", "--runs", "5"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    assert "_sg_mkldnn_conv int8" in told.stdout or "sg_mkldnn" in told.stdout


def test_the_example_runs_unmodified(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, ROOT / "examples" / "mxnet_gluon.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert told.returncode == 0, told.stderr
    assert "meets the criterion" in told.stdout
