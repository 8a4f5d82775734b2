"""One pass over the data gives every range that any trial may need, in little memory, and says what is wrong."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_models import Net, as_given, data, kernels, opened, space, tensor, weight

from quaver.adapters.calibration import calibrator as streaming
from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.adapters.samples import MAX_PROBE_SAMPLES
from quaver.errors import BuildError, CalibrationError
from quaver.ops import CALIBRATIONS

f32 = np.float32


def small_net(batch: int | None = None) -> onnx.ModelProto:
    net = Net()
    x = net.Relu(net.Conv(net.input(batch, 4, 8, 8), weight(4, 4, 3, 3), weight(4), name="first"), outputs=["hidden"])
    return net.model(
        net.Gemm(net.Flatten(net.MaxPool(x, kernel_shape=[2, 2], strides=[2, 2])), weight(36, 3), name="last")
    )


def images(count: int = 6, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=(count, 4, 8, 8)).astype(f32)


def test_minmax_is_what_the_float_model_shows() -> None:
    model = small_net()
    with opened(model, calibrate=False) as adapter:
        found = adapter.calibrate(images())["ranges"]
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    probe.graph.output.append(tensor("hidden", None, 4, 6, 6))
    _, hidden = as_given(probe, {"x": images()})
    assert list(found) == ["x", "hidden"]
    assert found["x"]["minmax"] == (images().min(), images().max())
    assert found["hidden"]["minmax"] == pytest.approx((0, hidden.max()))
    assert set(found["x"]) == set(CALIBRATIONS)


def test_the_result_is_builtins_and_restores_the_same_models() -> None:
    with opened(small_net(), calibrate=False) as one, opened(small_net(), calibrate=False) as other:
        result = one.calibrate(images())
        assert all(
            type(bound) is float for methods in result["ranges"].values() for pair in methods.values() for bound in pair
        )
        other.restore(result)
        for method in CALIBRATIONS:
            config = space(one).default_config(calibration=method)
            assert other.assemble(config).sha256 == one.assemble(config).sha256


def test_a_new_calibration_replaces_the_old_one() -> None:
    with opened(small_net(), calibrate=False) as adapter, opened(small_net(), calibrate=False) as fresh:
        config = space(adapter).default_config()
        adapter.calibrate(images())
        before = adapter.assemble(config).sha256
        adapter.calibrate(images() * f32(3))
        fresh.calibrate(images() * f32(3))
        assert before != adapter.assemble(config).sha256 == fresh.assemble(config).sha256


def test_ranges_do_not_depend_on_how_the_data_is_cut() -> None:
    whole = images(12)
    with opened(small_net(), calibrate=False) as adapter:
        expected = adapter.calibrate(whole)["ranges"]
        for sizes in (1, 5, 12):
            found = adapter.calibrate([whole[i : i + sizes] for i in range(0, 12, sizes)])["ranges"]
            assert found["x"] == expected["x"]
            assert found["hidden"]["minmax"] == pytest.approx(expected["hidden"]["minmax"], rel=1e-5)


def test_only_as_many_samples_are_seen_as_asked_for() -> None:
    loud = np.concatenate([images(5), 100 * images(3)])
    with opened(small_net(), calibrate=False) as adapter:
        seen: list[tuple[int, int | None]] = []
        found = adapter.calibrate([loud[:4], loud[4:]], limit=5, progress=lambda *step: seen.append(step))
        assert found["ranges"]["x"]["minmax"] == (loud[:5].min(), loud[:5].max())
        assert seen[-1] == (5, 5)


def test_calibration_ends_within_a_batch_but_after_one_sample() -> None:
    whole = images(12)
    with opened(small_net(), calibrate=False) as adapter:
        found = adapter.calibrate([whole], enough=lambda: True)
        assert found["ranges"]["x"]["minmax"] == (whole[:1].min(), whole[:1].max())
        assert adapter.probe_samples


def test_int8_needs_a_calibration_and_fp32_does_not() -> None:
    with opened(small_net(), calibrate=False) as adapter:
        adapter.build(None).close()
        adapter.build(space(adapter).all_fp32()).close()
        with pytest.raises(BuildError, match="tensor 'x' has no minmax range: calibrate before building"):
            adapter.build(space(adapter).default_config())


@pytest.mark.parametrize("empty", [list, lambda: iter(()), lambda: images(0)], ids=["list", "iterator", "array"])
def test_no_data_is_an_error_that_names_the_usual_reason(empty: Callable[[], Any]) -> None:
    with (
        opened(small_net(), calibrate=False) as adapter,
        pytest.raises(CalibrationError, match=r"gave no samples.* used before is empty"),
    ):
        adapter.calibrate(empty())


def test_a_generator_can_be_used_once() -> None:
    with opened(small_net(), calibrate=False) as adapter:
        generator = (batch for batch in [images()])
        adapter.calibrate(generator)
        with pytest.raises(CalibrationError, match="gave no samples"):
            adapter.calibrate(generator)


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_input_that_is_no_number_is_named(broken: float) -> None:
    batch = images()
    batch[3, 1, 2, 2] = broken
    with (
        opened(small_net(), calibrate=False) as adapter,
        pytest.raises(CalibrationError, match=r"tensor 'x' \(an input\) holds NaN or infinity"),
    ):
        adapter.calibrate([images(), batch])


def test_the_op_whose_result_is_no_number_is_named() -> None:
    net = Net()
    x = net.Conv(net.input(None, 4, 8, 8), weight(4, 4, 1, 1), name="fine")
    roots = net.Sqrt(x, name="roots", outputs=["roots_of_negatives"])
    model = net.model(net.Conv(roots, weight(4, 4, 1, 1), name="after"))
    with (
        opened(model, calibrate=False) as adapter,
        pytest.raises(CalibrationError, match=r"tensor 'roots_of_negatives' \(the output of 'roots'\) holds NaN"),
    ):
        adapter.calibrate(images())


def test_a_batch_that_the_float_model_fails_on_is_reported() -> None:
    net = Net()
    x = net.Conv(net.input(None, 4, "h", "w"), weight(4, 4, 3, 3))
    model = net.model(net.Gemm(net.Flatten(x), weight(144, 3)))
    with (
        opened(model, calibrate=False) as adapter,
        pytest.raises(CalibrationError, match="the float model fails on a calibration batch"),
    ):
        adapter.calibrate([np.zeros((1, 4, 5, 5), f32)])


def sizes_of_parts(adapter: OnnxAdapter, batches: list[Any]) -> list[int]:
    taken = [0]
    adapter.calibrate(batches, progress=lambda done, total: taken.append(done))
    return np.diff(taken).tolist()


def test_a_large_batch_is_cut_so_that_its_activations_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    per_sample = images(1).nbytes + 4 * 6 * 6 * 4 + 36 * 4  # bytes of the input, of "hidden" and of what Gemm reads
    monkeypatch.setattr(streaming, "MAX_RUN_BYTES", 5 * per_sample + 10)
    with opened(small_net(), calibrate=False) as adapter:
        assert sizes_of_parts(adapter, [images(13), images(4), images(6)]) == [1, 5, 5, 5, 5, 2]
        assert sizes_of_parts(adapter, [images(1), images(7)]) == [1, 5, 2]


def test_memory_is_bounded_whatever_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The activations of the whole batch would take 90 MB; what Python holds at a time is a small part of it."""
    net = Net()
    x = net.Conv(net.input(None, 4, 16, 16), weight(64, 4, 1, 1))
    for _ in range(3):
        x = net.Conv(x, weight(64, 64, 1, 1))
    monkeypatch.setattr(streaming, "MAX_RUN_BYTES", 4 * 2**20)
    with opened(net.model(x), calibrate=False) as adapter:
        batch = np.random.default_rng(0).normal(size=(350, 4, 16, 16)).astype(f32)
        tracemalloc.start()
        adapter.calibrate([batch])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 30 * 2**20


