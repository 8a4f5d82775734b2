"""LiteRT's int8 kernels add in 32 bits, with VNNI and without: answers are the same on an emulated processor."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
from emulator import needs_emulator, on_haswell
from keras import layers

from quaver.adapters.abilities import portability_of
from quaver.adapters.litert.adapter import LiteRTAdapter
from quaver.adapters.options import AdapterOptions
from quaver.processors import Portability, this_processor
from quaver.space import TuningSpace


def network() -> keras.Model:
    """Weights of one sign, the largest next to each other: every sum of two products would overflow 16 bits."""
    stack = [
        keras.Input((10, 10, 8), name="x"),
        layers.Conv2D(16, 3, activation="relu"),
        layers.DepthwiseConv2D(3),
        layers.Conv2D(16, 1, activation="relu"),
        layers.Flatten(),
        layers.Dense(10),
    ]
    model = keras.Sequential(stack)
    rng = np.random.default_rng(0)
    for variable in model.weights:
        if len(variable.shape) > 1:
            variable.assign((0.9 + 0.1 * rng.random(variable.shape)) * 0.01)
    return model


@needs_emulator
@pytest.mark.parametrize("quant_format", ["float_io", "full_integer"])
def test_sums_beyond_16_bits_are_the_same_without_vnni(tmp_path: Path, quant_format: str) -> None:
    adapter = LiteRTAdapter.load(network(), AdapterOptions(threads=1, quant_format=quant_format))
    (spec,) = adapter.inputs
    x = np.random.default_rng(1).uniform(0.7, 1.0, (4, 10, 10, 8)).astype(np.float32)
    adapter.calibrate([{spec.name: x}, {spec.name: np.zeros_like(x)}])
    config = TuningSpace(adapter.ops()).default_config()
    assert len(config.int8_ops) >= 4
    path = adapter.assemble(config).save(tmp_path / "model.tflite")
    (native,), (emulated,) = on_haswell(path, {spec.name: x[:1]})
    assert np.array_equal(native, emulated) and np.ptp(native) > 0
    assert portability_of(adapter, config) == Portability(this_processor(), "inherent")
    adapter.close()
