"""How calibration data is cut into batches changes neither ranges nor samples kept; and what models are timed on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_models import Net, opened, space, weight

from quaver.adapters.base import Adapter
from quaver.adapters.calibration.ranges import TensorStatistics
from quaver.adapters.data import InputSpec
from quaver.adapters.samples import MAX_PROBE_SAMPLES, Batching, check_batch, group_samples, timing_feed
from quaver.demo.data import digits
from quaver.errors import SettingsError
from quaver.testing.adapter_case import equal_feeds

f32 = np.float32
DATA = Path(__file__).parents[3] / "data"
IMAGES = digits()[0][:250]
WAYS: dict[str, Callable[[Any], Any]] = {
    "one by one": lambda values: [values[at : at + 1] for at in range(len(values))],
    "without a batch axis": list,
    "by 10": lambda values: np.split(values, len(values) // 10),
    "by 25": lambda values: np.split(values, len(values) // 25),
    "in batches of all sizes": lambda values: np.split(values, [3, 4, 40, 41, 77, 200]),
    "as a whole": lambda values: values,
}


def random_values(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(f32)


def sizes_of_runs(adapter: Adapter, batches: Any) -> list[int]:
    done = [0]
    adapter.calibrate(batches, progress=lambda count, total: done.append(count))
    return [int(size) for size in np.diff(done)]


@pytest.mark.parametrize("name", ["digits_resnet.onnx", "digits_encoder.onnx"])
def test_the_same_samples_in_any_batches_give_the_same_calibration_samples_and_bytes(name: str) -> None:
    results = {}
    for channel_axis_of_, cut in WAYS.items():
        with opened(str(DATA / name), calibrate=False) as adapter:
            calibration = adapter.calibrate(cut(IMAGES))
            feeds, ops = list(adapter.probe_samples), space(adapter)
            models = [
                adapter.assemble(ops.default_config(calibration=method)).sha256 for method in ("minmax", "percentile")
            ]
            errors = adapter.local_errors(ops.default_config())
            adapter.keep_probe_samples(cut(IMAGES))
            assert equal_feeds(adapter.probe_samples, feeds), channel_axis_of_
            results[channel_axis_of_] = (
                calibration,
                models,
                errors,
                [feed["x" if "x" in feed else next(iter(feed))] for feed in feeds],
            )
    expected = results.pop("one by one")
    assert [len(sample) for sample in expected[3]] == [1] * MAX_PROBE_SAMPLES
    for channel_axis_of_, result in results.items():
        assert result[:3] == expected[:3], channel_axis_of_
        assert np.array_equal(result[3], expected[3]), channel_axis_of_


def test_samples_are_joined_into_runs_of_the_same_size() -> None:
    net = Net()
    model = net.model(net.Gemm(net.input(None, 8), weight(8, 3)))
    for cut in WAYS.values():
        with opened(model, calibrate=False) as adapter:
            assert sizes_of_runs(adapter, cut(random_values(250, 8))) == [1, *[8] * 31, 1]


def test_an_axis_of_time_is_neither_cut_nor_joined() -> None:
    """What an LSTM makes of a step depends on the steps before it; the first axis of its input is time."""
    net = Net()
    x = net.input(None, 1, 4)
    hidden = net.add(
        "LSTM", x, weight(1, 32, 4, seed=1), weight(1, 32, 8, seed=2), hidden_size=8, outputs=["steps", "last", "cell"]
    )
    y = net.MatMul(net.Reshape(hidden[0], np.array([-1, 8])), weight(8, 3))
    with opened(net.model(y), calibrate=False) as adapter:
        assert sizes_of_runs(adapter, [random_values(20, 1, 4), random_values(30, 1, 4)]) == [20, 30]
        assert [len(feed["x"]) for feed in adapter.probe_samples] == [20, 30]
        assert len(adapter.timing_feed["x"]) == 20


def test_a_model_that_takes_one_sample_only_gets_them_one_by_one() -> None:
    net = Net()
    x = net.Reshape(net.Relu(net.input(None, 2, 4)), np.array([1, 8]))
    with opened(net.model(net.Gemm(x, weight(8, 3))), calibrate=False) as adapter:
        assert adapter.calibrator().batching({"x": random_values(1, 2, 4)}) is Batching.SINGLE
        assert sizes_of_runs(adapter, [random_values(5, 2, 4), random_values(2, 2, 4)]) == [1] * 7


def test_samples_that_fail_together_are_run_one_by_one() -> None:
    """The first three rows are taken, whatever the batch: up to three samples fit, and eight do not."""
    net = Net()
    x = net.input(None, 4, 8)
    rows = net.Slice(x, np.array([0]), np.array([3]), np.array([0]))
    model = net.model(net.MatMul(net.Mul(rows, x), weight(8, 3)))
    with opened(model, calibrate=False) as adapter:
        assert sizes_of_runs(adapter, [random_values(3, 4, 8, seed=seed) for seed in range(4)]) == [1] * 12


def test_a_model_that_takes_one_sample_only_when_optimized_gets_its_batches() -> None:
    """A Squeeze without axes drops a batch of one. Optimized, the Transpose of four axes is a part of the product."""
    net = Net()
    x = net.Squeeze(net.Abs(net.input(None, 3, 4, 9)))
    model = net.model(net.MatMul(x, net.Transpose(x, perm=[0, 1, 3, 2]), name="product"))
    with opened(model, calibrate=False) as adapter:
        assert sizes_of_runs(adapter, [random_values(2, 3, 4, 9), random_values(2, 3, 4, 9, seed=1)]) == [2, 2]
        assert adapter.local_errors(space(adapter).default_config())


def test_each_branch_decides_on_batches_anew() -> None:
    """One branch takes any batch, the other one a batch of two."""

    def body(name: str, shape: list[int]) -> onnx.GraphProto:
        nodes = [onnx.helper.make_node("Reshape", ["h", f"{name} shape"], [name])]
        tensor = onnx.numpy_helper.from_array(np.array(shape), f"{name} shape")
        output = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        return onnx.helper.make_graph(nodes, name, [], [output], [tensor])

    net = Net()
    x, flag = net.input(None, 8), net.input(name="flag")
    net.inputs[1] = onnx.helper.make_tensor_value_info("flag", onnx.TensorProto.BOOL, [])
    net.Gemm(x, weight(8, 4), outputs=["h"], name="product")
    y = net.If(flag, then_branch=body("any", [-1, 2, 2]), else_branch=body("two", [2, 4]))
    feeds = [{"x": random_values(2, 8, seed=seed), "flag": np.array(seed == 0)} for seed in range(3)]
    with opened(net.model(y), calibrate=False) as adapter:
        adapter.calibrate(feeds)
        assert [len(feed["x"]) for feed in adapter.probe_samples] == [1, 1, 2, 2]
        assert adapter.local_errors(space(adapter).default_config())


def test_a_model_that_mixes_the_samples_of_a_batch_gets_its_batches() -> None:
    """The mean over a batch that holds one sample twice is that of the sample, so other samples have to be joined."""
    net = Net()
    mean = net.ReduceMean(net.input(None, 8), axes=[0], keepdims=1)
    batches = [random_values(4, 8, seed=seed) for seed in range(3)]
    with opened(net.model(net.Gemm(mean, weight(8, 3))), calibrate=False) as adapter:
        ranges = adapter.calibrate(batches)["ranges"]
        means = [batch.mean(0) for batch in batches]
        assert ranges[mean]["minmax"] == pytest.approx((np.min(means), np.max(means)), rel=1e-5)
        assert [len(feed["x"]) for feed in adapter.probe_samples] == [4, 4, 4]


def test_a_model_that_takes_one_or_three_samples_and_mixes_three_gets_its_batches() -> None:
    net = Net()
    total = net.Add(net.input(None, 8), weight(3, 1))
    batches = [random_values(3, 8, seed=seed) for seed in range(3)]
    with opened(net.model(net.Gemm(total, weight(8, 3))), calibrate=False) as adapter:
        low, high = adapter.calibrate(batches)["ranges"][total]["minmax"]
        sums = np.array([batch + weight(3, 1) for batch in batches])
        assert (low, high) == pytest.approx((sums.min(), sums.max()), rel=1e-5)


def test_a_model_that_picks_one_sample_of_a_batch_gets_them_one_by_one() -> None:
    """An exporter wrote the batch of one into the sizes of a Resize: it takes one sample of eight."""
    net = Net()
    sizes = np.array([1, 3, 8, 8])
    resized = net.LeakyRelu(net.Resize(net.input(None, 3, 4, 4), "", "", sizes, mode="nearest"))
    values = random_values(20, 3, 4, 4)
    with opened(net.model(net.Conv(resized, weight(4, 3, 1, 1))), calibrate=False) as adapter:
        done: list[int] = []
        samples = [values[at : at + 1] for at in range(20)]
        ranges = adapter.calibrate(samples, progress=lambda count, total: done.append(count))["ranges"]
        assert done == list(range(1, 21))
        assert ranges[resized]["minmax"][1] == values.max()


def test_no_value_is_overwritten_before_it_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibration asks how the model takes samples while the values of the first one are still being counted."""
    add = TensorStatistics.add

    def slowly(statistics: TensorStatistics, values: Any, samples: int = 1) -> None:
        time.sleep(0.02)
        add(statistics, values, samples)

    monkeypatch.setattr(TensorStatistics, "add", slowly)
    net = Net()
    x = net.Reshape(net.Relu(net.input(None, 2, 4)), np.array([1, 8]))  # takes one sample at a time
    computed = net.LeakyRelu(x)
    with opened(net.model(net.Gemm(computed, weight(8, 3))), calibrate=False) as adapter:
        ranges = adapter.calibrate([np.full((1, 2, 4), value, f32) for value in (100, 1, 2)])["ranges"]
        assert ranges[computed]["minmax"] == (0, 100)


