"""Causes on the TensorFlow side: the right op and channel where something is wrong, and silence where nothing is."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import diagnosis_networks as nets
import litert_models as models
import numpy as np
import pytest

import quaver
from quaver.adapters.litert.adapter import LiteRTAdapter
from quaver.adapters.litert.run.session import Session
from quaver.adapters.options import AdapterOptions
from quaver.engine.inspection.diagnose import DiagnosisOptions, examine
from quaver.engine.observers import silent
from quaver.rules import apply_rules
from quaver.space import TuningSpace

ONE_SCALE = {"CONV_2D": {"weight": {"granularity": ["per_tensor"]}}}


def diagnosed(model: Any, data: Any = None, quantized: Any = None, **settings: Any) -> quaver.Diagnosis:
    data = nets.images() if data is None else data
    return quaver.diagnose(model, quantized, data, threads=1, timing=False, **settings)


def ruled(model: Any, rules: Any) -> quaver.QuantConfig:
    """The configuration that rules on types lead to, by itself: what is advised for it is not bound by them."""
    return TuningSpace(apply_rules(LiteRTAdapter.load(model, AdapterOptions()).ops(), {}, rules)).default_config()


def told(found: quaver.Diagnosis) -> set[tuple[str, str]]:
    return {(cause.op, cause.kind) for cause in found.causes}


def mended(model: Any, found: quaver.Diagnosis, data: Any = None) -> quaver.Diagnosis:
    """The same model with the rules of all causes pasted."""
    return diagnosed(model, data, op_name_dict=found.rules)


def test_a_real_network_has_no_causes(digits_model: Any) -> None:
    found = diagnosed(digits_model, models.digits()[0][:128])
    assert not found.causes and not found.rules, str(found)
    layers = [row for row in found.layers if row.tunable]
    assert len(found.activations) == len(layers) == 16 and len(found.weights) == 12
    assert all(0 < row.error < 0.01 for row in layers) and found.output_error < 1e-3


@pytest.mark.parametrize(
    "healthy", [nets.chain, nets.outlying_output_channel, lambda: nets.joined(1.0), lambda: nets.cut_apart(1.0),
                lambda: nets.logarithm(0.1), nets.flat_weight],
    ids=["chain", "a scale a channel", "joined", "cut", "log", "flat"],
)  # fmt: skip
def test_healthy_networks_have_no_causes(healthy: Any) -> None:
    found = diagnosed(healthy())
    assert not found.causes, str(found)


@pytest.mark.parametrize("block", [1, 3])
def test_channels_that_differ_are_found_in_a_real_network(block: int) -> None:
    model, data = models.trained(block), models.digits()[0][:128]
    found = diagnosed(model, data)
    ops = {f"block{block}_depthwise", f"block{block}_pointwise"}
    assert {cause.op for cause in found.causes} == ops and found.rules == dict.fromkeys(ops, "fp32")
    last = {1: 15, 3: 31}[block]
    outliers = [cause for cause in found.causes if cause.kind == "outlier_channel"]
    assert {cause.op for cause in outliers} == ops
    assert all(f"channel {last} of its" in cause.sentence for cause in outliers)
    after = mended(model, found, data)
    assert not after.causes and after.output_error < found.output_error / 100


def test_a_weight_channel_that_needs_a_scale_of_its_own_gets_the_rule_for_it() -> None:
    model = nets.outlying_output_channel()
    found = diagnosed(model, quantized=ruled(model, ONE_SCALE))
    assert told(found) == {("second", "one_weight_scale")} and "output channel 5 reach" in found.causes[0].sentence
    assert found.rules == {"second": {"weight": {"granularity": ["per_channel"]}}}
    assert not mended(model, found).causes


@pytest.mark.parametrize("factor", [1.0, 300.0])
def test_a_kernel_with_one_scale_is_explained_without_a_rule(factor: float) -> None:
    data = np.random.default_rng(0).standard_normal((64, 4, 8, nets.CHANNELS)).astype(np.float32)
    found = diagnosed(nets.batched_product(factor), data)
    dropped = [cause for cause in found.causes if cause.kind == "per_channel_dropped"]
    assert bool(dropped) is bool(found.causes) is (factor > 1)
    if dropped:
        assert "output channel 5 reach" in dropped[0].sentence
        assert "LiteRT's int8 BATCH_MATMUL takes one scale" in dropped[0].sentence
        assert found.rules == {"product": "fp32"}


def test_a_weight_outlier_in_every_output_channel_goes_to_fp32() -> None:
    model = nets.outlying_input_channel()
    found = diagnosed(model)
    assert told(found) == {("second", "weight_outlier")} and "input channel 3 reach" in found.causes[0].sentence
    assert found.rules == {"second": "fp32"} and not mended(model, found).causes


def test_an_activation_outlier_names_its_writer_and_readers() -> None:
    model = nets.outlying_activation()
    found = diagnosed(model)
    assert {("first", "outlier_channel"), ("second", "outlier_channel")} <= told(found)
    assert {cause.op for cause in found.causes} == {"first", "second"}
    assert all("channel 3 of its" in cause.sentence for cause in found.causes if cause.kind == "outlier_channel")
    # Samples are measured one by one, as in deployment: ranges per sample cut the error of the op.
    assert found.rules == {"first": "fp32", "second": {"activation": {"mode": ["dynamic"]}}}
    assert not mended(model, found).causes


def test_a_join_forces_its_scale_on_its_inputs() -> None:
    model = nets.joined(1e-3)
    found = diagnosed(model)
    assert told(found) == {("small", "shared_scale"), ("join", "shared_scale")}
    assert any("has to take the scale of join" in cause.sentence for cause in found.causes)
    assert found.rules == {"join": "fp32", "after": "fp32"} and not mended(model, found).causes


def test_a_split_keeps_the_scale_of_its_input() -> None:
    found = diagnosed(nets.cut_apart(1e-3))
    assert ("other", "shared_scale") in told(found) and "one" not in {cause.op for cause in found.causes}
    assert any("comes through SPLIT" in cause.sentence for cause in found.causes)
    assert set(found.rules) == {"whole", "one", "other"}


def test_one_sample_that_sets_the_range_is_named() -> None:
    data = nets.images()
    data[9] *= 100
    found = diagnosed(nets.chain(), data)
    few = [cause for cause in found.causes if cause.kind == "few_samples"]
    assert {cause.op for cause in few} == {"first", "second", "third"}
    assert all("number 9, sets the range" in cause.sentence for cause in few)
    # Nobody reads what the last one writes: with ranges taken for each sample its error is gone.
    assert told(found) - {(cause.op, cause.kind) for cause in few} == {("third", "other_mode")}
    assert found.rules["third"] == {"activation": {"mode": ["dynamic"]}}
    assert not mended(nets.chain(), found, data).causes


def test_an_error_amplified_by_a_float_function_is_attributed_to_the_op_before() -> None:
    found = diagnosed(nets.logarithm(10.0))
    assert told(found) == {("after", "amplified")} and "(LOG)" in found.causes[0].sentence
    assert found.rules == {"gate": "fp32"}


@pytest.mark.parametrize("factor", [1e6, 1e-6])
def test_the_ops_that_lose_by_int8_are_found(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both models are timed for real; then int8 is made a million times slower or faster, so that no load matters."""
    import keras

    measure = LiteRTAdapter.op_seconds

    def stretched(self: LiteRTAdapter, config: quaver.QuantConfig | None) -> dict[str, float]:
        seconds = measure(self, config)
        assert set(seconds) == {"", "conv", "swish"} and sum(seconds.values()) > 0
        swish = max(seconds["swish"], 1e-6) * (factor if config is not None else 1.0)
        return {"": 0.0, "conv": 1.0, "swish": swish}

    monkeypatch.setattr(LiteRTAdapter, "op_seconds", stretched)
    x = image = keras.Input((64, 64, 16), name="x")
    x = keras.layers.Conv2D(16, 1, name="conv")(x)
    model = keras.Model(image, keras.layers.Activation("hard_silu", name="swish")(x))
    data = np.random.default_rng(0).standard_normal((4, 64, 64, 16)).astype(np.float32)
    config = ruled(model, {"HARD_SWISH": "int8"})
    found = quaver.diagnose(model, config, data, threads=1)
    slower = [(cause.op, dict(cause.rules)) for cause in found.causes if cause.kind == "slower"]
    assert slower == ([("swish", {"swish": "fp32"})] if factor > 1 else [])
    demanded = quaver.diagnose(model, config, data, threads=1, op_type_dict={"HARD_SWISH": "int8"})
    assert not demanded.rules
    assert all("Change your rules: they do not allow to keep it in fp32" in str(cause) for cause in demanded.causes)


