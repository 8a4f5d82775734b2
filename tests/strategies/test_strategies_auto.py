"""What `auto` does where int8 hardly pays."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property

import pytest

from quaver.engine.run.proposals import ProposalQueue
from quaver.ops import QuantConfig
from quaver.probe import OpTime
from quaver.strategies import make_strategy
from quaver.strategies.prepared import prepared
from quaver.testing import SimulatedModel, drive
from quaver.testing.simulated import SimulatedProbe
from quaver.time_model import Edge, TimeModel
from quaver.trial import Trial, TrialState


class OneThatPays(SimulatedModel):
    """All ops but the first take longer in int8."""

    @property
    def seconds(self):  # type: ignore[no-untyped-def,override]
        return {
            name: OpTime(time.fp32, (0.5 if name == "op000" else 1.5) * time.fp32)
            for name, time in super().seconds.items()
        }


@pytest.mark.parametrize("ops", [3, 20])
def test_if_the_one_op_that_pays_fails_the_others_are_tried(ops: int) -> None:
    trials = drive("auto", OneThatPays(ops=ops, culprits=["op000"]))
    assert set(trials[0].config.quantized_ops) == {"op000"}
    assert trials[-1].met and "op000" not in trials[-1].config.quantized_ops


def test_of_the_others_those_that_fail_fall_back() -> None:
    trials = drive("auto", OneThatPays(ops=20, culprits=["op000", "op007", "op011"]))
    assert trials[-1].met
    assert not {"op000", "op007", "op011"} & set(trials[-1].config.quantized_ops)


def test_when_the_objective_is_latency_an_evaluation_is_not_spent_on_another_calibration() -> None:
    model = SimulatedModel(ops=20, culprits=2, damage=0.006, relief={"percentile": 0.9})
    first, second, *_ = drive("auto", model)
    assert not first.met
    assert second.config.quantized_count < first.config.quantized_count


class ConvertingProbe(SimulatedProbe):
    """A probe of a chain of ops between which conversions take about as long as an op."""

    def time_model(self, config: QuantConfig) -> TimeModel:
        model = super().time_model(config)
        edges = tuple(Edge(first, (second,), 100_000) for first, second in itertools.pairwise(model.fp32))
        return replace(model, edges=edges, costs=(5e-9, 5e-9, 2e-6, 2e-6))

    def speed(self, config: QuantConfig) -> float:
        return self.time_model(config).relative(config)


class Converting(SimulatedModel):
    """A model with such a probe."""

    @cached_property
    def probe(self) -> ConvertingProbe:  # type: ignore[override]
        return ConvertingProbe(self)


def until_the_search_may_end(model: SimulatedModel) -> list[Trial]:
    """Return the trials of `auto` without a timeout: until one meets the criterion and the strategy is satisfied."""
    queue = ProposalQueue(prepared(make_strategy("auto"), seed=0, objective="latency"), model.space, model.probe)
    trials: list[Trial] = []
    while True:
        queue.ask()
        if queue.over or (not queue.continues and any(trial.met for trial in trials)):
            queue.close()
            return trials
        for config in queue.waiting:
            score = model.score(config)
            loss = model.baseline - score
            trials.append(Trial(len(trials) + 1, config, TrialState.COMPLETE, score, loss=loss, met=loss <= 0.008))
            queue.answer(trials[-1])


def speeds(model: SimulatedModel, trials: Iterable[Trial]) -> list[float]:
    return [model.probe.speed(trial.config) for trial in trials if trial.met]


def test_after_a_success_that_is_slower_than_fp32_the_search_goes_on_to_a_faster_one() -> None:
    model = Converting(ops=24, culprits=8, ranking="weak", seed=24)
    first, last = speeds(model, until_the_search_may_end(model))
    assert first > 1.0 and last < 0.96


def test_it_gives_up_after_a_few_trials_of_configurations_that_are_faster() -> None:
    model = Converting(ops=24, culprits=8, ranking="weak", seed=31)
    trials = until_the_search_may_end(model)
    after = trials[next(trial.number for trial in trials if trial.met) :]
    assert speeds(model, trials)[0] > 1.0 and 0 < len(after) <= 4
    assert all(model.probe.speed(trial.config) < 1.0 for trial in after)


def test_after_a_success_that_is_faster_it_ends() -> None:
    model = Converting(ops=24, culprits=1)
    trials = until_the_search_may_end(model)
    assert trials[-1].met and len(speeds(model, trials)) == 1
