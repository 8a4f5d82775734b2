"""What strategies ask without labels."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any

import litert_models as models
import numpy as np
import pytest

from quaver.adapters.samples import MAX_PROBE_SAMPLES
from quaver.ops import FLOAT


@pytest.fixture(scope="module")
def planted() -> Any:
    return models.opened(models.trained(1), models.digits()[0][:64])


def test_recorded_outputs_equal_those_of_the_layers(digits_model: Any) -> None:
    import keras

    adapter, space = models.opened(digits_model, models.digits()[0][:64])
    names = ["block0_add", "block2_add", "pool"]
    feed = adapter.probe_samples[0]
    seen = adapter.record_outputs(None, names)(feed)
    for name in names:
        layer = keras.Model(digits_model.input, digits_model.get_layer(name).output)
        np.testing.assert_allclose(seen[name], layer(feed["image"]), atol=1e-4)
    int8 = adapter.record_outputs(space.default_config(), names)(feed)
    assert all(0 < models.relative_error(seen[name], int8[name]) < 0.01 for name in names)


def test_the_last_op_is_recorded_in_float_and_int8(planted: Any) -> None:
    adapter, space = planted
    pair = [
        adapter.record_outputs(config, ["classes"])(adapter.probe_samples[0])["classes"]
        for config in (None, space.default_config())
    ]
    assert pair[0].shape == pair[1].shape == (1, 10) and pair[1].dtype == np.float32


def test_an_ops_own_error_points_at_the_culprit(planted: Any) -> None:
    adapter, space = planted
    errors = adapter.local_errors(space.default_config())
    relative = {name: noise / signal for name, (noise, signal) in errors.items()}
    assert list(errors) == list(space.quantizable)
    worst = max(relative, key=lambda name: relative[name])
    assert worst == "block1_pointwise" and relative[worst] > 20 * median(relative.values())


def test_an_ops_own_error_excludes_those_of_other_ops(planted: Any) -> None:
    adapter, space = planted
    together = adapter.local_errors(space.default_config())
    alone = adapter.local_errors(space.only_int8("block2_depthwise"))
    assert list(alone) == ["block2_depthwise"]
    assert alone["block2_depthwise"] == pytest.approx(together["block2_depthwise"], rel=1e-6)


def test_ops_are_timed_and_add_up(float_tflite: Path) -> None:
    adapter, space = models.opened(models.mixed())
    for config in (None, space.default_config(), space.configure(lambda op: models.every_int8(op))):
        seconds = adapter.op_seconds(config)
        assert set(seconds) == {"", *space.quantizable}
        model = adapter.build(config)
        feed = {name: array[:1] for name, array in adapter.probe_samples[0].items()}
        model.run(feed)
        times = []
        for _ in range(50):
            start = time.perf_counter()
            model.interpreter.invoke()
            times.append(time.perf_counter() - start)
        assert 0.2 * median(times) < sum(seconds.values()) < 5 * median(times)


def test_an_op_that_is_slower_in_int8_measures_slower(float_tflite: Path) -> None:
    adapter, space = models.opened(models.mixed())
    fp32, int8 = adapter.op_seconds(None), adapter.op_seconds(space.configure(lambda op: models.every_int8(op)))
    assert space["swish"].choices[0] == FLOAT and int8["swish"] > fp32["swish"]


def test_probe_samples_are_kept_and_can_be_given_later(float_tflite: Path) -> None:
    adapter, _ = models.opened(float_tflite, models.digits()[0][:40])
    other, _ = models.opened(float_tflite, models.digits()[2][:8])
    assert sum(len(feed["image"]) for feed in adapter.probe_samples) == MAX_PROBE_SAMPLES
    other.keep_probe_samples(models.digits()[0][:40])
    np.testing.assert_array_equal(other.probe_samples[0]["image"], adapter.probe_samples[0]["image"])