def test_an_op_that_writes_nan_is_reported(tmp_path: Path) -> None:
    found = diagnosed(nets.broken())
    assert (
        told(found) == {("after", "not_finite")}
        and "already writes NaN or infinity in the float model" in found.causes[0].sentence
    )
    with open(found.save(tmp_path)["activations_table.csv"], newline="") as file:
        rows = {row["OP name"]: row for row in csv.DictReader(file)}
    assert rows["after"]["Activation min"] == "" and rows["scores"]["Activation min"] != ""


def test_an_op_that_no_sample_reaches_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = diagnosed(nets.never_reached())
    assert told(found) == {("rare", "no_samples")} and not found.rules
    assert "XNNPACK cannot run the model" in caplog.text
    with open(found.save(tmp_path)["activations_table.csv"], newline="") as file:
        first = next(csv.DictReader(file))
    assert first == {"OP name": "rare", "MSE": "", "Activation min": "", "Activation max": ""}


def test_a_weight_without_variance_is_reported() -> None:
    row = next(row for row in diagnosed(nets.flat_weight()).weights if row.op == "second")
    assert (row.before.low, row.before.high, row.before.variance, row.before.deviation) == (0.25, 0.25, 0.0, 0.0)
    assert row.mse == pytest.approx(0, abs=1e-9) and row.after.variance == 0.0


