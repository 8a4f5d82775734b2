"""Bias correction of .tflite models: it takes out the mean error, and is the same again from a history."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import litert_models as models
import numpy as np
import pytest
from keras import layers
from numpy.typing import NDArray

import quaver
from quaver.adapters.litert.adapter import LiteRTAdapter
from quaver.adapters.litert.load.graph import Graph
from quaver.adapters.options import AdapterOptions
from quaver.ops import QuantConfig
from quaver.space import TuningSpace

NAME = "bias_correction"
IMAGE = (8, 8, 4)


def one(layer: Any, shape: tuple[int, ...] = IMAGE) -> Callable[[], Any]:
    def make() -> Any:
        keras.utils.set_random_seed(3)
        x = keras.Input(shape, name="x")
        return keras.Model(x, layer()(x))

    return make


def sharing() -> Any:
    """Two convolutions in a row with one and the same bias."""
    keras.utils.set_random_seed(3)
    x = keras.Input(IMAGE, name="x")
    first, second = (layers.Conv2D(4, 1, name=name, bias_initializer="ones") for name in ("first", "second"))
    return keras.Model(x, second(first(x)))


OPS = {
    "CONV_2D": one(lambda: layers.Conv2D(6, 3, bias_initializer="ones")),
    "CONV_2D with an activation": one(lambda: layers.Conv2D(6, 3, activation="relu", bias_initializer="ones")),
    "CONV_2D in groups": one(lambda: layers.Conv2D(6, 3, groups=2)),
    "DEPTHWISE_CONV_2D": one(lambda: layers.DepthwiseConv2D(3)),
    "DEPTHWISE_CONV_2D with two each": one(lambda: layers.DepthwiseConv2D(3, depth_multiplier=2)),
    "FULLY_CONNECTED": one(lambda: layers.Dense(6, bias_initializer="ones"), (16,)),
    "two that share a bias": sharing,
}


def one_sided(adapter: LiteRTAdapter, count: int = 16) -> list[NDArray[np.float32]]:
    """Data whose mean is far from zero, other in each channel: the mean error of a rounded weight shows."""
    (spec,) = adapter.inputs
    rng = np.random.default_rng(3)
    shape = [4 if dim is None else dim for dim in spec.shape or ()]
    level = rng.uniform(1, 4, shape[-1])
    return [(level + 0.2 * rng.normal(size=shape)).astype(np.float32) for _ in range(count)]


@contextmanager
def opened(model: Any) -> Iterator[LiteRTAdapter]:
    adapter = LiteRTAdapter.load(model, AdapterOptions(threads=1))
    yield adapter
    adapter.close()


def repaired(config: QuantConfig, space: TuningSpace) -> QuantConfig:
    changed = space.repair(config, NAME)
    assert changed != config
    return changed


def mean_error(adapter: LiteRTAdapter, config: QuantConfig) -> float:
    """How far the mean output of each channel is off, over all calibration data."""
    right, found = (adapter.build(one) for one in (None, config))
    gaps = [np.asarray(found(x), np.float64) - right(x) for x in one_sided(adapter)]
    return float(np.abs(np.concatenate(gaps).reshape(-1, gaps[0].shape[-1]).mean(axis=0)).mean())


@pytest.mark.parametrize("which", OPS)
def test_bias_correction_removes_the_mean_error_and_is_deterministic(which: str) -> None:
    model = OPS[which]()
    with opened(model) as adapter, opened(model) as other:
        calibration = adapter.calibrate(one_sided(adapter))
        other.restore(pickle.loads(pickle.dumps(calibration)))
        space = TuningSpace(adapter.ops())
        plain = space.default_config(granularity="per_tensor")
        config = repaired(plain, space)
        assert mean_error(adapter, config) < 0.8 * mean_error(adapter, plain)
        assert other.assemble(config).sha256 == adapter.assemble(config).sha256 != adapter.assemble(plain).sha256
        assert adapter.assemble(plain).sha256 == other.assemble(plain).sha256
        name = space.ops[0].name
        assert adapter.local_errors(config)[name][0] < adapter.local_errors(plain)[name][0]


def test_nothing_but_biases_changes_in_the_file() -> None:
    with opened(models.trained()) as adapter:
        adapter.calibrate([models.digits()[0][:32]])
        space = TuningSpace(adapter.ops())
        plain = space.default_config()
        files = [Graph(adapter.assemble(one)._content) for one in (plain, repaired(plain, space))]
        assert [op.kind for op in files[0].operators] == [op.kind for op in files[1].operators]
        changed = 0
        for at in range(len(files[0].main.tensors)):
            before, after = (file.constant(at) for file in files)
            if before is not None and after is not None and not np.array_equal(before, after):
                assert before.dtype == np.int32 and before.ndim == 1
                changed += 1
        assert changed == sum(bool(op.repairs) for op in space.ops) > 5


def test_ops_without_a_bias_or_in_another_mode_do_not_offer_it() -> None:
    with opened(models.trained()) as adapter:
        adapter.calibrate([models.digits()[0][:8]])
        for op in adapter.ops():
            assert bool(op.repairs) == (op.kind in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"))
            for choice in op.quantized_choices:
                assert op.repaired(choice, NAME).repairs == ((NAME,) if op.repairs and choice.mode == "static" else ())


def test_a_dynamic_op_cannot_be_repaired() -> None:
    with opened(models.trained()) as adapter:
        adapter.calibrate([models.digits()[0][:8]])
        space = TuningSpace(adapter.ops())
        config = space.default_config(mode="dynamic")
        name = next(name for name, pick in config.items() if pick.mode == "dynamic")
        with pytest.raises(quaver.BuildError, match="needs calibrated activations, but its mode is dynamic"):
            adapter.build(config.replace({name: replace(config[name], repairs=(NAME,))}))


def test_a_calibration_without_statistics_offers_none() -> None:
    with opened(models.trained()) as adapter, opened(models.trained()) as old:
        found = adapter.calibrate([models.digits()[0][:8]])
        old.restore({"ranges": found["ranges"]})
        assert any(op.repairs for op in adapter.ops()) and not any(op.repairs for op in old.ops())


def test_a_run_finds_it_and_recovers_it(tmp_path: Path) -> None:
    model = models.trained()
    result = quaver.fit(
        model,
        calib_dataloader=[models.digits()[0][:64]],
        eval_func=models.accuracy,
        workspace=tmp_path,
        strategy="basic",
        relative=0.05,
        op_type_dict={"CONV_2D": {"repairs": [NAME]}},
    )
    assert result.best is not None
    given = [pick for pick in result.best.config.values() if pick.repairs]
    assert given
    again = quaver.recover(model, result.history_path, result.best.number)
    assert again.sha256 == result.best.model_hash