def test_texts_of_different_lengths_are_joined_with_neighbours_of_the_same_length() -> None:
    net = Net()
    model = net.model(net.MatMul(net.input(None, None, 8), weight(8, 3)))
    lengths = [5, 5, 5, 7, 7, 5]
    texts = [random_values(1, length, 8, seed=at) for at, length in enumerate(lengths)]
    pairs = [np.concatenate(texts[:3]), np.concatenate(texts[3:5]), texts[5]]
    with opened(model, calibrate=False) as adapter:
        assert sizes_of_runs(adapter, texts) == sizes_of_runs(adapter, pairs) == [1, 2, 2, 1]
        assert adapter.calibrate(texts) == adapter.calibrate(pairs)


def test_an_input_without_a_batch_axis_is_fed_whole() -> None:
    net = Net()
    x, table, scale = net.input(None, 4, 8), net.input(4, 8, name="table"), net.input(name="scale")
    net.inputs[1] = onnx.helper.make_tensor_value_info("table", onnx.TensorProto.FLOAT, [None, 8])
    model = net.model(net.MatMul(net.Mul(net.Add(x, table), scale), weight(8, 3)))
    values, added, factor = random_values(40, 4, 8), random_values(4, 8), f32(0.5)
    batches = [
        [{"x": values[at : at + size], "table": added, "scale": factor} for at in range(0, 40, size)]
        for size in (1, 10)
    ]
    with opened(model, calibrate=False) as adapter:
        found = [adapter.calibrate(channel_axis_of_) for channel_axis_of_ in batches]
        assert found[0] == found[1]
        assert {feed["table"].shape for feed in adapter.probe_samples} == {(4, 8)}


