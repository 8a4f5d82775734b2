"""Each cause is found in a model that has it, with the right op and channel, and not in the same model without it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import diagnosis_models as models
import numpy as np
import onnx
import pytest

import quaver
from quaver.adapters import AdapterOptions, load_model
from quaver.rules import apply_rules
from quaver.space import TuningSpace

ONE_SCALE = {"Conv": {"weight": {"granularity": ["per_tensor"]}}}
ENTROPY = {"Conv": {"activation": {"algorithm": ["entropy"]}}}
UP = {"ConvTranspose": "int8"}
NO_REPAIRS = {"*": {"repairs": []}}


def diagnosed(model: onnx.ModelProto, data: Any = None, quantized: Any = None, **settings: Any) -> quaver.Diagnosis:
    data = models.images() if data is None else data
    return quaver.diagnose(model, quantized, data, timing=False, threads=1, **settings)


def ruled(model: onnx.ModelProto, rules: Any) -> quaver.QuantConfig:
    """The configuration that rules on types lead to, by itself: what is advised for it is not bound by them."""
    adapter = load_model(model, AdapterOptions(threads=1))
    config = TuningSpace(apply_rules(adapter.ops(), {}, rules)).default_config()
    adapter.close()
    return config


def only(found: quaver.Diagnosis, kind: str) -> quaver.Cause:
    assert {cause.kind for cause in found.causes} == {kind}, str(found)
    return found.causes[0]


def output_error(model: onnx.ModelProto, rules: Any, data: Any = None, **settings: Any) -> float:
    """How far the outputs are off when these rules are pasted on top of the others."""
    return diagnosed(model, data, op_name_dict=rules, **settings).output_error


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        (models.chain(), {}),
        (models.chain(), {"op_type_dict": ONE_SCALE}),
        (models.outlying_output_channel(), {}),
        (models.outlying_output_channel(1.0), {"op_type_dict": ONE_SCALE}),
        (models.outlying_input_channel(1.0), {}),
        (models.joined(1.0), {}),
        (models.added(1.0), {}),
        (models.cut_apart(1.0), {}),
        (models.logarithm(0.5), {"op_name_dict": {"after": "fp32"}}),
        (models.broken(lift=9.0), {}),
        (models.never_reached(limit=0.0), {}),
        (models.transposed(1.0), {"op_type_dict": UP}),
        (models.flat_weight(), {}),
    ],
)
def test_a_healthy_model_has_no_causes(model: onnx.ModelProto, settings: dict[str, Any]) -> None:
    found = diagnosed(model, **settings)
    assert not found.causes, str(found)
    assert "no op is bad by itself" in str(found) and not found.rules


def test_an_output_channel_of_large_weights_is_named_and_per_channel_scales_help() -> None:
    model = models.outlying_output_channel()
    found = diagnosed(model, quantized=ruled(model, ONE_SCALE))
    cause = only(found, "one_weight_scale")
    assert cause.op == "second" and "output channel 5 " in cause.sentence and "times as far" in cause.sentence
    assert cause.rules == {"second": {"weight": {"granularity": ["per_channel"]}}}
    assert cause.paste == 'op_name_dict={"second": {"weight": {"granularity": ["per_channel"]}}}'
    assert output_error(model, cause.rules, op_type_dict=ONE_SCALE) < found.output_error / 10


def test_large_weights_for_an_input_channel_are_named_and_per_channel_scales_do_not_help() -> None:
    model = models.outlying_input_channel()
    found = diagnosed(model, op_type_dict=NO_REPAIRS)
    cause = only(found, "weight_outlier")
    assert cause.op == "second" and "input channel 3 " in cause.sentence and "does not help" in cause.sentence
    assert cause.rules == {"second": "fp32"}
    assert output_error(model, cause.rules) < found.output_error / 100


def test_a_channel_of_large_activations_is_named_at_its_writer_and_readers() -> None:
    model = models.outlying_activation()
    found = diagnosed(model, op_type_dict=NO_REPAIRS)
    assert {(cause.op, cause.kind) for cause in found.causes} == {
        ("first", "outlier_channel"),
        ("second", "outlier_channel"),
    }
    assert all("channel 3 of its" in cause.sentence for cause in found.causes)
    assert found.rules == {"first": "fp32", "second": "fp32"}
    assert output_error(model, found.rules) < found.output_error / 100


def test_a_sample_that_sets_the_range_is_named_by_its_number() -> None:
    data = models.dominated()
    found = diagnosed(models.chain(), data)
    cause = only(found, "few_samples")
    assert [each.op for each in found.causes] == ["first", "second", "third"]
    assert "1 of 64 samples, number 9," in cause.sentence and "calibration" in cause.advice
    assert not diagnosed(models.chain(), data[np.arange(64) != 9]).causes


def test_a_single_large_value_is_cut_off_by_another_calibration_method() -> None:
    data = models.images()
    data[20, 0, 0, 0] = 2000.0
    found = diagnosed(models.chain(), data, op_name_dict={"second": "fp32", "third": "fp32"})
    cause = next(cause for cause in found.causes if cause.kind == "few_samples")
    assert cause.op == "first" and "number 20," in cause.sentence
    assert cause.rules == {"first": {"activation": {"algorithm": ["percentile"]}}}


def test_clipping_by_a_calibration_method_is_named() -> None:
    data = models.spiked()
    found = diagnosed(models.chain(), data, ruled(models.chain(), ENTROPY))
    cause = only(found, "clipped")
    assert cause.op == "first" and cause.sentence.startswith("calibration by entropy ends the range of its input at ")
    assert cause.rules == {"first": {"activation": {"algorithm": ["minmax"]}}}
    assert output_error(models.chain(), cause.rules, data, op_type_dict=ENTROPY) < found.output_error / 4
    assert not diagnosed(models.chain(), data).causes


def test_a_small_partner_in_a_concat_suffers_from_the_scale_of_the_large_one() -> None:
    found = diagnosed(models.joined(1e-3))
    cause = only(found, "shared_scale")
    assert cause.op == "both" and "its input 2 (from right) reaches" in cause.sentence
    assert cause.rules == {"both": "fp32", "after": "fp32"}


def test_a_small_partner_in_an_add_suffers_from_the_scale_of_the_large_one() -> None:
    model = models.added(300.0)
    found = diagnosed(model)
    cause = only(found, "shared_scale")
    assert (
        cause.op == "sum" and "its input 2 (from right) reaches" in cause.sentence and "(from left)" in cause.sentence
    )
    assert cause.rules == {"sum": "fp32"} and not diagnosed(model, op_name_dict=cause.rules).causes


def test_a_slice_keeps_the_scale_of_the_whole() -> None:
    found = diagnosed(models.cut_apart(1e-3))
    cause = found.causes[0]
    assert (cause.op, cause.kind) == ("of_second", "shared_scale") and "through Split" in cause.sentence
    assert set(cause.rules) == {"whole", "of_first", "of_second"}


def test_the_reason_for_a_single_weight_scale_is_named() -> None:
    model = models.transposed(300.0)
    found = diagnosed(model, quantized=ruled(model, UP))
    cause = only(found, "per_channel_dropped")
    assert cause.op == "up" and "output channel 5 " in cause.sentence and "ConvTranspose" in cause.sentence
    assert cause.rules == {"up": "fp32"}


def test_an_op_that_becomes_infinite_in_int8_is_named() -> None:
    found = diagnosed(models.logarithm(1e-3), op_name_dict={"after": "fp32"})
    cause = only(found, "not_finite")
    assert cause.op == "after" and "(Log)" in cause.advice and cause.rules == {"scores": "fp32"}
    row = next(row for row in found.layers if row.op == "after")
    assert row.not_finite > 0 and np.isnan(found.activations[0].mse) and found.activations[0].op == "after"
    cured = diagnosed(models.logarithm(1e-3), op_name_dict={"after": "fp32", **cause.rules})
    assert not cured.causes and cured.output_error < 1e-3


def test_an_op_that_is_nan_in_the_float_model_is_named() -> None:
    found = diagnosed(models.broken())
    cause = only(found, "not_finite")
    assert (
        cause.op == "after"
        and "already writes NaN or infinity in the float model" in cause.sentence
        and "sample 0" in cause.sentence
    )
    row = next(row for row in found.activations if row.op == "after")
    assert np.isnan(row.mse) and np.isnan(row.low) and np.isnan(row.high)


def test_an_op_that_no_sample_reaches_is_named() -> None:
    found = diagnosed(models.never_reached())
    cause = only(found, "no_samples")
    assert cause.op == "rare" and not cause.rules
    row = next(row for row in found.layers if row.op == "rare")
    assert row.local["num_elements"] == 0 and np.isnan(row.cumulative["mean_squared_error"])


def test_a_weight_of_one_value_has_no_variance_and_no_outlier() -> None:
    found = diagnosed(models.flat_weight())
    row = next(row for row in found.weights if row.op == "second")
    assert row.before.deviation == row.before.variance == 0.0 and row.before.low == row.before.high == 0.25


@pytest.mark.parametrize(("offset", "enlarged"), [(100.0, True), (0.0, False)])
def test_a_float_function_that_amplifies_an_error_is_named(offset: float, enlarged: bool) -> None:
    """The variance as mean of squares minus square of mean: two large numbers, of which little is left."""
    net = models.Net()
    bias = np.full(16, offset, np.float32)
    a = net.add("Conv", "first", "x", models.noise(16, 16, 3, 3, seed=1), bias, pads=[1] * 4)
    mean, mean_of_squares = (
        net.add("ReduceMean", f"mean of {name}", name, axes=[1], keepdims=1)
        for name in (a, net.add("Mul", "squares", a, a))
    )
    variance = net.add("Sub", "variance", mean_of_squares, net.add("Pow", "of mean", mean, np.float32(2)))
    model = net.model(net.add("Conv", "after", variance, models.noise(16, 1, 1, 1, seed=2)))
    found = diagnosed(model)
    if not enlarged:
        assert not found.causes, str(found)
        return
    cause = only(found, "amplified")
    assert cause.op == "after" and "Sub" in cause.sentence and set(cause.rules) == {"first", "squares"}
    assert output_error(model, cause.rules) < found.output_error / 100


@pytest.mark.parametrize(
    ("offset", "kind", "sentence"),
    [
        (10.0, "dead_range", "no value falls into most of it"),
        (3.0, "unexplained", "neither its weights nor its ranges"),
    ],
)
def test_a_range_far_from_zero_is_named_and_a_bad_op_without_a_known_cause_is_reported(
    offset: float, kind: str, sentence: str
) -> None:
    """The steps of its input suit what cancels out, not what is left: no weight, channel or sample is to blame."""
    model = models.cancelling()
    found = diagnosed(model, models.raised(offset), op_type_dict=NO_REPAIRS)
    cause = only(found, kind)
    assert cause.op == "contrast" and sentence in cause.sentence
    assert cause.rules["contrast"] == "fp32" and output_error(model, cause.rules, models.raised(offset)) < 1e-9
    assert not diagnosed(model, models.raised(0.0)).causes


@pytest.mark.parametrize("make", [models.outlying_input_channel, models.outlying_activation])
def test_smoothing_into_the_convolution_before_is_advised(make: Any) -> None:
    found = diagnosed(make())
    (cause,) = [cause for cause in found.causes if cause.kind == "repairable"]
    assert cause.op == "second" and "smoothing would cut this op's error" in cause.sentence
    assert output_error(make(), cause.rules) < found.output_error / 10


def test_a_tensor_that_is_zero_in_half_of_the_samples_is_diagnosed() -> None:
    data = models.images()
    data[::2] = 0.0
    found = diagnosed(models.outlying_activation(), data, op_type_dict=NO_REPAIRS)
    assert {cause.kind for cause in found.causes} == {"outlier_channel"}
    assert {cause.op for cause in found.causes} == {"first", "second"}


def of_all_sizes(count: int = 32, often: int = 4) -> list[Any]:
    """Samples for a product, a few of them a hundred times as large as the others."""
    rng = np.random.default_rng(0)
    sizes = [np.float32(1 if at % often else 100) for at in range(count)]
    return [rng.normal(size=(1, 2, 32, 32)).astype(np.float32) * size for size in sizes]


def test_another_mode_is_named_where_it_would_cut_the_error_with_the_rule_to_paste() -> None:
    """One range for samples of all sizes leaves the small ones no steps; ranges taken at run time fit each."""
    net = models.Net(channels=2, size=32)
    model = net.model(net.add("MatMul", "fc", "x", models.noise(32, 16)))
    cause = only(diagnosed(model, of_all_sizes()), "other_mode")
    assert (
        cause.sentence.startswith("mode dynamic would cut this op's error ")
        and cause.advice == "Run it in mode dynamic"
    )
    assert cause.rules == {"fc": {"activation": {"mode": ["dynamic"]}}}
    pasted = diagnosed(model, of_all_sizes(), op_name_dict=cause.rules)
    assert not pasted.causes and pasted.layers[0].error < 1e-3
    assert not diagnosed(model, of_all_sizes(often=1)).causes
    forbidden = {"fc": {"activation": {"mode": ["static"]}}}
    bound = diagnosed(model, of_all_sizes(), op_name_dict=forbidden)
    assert only(bound, "unexplained").rules == {"fc": "fp32"}


def test_a_mode_replaces_fp32_and_a_repair_replaces_a_mode() -> None:
    """A channel of large values under small weights: smoothing cures it; where rules forbid that, dynamic ranges do."""
    rng, net = np.random.default_rng(1), models.Net(channels=2, size=32)
    weight = rng.normal(size=(1024, 16)).astype(np.float32)
    weight[5] /= 100
    rows = net.add("Reshape", "rows", "x", np.array([0, 2, 1024]))
    model = net.model(net.add("MatMul", "fc", rows, weight))
    data = [rng.normal(size=(1, 2, 32, 32)).astype(np.float32) for _ in range(32)]
    for sample in data:
        sample.reshape(2, 1024)[:, 5] *= 100
    free = diagnosed(model, data)
    assert {cause.kind for cause in free.causes} == {"outlier_channel", "repairable"}
    bound = diagnosed(model, data, op_type_dict={"MatMul": {"repairs": []}})
    assert {cause.kind for cause in bound.causes} == {"outlier_channel", "other_mode"}
    assert bound.rules == {"fc": {"activation": {"mode": ["dynamic"]}, "repairs": []}} and not bound.fallback
    assert output_error(model, bound.rules, data) < 0.2 * bound.output_error


def test_accumulated_errors_and_slow_ops_do_not_count_as_accuracy_causes() -> None:
    healthy = diagnosed(models.chain())
    slow = quaver.Cause("first", "slower", "it takes longer.", "Keep it in fp32")
    assert str(healthy).endswith("% of the output's power; no op is bad by itself")
    assert str(replace(healthy, output_error=0.2)).endswith(
        "output error is 20 % of the output's power; no op is bad by itself, the errors of all add up"
    )
    assert "; no op is bad by itself; 1 op(s) slower than in fp32\n" in str(replace(healthy, causes=(slow,)))
    bad = replace(slow, kind="unexplained")
    assert "; 1 cause(s) found; 1 op(s) slower than in fp32\n" in str(replace(healthy, causes=(bad, slow)))
    assert str(replace(healthy, causes=(bad,) * 25)).endswith("\n- ... and 5 more")


def test_a_repair_is_advised_with_the_rule_for_all_readers_of_the_tensor() -> None:
    """Two channels behind a normalization stand out, under weights that make them count as much as others."""
    net, large = models.Net(channels=2, size=32), np.ones(32, np.float32)
    large[[3, 11]] = 60, 40
    norm = net.add("LayerNormalization", "norm", "x", large, np.zeros(32, np.float32))
    rng = np.random.default_rng(0)
    weights = [(rng.normal(size=(32, 16)) / large[:, None]).astype(np.float32) for _ in range(2)]
    model = net.model(*(net.add("MatMul", f"fc{at}", norm, weight) for at, weight in enumerate(weights)))
    data = rng.normal(size=(16, 2, 32, 32)).astype(np.float32)
    causes = [cause for cause in diagnosed(model, data).causes if cause.kind == "repairable"]
    assert {cause.op for cause in causes} == {"fc0", "fc1"}
    assert all(cause.sentence.startswith("smoothing would cut this op's error ") for cause in causes)
    (spelled,) = causes[0].rules["fc0"]["repairs"]
    assert causes[0].rules == {name: {"repairs": [spelled]} for name in ("fc0", "fc1")}
    assert output_error(model, causes[0].rules, data) < 0.3 * output_error(model, {}, data)
