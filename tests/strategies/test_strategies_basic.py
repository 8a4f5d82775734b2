"""`basic`: what it proposes, in which order, and how much that costs at most."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake import ENTROPY, MINMAX, PER_TENSOR, FakeFloat, FakeModel, drive, quality
from hypothesis import given, settings
from hypothesis import strategies as st

from quaver import Budget, Criterion, Op, QuantConfig, StopReason, Trial, TrialState, TuningSpace
from quaver.ops import FLOAT, INT8, OpConfig
from quaver.strategies import Basic

WEIGHT_ONLY = OpConfig(INT8, mode="weight_only")
HOPELESS = Criterion(relative=None, absolute=0.0)


def all_of(config: QuantConfig, names: str, pick: Any) -> QuantConfig:
    return config.replace(dict.fromkeys(names, pick))


def test_it_proposes_types_then_single_ops_then_ops_added_up(tmp_path: Path) -> None:
    model = FakeFloat({"a": 0.1, "b": 0.3, "c": 0.2}, kinds={"b": "Gemm"}, choices=(MINMAX, ENTROPY, PER_TENSOR, FLOAT))
    start = TuningSpace(model.ops).default_config()
    outcome = drive(model, Basic(), tmp_path / "h", criterion=HOPELESS)
    assert outcome.configs == [
        start,
        # the other calibration and granularity, for Conv (two ops) before Gemm (one)
        all_of(start, "ac", ENTROPY),
        all_of(start, "ac", PER_TENSOR),
        all_of(start, "b", ENTROPY),
        all_of(start, "b", PER_TENSOR),
        # each op alone, in graph order
        start.fallback("a"),
        start.fallback("b"),
        start.fallback("c"),
        # the one that helped most first, and the others with it
        start.fallback("b", "c"),
        start.fallback("a", "b", "c"),
    ]


def test_what_scores_best_for_one_type_is_kept_for_all_that_follows(tmp_path: Path) -> None:
    model = FakeFloat({"a": 0.1, "b": 0.1}, kinds={"b": "Gemm"}, relief={"entropy": 0.5, "per_tensor": 2.0})
    outcome = drive(model, Basic(), tmp_path / "h", criterion=HOPELESS)
    start = outcome.configs[0]
    assert outcome.configs[3] == all_of(start, "ab", ENTROPY)
    assert all(config["a"] in (ENTROPY, FLOAT) for config in outcome.configs[3:])
    assert outcome.configs[-1] == start.fallback("a", "b")


@pytest.mark.parametrize("objective", ["latency", "size"])
def test_a_mode_behind_fp32_is_for_those_who_want_it_small(objective: str, tmp_path: Path) -> None:
    model = FakeFloat({"a": 0.1, "b": 0.3}, choices=(MINMAX, FLOAT, WEIGHT_ONLY))
    strategy = Basic()
    strategy.objective = objective
    outcome = drive(model, strategy, tmp_path / "h", criterion=HOPELESS)
    assert any(WEIGHT_ONLY in config.values() for config in outcome.configs) == (objective == "size")


def test_failed_trials_are_no_reason_to_change_anything(tmp_path: Path) -> None:
    model = FakeFloat({"a": 0.1, "b": 0.3}, relief={"entropy": 0.0})

    def no_entropy(built: FakeModel) -> float:
        assert built.config is None or ENTROPY not in built.config.values()
        return quality(built)

    outcome = drive(model, Basic(), tmp_path / "h", criterion=HOPELESS, eval_func=no_entropy)
    assert outcome.trials[1].failed
    assert all(ENTROPY not in config.values() for config in outcome.configs[2:])


def test_it_goes_on_when_all_int8_itself_fails(tmp_path: Path) -> None:
    model = FakeFloat({"a": 0.0, "b": 0.0}, choices=(MINMAX, FLOAT))

    def needs_b_in_fp32(built: FakeModel) -> float:
        assert built.config is None or "b" in built.config.fp32_ops
        return quality(built)

    outcome = drive(model, Basic(), tmp_path / "h", eval_func=needs_b_in_fp32)
    assert [trial.failed for trial in outcome.trials] == [True, True, False]
    assert outcome.best is not None and outcome.best.config.fp32_ops == ("b",)


def test_ops_that_must_stay_as_they_are_are_left_alone(tmp_path: Path) -> None:
    model = FakeFloat(dict.fromkeys("abc", 0.1), choices=(MINMAX, FLOAT))
    a, b, c = model.ops
    space = TuningSpace([Op("a", "Conv", a.nodes, (MINMAX,)), Op("b", "Conv", b.nodes, (FLOAT,)), c])
    outcome = drive(model, Basic(), tmp_path / "h", criterion=HOPELESS, space=space)
    assert [config.fp32_ops for config in outcome.configs] == [("b",), ("b", "c")]


DAMAGES = st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0.001, 0.1), min_size=1)
KINDS = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from(["Conv", "Gemm", "Add"]))


@settings(max_examples=40, deadline=None)
@given(DAMAGES, KINDS, st.dictionaries(st.sampled_from(["entropy", "per_tensor"]), st.floats(0.5, 2)))
def test_in_the_hopeless_case_it_needs_just_what_it_says_it_needs_at_most(
    damage: dict[str, float], kinds: dict[str, str], relief: dict[str, float]
) -> None:
    model = FakeFloat(damage, kinds, relief)
    space = TuningSpace(model.ops)
    # No loop and no disk: answer each proposal at once.
    proposals = Basic().propose(space, None)  # type: ignore[arg-type]
    asked: list[QuantConfig] = []
    config: Any = next(proposals)
    while True:
        asked.append(space.check(config))
        loss = model.score - model.quality(config)
        try:
            config = proposals.send(Trial(len(asked), config, TrialState.COMPLETE, model.score - loss, loss))
        except StopIteration:
            break
    assert len(set(asked)) == len(asked) == Basic().worst_case(space)
    assert not asked[-1].int8_ops


def test_the_worst_case_follows_the_formula() -> None:
    model = FakeFloat(dict.fromkeys("abcde", 0.1), kinds={"a": "Gemm"})
    # entropy and per_tensor for each of two types, then n, then n - 1
    assert Basic().worst_case(TuningSpace(model.ops)) == 1 + 2 * 2 + 5 + 4


@pytest.mark.parametrize("culprit", "abcd")
def test_one_guilty_op_is_found(culprit: str, tmp_path: Path) -> None:
    model = FakeFloat({**dict.fromkeys("abcd", 0.001), culprit: 0.3})
    outcome = drive(model, Basic(), tmp_path / "h")
    assert outcome.reason is StopReason.MET
    assert outcome.best is not None and outcome.best.config.fp32_ops == (culprit,)


def test_an_easy_model_takes_one_trial(tmp_path: Path) -> None:
    outcome = drive(FakeFloat(dict.fromkeys("abcd", 0.001)), Basic(), tmp_path / "h", budget=Budget())
    assert (outcome.reason, len(outcome.evaluated)) == (StopReason.MET, 2)