def test_samples_whose_unbatched_inputs_differ_are_not_joined() -> None:
    feeds = [{"x": random_values(1, 4), "mask": np.full(3, at // 2, f32)} for at in range(4)]
    assert [len(group) for group in group_samples(feeds, lambda feed: 8)] == [2, 2]


def test_an_input_whole_length_is_that_of_a_run_is_not_cut() -> None:
    """Two samples are joined, and the other input has two rows, which all samples read."""
    net = Net()
    x, table = net.input(None, 8), net.input(2, 8, name="table")
    net.inputs[1] = onnx.helper.make_tensor_value_info("table", onnx.TensorProto.FLOAT, [None, 8])
    total = net.LeakyRelu(net.Add(x, net.ReduceSum(table, axes=[0], keepdims=0)))
    values, rows = random_values(3, 8), np.array([[1.0] * 8, [100.0] * 8], f32)
    with opened(net.model(net.Gemm(total, weight(8, 3)), opset=12), calibrate=False) as adapter:
        ranges = adapter.calibrate([{"x": values, "table": rows}])["ranges"]
        assert ranges[total]["minmax"] == pytest.approx((0, values.max() + 101), rel=1e-5)


def test_models_are_timed_on_as_many_samples_as_asked_for_repeated_if_need_be() -> None:
    inputs = (InputSpec("x", np.dtype(f32), (None, None)),)
    samples = [{"x": np.full((1, length), at, f32)} for at, length in enumerate([2, 3, 2])]
    assert timing_feed(samples, inputs, 1) is samples[0]
    assert timing_feed(samples, inputs, 5)["x"].tolist() == [[0, 0], [2, 2], [0, 0], [2, 2], [0, 0]]
    net = Net()
    with opened(net.model(net.Gemm(net.input(None, 8), weight(8, 3))), calibrate=False, batch=6) as adapter:
        adapter.calibrate(random_values(4, 8))
        assert adapter.timing_feed["x"].shape == (6, 8)
        assert adapter.op_seconds(None)


def test_a_batch_that_the_model_rules_out_is_refused() -> None:
    fixed, free = (InputSpec("x", np.dtype(f32), (size, 3)) for size in (4, None))
    for batch in (1, 4):
        check_batch([fixed], batch)
        check_batch([free], batch)
    with pytest.raises(SettingsError, match=r"`batch=8` contradicts the model, whose input 'x' .* fixed batch of 4"):
        check_batch([fixed], 8)
