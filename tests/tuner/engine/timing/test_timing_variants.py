"""What ops take in each way they can run, from profiles of a few configurations."""

from __future__ import annotations

import pytest

from quaver.engine.timing.time_model import Seconds, fused_ops, split_fused
from quaver.engine.timing.variants import APART, Plan, times_for, timing_key
from quaver.ops import FLOAT, INT8, Op, OpConfig, QuantConfig
from quaver.space import TuningSpace
from quaver.time_model import Edge, TimeModel

STATIC, DYNAMIC, WEIGHTS = OpConfig(INT8), OpConfig(INT8, mode="dynamic"), OpConfig(INT8, mode="weight_only")
SPACE = TuningSpace(
    [
        Op("conv", "Conv", ("conv",), (STATIC, FLOAT, WEIGHTS)),
        Op("swish", "Mul", ("swish",), (STATIC, FLOAT)),
        Op("gemm", "Gemm", ("gemm",), (STATIC, DYNAMIC, WEIGHTS, FLOAT)),
        Op("lstm", "LSTM", ("lstm",), (DYNAMIC, FLOAT)),
    ]
)
PLAN = Plan(SPACE, ("swish",))
BETWEEN = (Edge("conv", ("swish",), 0), Edge("swish", ("gemm",), 0))
FP32 = {"": 2.0, "conv": 4.0, "swish": 0.0, "gemm": 3.0, "lstm": 1.0}
# In the order of what the plan profiles: all static, weights alone where it can be, dynamic, a HardSwish left in fp32.
PROFILES: list[Seconds] = [
    FP32,
    {"": 2.0, "conv": 1.0, "swish": 0.5, "gemm": 1.0, "lstm": 0.5},
    {"": 2.0, "conv": 6.0, "swish": 0.5, "gemm": 2.0, "lstm": 0.5},
    {"": 2.0, "conv": 1.0, "swish": 0.5, "gemm": 0.8, "lstm": 0.5},
    {"": 2.0, "conv": 1.0, "swish": 0.7, "gemm": 1.0, "lstm": 0.5},
]


def time_model(profiles: list[Seconds] = PROFILES) -> tuple[TimeModel, dict[str, Seconds]]:
    whole = [sum(profile.values()) for profile in profiles]
    return PLAN.make_time_model(profiles, [*whole, *(5.0 for _ in PLAN.timed)], BETWEEN)


def test_ways_are_told_by_precision_and_mode() -> None:
    assert [timing_key(choice) for choice in (STATIC, DYNAMIC, WEIGHTS)] == ["int8", "int8 dynamic", "int8 weight_only"]
    assert [str(config["gemm"].mode) for config in PLAN.profiled] == ["static", "weight_only", "dynamic", "static"]


def test_each_way_has_its_own_seconds_also_where_it_is_the_default() -> None:
    _, known = time_model()
    assert known["int8 dynamic"] == pytest.approx({"gemm": 0.8, "lstm": 0.5})
    assert known["int8 weight_only"] == pytest.approx({"conv": 6.0, "gemm": 2.0})
    assert known[APART] == pytest.approx({"swish": 0.7})


def test_a_configuration_is_priced_by_the_ways_it_takes() -> None:
    model, known = time_model()
    config = SPACE.default_config().replace({"conv": WEIGHTS, "gemm": DYNAMIC, "lstm": FLOAT})
    quantized = times_for(model, config, known).quantized
    assert quantized == pytest.approx({"conv": 6.0, "swish": 0.5, "gemm": 0.8, "lstm": 0.5})
    assert times_for(model, config, {}).quantized["conv"] == pytest.approx(FP32["conv"])


def test_what_is_in_the_kernel_of_the_op_before_takes_time_once_that_is_reduced() -> None:
    assert fused_ops(SPACE.default_config(), FP32) == ["swish"]
    model, _ = time_model()
    free = (0.0, 0.0, 0.0, 0.0)
    model = TimeModel(model.fp32, model.quantized, model.rest, model.edges, free)
    whole = SPACE.default_config()
    assert model.predict(whole.fallback("swish")) - model.predict(whole) == pytest.approx(0.7 - 0.5)
    assert model.predict(whole.fallback("swish", "conv")) - model.predict(whole) == pytest.approx(4.0 - 1.0 - 0.5)
    # Alone, without the conv in fp32, it would seem to be free.
    assert model.fastest(whole, list(whole))["swish"] == STATIC


def test_an_op_that_has_a_kernel_of_its_own_there_is_not_told_apart() -> None:
    assert split_fused(BETWEEN, {**FP32, "swish": 0.3}, {"swish": 0.7}) == BETWEEN


def test_what_belongs_to_no_op_counts_for_the_ops_of_the_model_that_has_more_of_it() -> None:
    model, _ = time_model([{**FP32, "": 4.0}, *PROFILES[1:]])
    assert model.rest == pytest.approx(2.0)
    assert model.rest + sum(model.fp32.values()) == pytest.approx(12.0)
    assert model.predict(QuantConfig(dict.fromkeys(FP32.keys() - {""}, FLOAT))) == pytest.approx(12.0)