def test_many_tensors_take_little_memory_each() -> None:
    """A histogram with all its bins would be 512 KiB."""
    net = Net()
    x = net.input(None, 8, 4, 4)
    for layer in range(200):
        turn, _ = np.linalg.qr(weight(8, 8, seed=layer))
        x = net.Conv(x, turn.astype(f32).reshape(8, 8, 1, 1))
    with opened(net.model(x), calibrate=False) as adapter:
        batches = [np.random.default_rng(seed).normal(size=(8, 8, 4, 4)).astype(f32) for seed in range(20)]
        tracemalloc.start()
        found = adapter.calibrate(batches)["ranges"]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert len(found) == 201 and peak / len(found) < 128 * 2**10


def test_a_fixed_batch_is_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "MAX_RUN_BYTES", 1)
    with opened(small_net(batch=4), calibrate=False) as adapter:
        assert sizes_of_parts(adapter, [images(4), images(4)]) == [4, 4]
        assert [feed["x"].shape[0] for feed in adapter.probe_samples] == [4, 4]
        assert set(kernels(adapter, space(adapter).default_config())) == {"first", "last"}


def test_a_batch_size_hidden_in_the_graph_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exporters leave the axis open and write the length they saw into a Reshape."""
    monkeypatch.setattr(streaming, "MAX_RUN_BYTES", 1)
    net = Net()
    x = net.Reshape(net.Conv(net.input(None, 4, 8, 8), weight(4, 4, 1, 1)), np.array([3, 256]))
    with opened(net.model(net.Gemm(x, weight(256, 3))), calibrate=False) as adapter:
        assert sizes_of_parts(adapter, [images(3), images(3)]) == [3, 3]


def test_a_model_that_needs_no_inner_range_is_calibrated_from_its_input() -> None:
    net = Net()
    model = net.model(net.Relu(net.Gemm(net.input(None, 8), weight(8, 3), name="only")))
    with opened(model) as adapter:
        assert list(adapter.calibrate(data(adapter))["ranges"]) == ["x"]
        assert kernels(adapter, space(adapter).default_config()) == {"only": "QGemm"}


def test_a_tensor_that_was_always_empty_does_not_stop_the_run() -> None:
    net = Net()
    x = net.Conv(net.input(1, 4, 8, 8), weight(4, 4, 1, 1))
    nothing = net.Slice(x, np.array([0]), np.array([0]), np.array([2]))
    with opened(net.model(net.Sigmoid(nothing), x)) as adapter:
        empty, _ = adapter.build(space(adapter).default_config())(data(adapter)[0])
        assert empty.shape == (1, 4, 0, 8)


def test_inputs_of_other_types_are_fed_and_not_calibrated() -> None:
    net = Net()
    ids = net.input(None, 5, name="ids", dtype=onnx.TensorProto.INT64)
    half = net.Cast(net.input(None, 5, 8, name="half", dtype=onnx.TensorProto.FLOAT16), to=1)
    unused = net.input(3, name="unused", dtype=onnx.TensorProto.BOOL)
    model = net.model(net.MatMul(net.Add(net.Gather(weight(4, 8), ids), half), weight(8, 3)))
    with opened(model, calibrate=False) as adapter:
        found = adapter.calibrate(data(adapter))["ranges"]
        assert not {"ids", "half", unused} & set(found) and len(found) == 3
        assert len(kernels(adapter, space(adapter).default_config())) == 2


def test_a_few_samples_are_kept_and_are_copies() -> None:
    batches = [images(10, seed=i) for i in range(4)]
    with opened(small_net(), calibrate=False) as adapter:
        adapter.calibrate(batches)
        kept = np.concatenate([feed["x"] for feed in adapter.probe_samples])
        assert np.array_equal(kept, np.concatenate(batches)[:MAX_PROBE_SAMPLES])
        batches[0][:] = 0
        assert adapter.probe_samples[0]["x"].any()
        adapter.keep_probe_samples(images(3, seed=9))
        assert [feed["x"].shape[0] for feed in adapter.probe_samples] == [1, 1, 1]


def test_shapes_that_depend_on_the_data_are_followed() -> None:
    """Batches of one shape, of which different numbers of rows are left over."""
    net = Net()
    x = net.input(4, 8)
    wanted = net.Greater(net.Squeeze(net.Slice(x, np.array([0]), np.array([1]), np.array([1]))), f32(0))
    rows = net.Compress(net.Neg(x), wanted, axis=0, outputs=["rows"])
    model = net.model(tensor(net.Gemm(rows, weight(8, 3)), None, 3))
    batches = [np.random.default_rng(seed).normal(size=(4, 8)).astype(f32) * f32(seed + 1) for seed in range(6)]
    batches[3][:, 0] = -1  # none
    left = [-batch[batch[:, 0] > 0] for batch in batches]
    assert len({len(part) for part in left}) > 2
    with opened(model, calibrate=False) as adapter:
        found = adapter.calibrate(batches)["ranges"]["rows"]["minmax"]
    assert found == (np.concatenate(left).min(), np.concatenate(left).max())


def test_every_batch_counts_though_buffers_are_reused() -> None:
    batches = [images(4, seed=seed) * f32(seed + 1) for seed in range(3)]
    with opened(small_net(), calibrate=False) as adapter:
        found = adapter.calibrate([*batches, images(2)])["ranges"]
        apart = [adapter.calibrate([batch])["ranges"] for batch in batches]
    assert found["x"]["minmax"] == (np.concatenate(batches).min(), np.concatenate(batches).max())
    assert found["hidden"]["minmax"][1] == pytest.approx(max(ranges["hidden"]["minmax"][1] for ranges in apart))