def test_rules_never_ask_for_unsupported_choices() -> None:
    """Every rule of every cause of networks that are bad in many ways fits the ops' choices."""
    bad = [
        (models.trained(1, 3), models.digits()[0][:64], {}),
        (nets.outlying_output_channel(), nets.images(), ONE_SCALE),
        (nets.outlying_activation(), nets.images(), {"CONV_2D": {"activation": {"algorithm": ["entropy"]}}}),
        (nets.joined(1e-3), nets.images(), {}),
    ]
    for model, data, rules in bad:
        found = diagnosed(model, data, op_type_dict=rules)
        assert found.causes
        ops = LiteRTAdapter.load(model, AdapterOptions(threads=1)).ops()
        for cause in found.causes:
            chosen = {op.name: op for op in apply_rules(ops, dict(cause.rules))}
            for name, rule in cause.rules.items():
                assert chosen[name].quantizable is (rule != "fp32"), (cause, name)


def test_contexts_describe_the_surroundings_of_an_op() -> None:
    adapter, space = models.opened(models.mixed())
    contexts = adapter.inspect_quantized(space.default_config()).contexts()
    assert set(contexts) == set(space.quantizable)
    gate = contexts["gate"]
    assert [tensor.origin for tensor in gate.reads] == ["conv"] and gate.reads[0].moved == ("MAX_POOL_2D",)
    assert set(gate.reads[0].ranges) == {"minmax", "percentile", "entropy"} and gate.axis == -1
    assert gate.before == ("conv",) and gate.between == ("MAX_POOL_2D",)
    assert {tensor.origin for tensor in contexts["join"].reads} == {"conv", "point", "gate/Sigmoid"}
    assert contexts["swish"].reads == () and contexts["swish"].writes is None  # fp32 by default
    for context in contexts.values():
        for tensor in (*context.reads, *([context.writes] if context.writes else [])):
            scale, zero_point = float(tensor.parameters.scale), int(tensor.parameters.zero_point)
            assert tensor.parameters.limits == pytest.approx(((-128 - zero_point) * scale, (127 - zero_point) * scale))


def test_a_run_diagnoses_itself(digits_model: Any, tmp_path: Path) -> None:
    result = quaver.fit(
        models.trained(1), calib_dataloader=models.digits()[0][:64], eval_func=models.accuracy, diagnosis=True,
        workspace=tmp_path, max_trials=3, threads=1,
    )  # fmt: skip
    assert result.diagnosis is not None and {"block1_pointwise"} <= {cause.op for cause in result.diagnosis.causes}
    assert {"activations_table.csv", "weights_table.csv", "recipe.json"} <= {path.name for path in tmp_path.iterdir()}
    again = quaver.diagnose(models.trained(1), result, models.digits()[0][:64], timing=False, threads=1)
    assert again.precisions == {name: str(pick.precision) for name, pick in result.best.config.items()}


def test_each_sample_runs_once_through_each_model(digits_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The float model, the quantized model, and each op by itself; none is kept, so that memory does not grow."""
    adapter, space = models.opened(digits_model, models.digits()[0][:40])
    counts: dict[Session, int] = {}
    invoke = Session.invoke

    def counted(self: Session, feed: Any) -> None:
        counts[self] = counts.get(self, 0) + len(next(iter(feed.values())))
        invoke(self, feed)

    monkeypatch.setattr(Session, "invoke", counted)
    config = space.default_config()
    found = examine(
        adapter,
        adapter.inspect_quantized(config),
        config,
        models.digits()[0][:40],
        DiagnosisOptions(timing=False),
        silent,
    )
    kept = sum(
        len(next(iter(feed.values()))) for feed in adapter.probe_samples
    )  # these go through repaired ops besides
    whole = [count for count in counts.values() if count != kept]
    assert found.samples == 40 != kept
    assert whole == [*[40] * (2 + len(config.int8_ops)), 4]  # four samples tell if the outputs have parts


def test_the_memory_limit_of_batches_does_not_change_the_figures(digits_model: Any) -> None:
    data = models.digits()[0][:60]
    whole = diagnosed(digits_model, data)
    parts = diagnosed(digits_model, [data[:7], data[7:8], data[8:]])
    for row, other in zip(whole.layers, parts.layers, strict=True):
        assert row.op == other.op and row.local["mean_squared_error"] == pytest.approx(
            other.local["mean_squared_error"], rel=1e-6, nan_ok=True
        )
