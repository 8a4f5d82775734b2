"""`check_strategy` passes every strategy of ours, and finds each fault in one that is not as it should be."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from quaver import Probe, QuantConfig, Strategy, TuningSpace
from quaver.ops import FLOAT, INT8, OpConfig
from quaver.strategies import Bayesian, Random, strategies
from quaver.testing import SimulatedModel, check_strategy, drive


@pytest.mark.parametrize("name", strategies())
def test_every_strategy_of_ours_passes(name: str) -> None:
    check_strategy(name)


def test_bayesian_proposes_lists_and_repeats_itself() -> None:
    model = SimulatedModel(ops=4, culprits=2, noise=0.01)
    one, two = (drive(Bayesian(batch=3), model, max_trials=12, stop_at_first=False) for _ in range(2))
    assert one == two
    assert len(one) == 12


def strategy(
    propose: Callable[..., Any],
    worst: Callable[[TuningSpace], Any] = lambda space: None,
    first: Callable[[TuningSpace], Any] | None = None,
) -> type[Strategy]:
    class Mine(Strategy):
        name = "mine"

        def propose(self, space: TuningSpace, probe: Probe) -> Any:
            return propose(self, space, probe)

        def worst_case(self, space: TuningSpace) -> Any:
            return worst(space)

        def first_success(self, space: TuningSpace) -> Any:
            return (first or worst)(space)

    return Mine


def worst_first(self: Strategy, space: TuningSpace, probe: Probe) -> Any:
    """The example of the documentation, which is as it should be."""
    config = space.default_config()
    yield config
    for op in probe.ranking():
        config = config.fallback(op)
        yield config


def all_pairs_at_once(self: Strategy, space: TuningSpace, probe: Probe) -> Any:
    start = space.default_config()
    trials = yield [start, *(start.fallback(*names) for names in itertools.combinations(space.tunable, 2))]
    yield [trial.config.fallback(*space.tunable[:3]) for trial in trials if not trial.met][:2] or start


def test_a_strategy_that_proposes_lists_passes() -> None:
    check_strategy(strategy(all_pairs_at_once))
    check_strategy(Bayesian(batch=3))


def hands_over(self: Strategy, space: TuningSpace, probe: Probe) -> Any:
    if self.objective == "latency":
        yield space.default_config()
    yield from Random().propose(space, probe)


def test_a_strategy_that_hands_over_to_another_passes() -> None:
    check_strategy(strategy(hands_over))


def test_the_example_of_the_documentation_passes() -> None:
    check_strategy(strategy(worst_first))
    check_strategy(strategy(worst_first, lambda space: 1 + len(space.tunable))())


def no_generator(self: Strategy, space: TuningSpace, probe: Probe) -> Any:
    return [space.default_config()]


def breaks_at_once(self: Strategy, space: TuningSpace, probe: Probe) -> Any:
    return probe.nothing


def proposes_nothing(self: Strategy, space: TuningSpace, probe: Probe) -> Any:
    yield from ()


def draws_from_the_clock(self: Strategy, space: TuningSpace, probe: Probe) -> Any:
    chance = random.SystemRandom()
    while True:
        yield space.default_config().fallback(*chance.sample(space.tunable, chance.randrange(len(space.tunable) + 1)))


def draws_from_the_global_generator(self: Strategy, space: TuningSpace, probe: Probe) -> Any:
    random.seed(self.seed)
    yield space.default_config().fallback(*random.sample(space.tunable, random.randrange(len(space.tunable) + 1)))


def draws_from_the_global_generator_of_numpy(self: Strategy, space: TuningSpace, probe: Probe) -> Any:
    np.random.seed(self.seed)
    yield space.default_config()


def ends_early_the_second_time(self: Strategy, space: TuningSpace, probe: Probe) -> Any:
    yield space.default_config()
    if len(space.tunable) < 12 or not getattr(type(self), "run", False):
        type(self).run = True  # type: ignore[attr-defined]
        for name in space.tunable:
            yield space.default_config().fallback(name)


def goes_round_in_circles(self: Strategy, space: TuningSpace, probe: Probe) -> Any:
    while True:
        yield space.default_config()


def leaves_the_space(self: Strategy, space: TuningSpace, probe: Probe) -> Any:
    yield QuantConfig({op.name: OpConfig(INT8, "guesswork") for op in space.ops})


def forgets_ops(self: Strategy, space: TuningSpace, probe: Probe) -> Any:
    yield QuantConfig({space.ops[0].name: space.ops[0].choices[0]})


def forgets_that_rules_forbid_fp32(self: Strategy, space: TuningSpace, probe: Probe) -> Any:
    yield space.default_config().fallback(*space.quantizable)


def forgets_that_rules_forbid_int8(self: Strategy, space: TuningSpace, probe: Probe) -> Any:
    yield QuantConfig({op.name: next(choice for choice in op.choices if choice != FLOAT) for op in space.ops})


def proposes_an_empty_list(self: Strategy, space: TuningSpace, probe: Probe) -> Any:
    yield space.default_config()
    yield []


def proposes_a_set(self: Strategy, space: TuningSpace, probe: Probe) -> Any:
    yield {space.default_config()}


def takes_a_list_for_a_trial(self: Strategy, space: TuningSpace, probe: Probe) -> Any:
    trial = yield [space.default_config(), space.default_config().fallback(*space.tunable[:1])]
    if not trial.met:
        yield space.default_config()


def counts_on_a_score(self: Strategy, space: TuningSpace, probe: Probe) -> Any:
    trial = yield space.default_config()
    if trial.loss > 0.1:
        yield trial.config.fallback(*space.tunable)


def counts_on_two_ops(self: Strategy, space: TuningSpace, probe: Probe) -> Any:
    yield space.default_config().fallback(sorted(probe.ranking())[0])


def asks_for_more_than_it_said(self: Strategy, space: TuningSpace, probe: Probe) -> Any:
    yield from worst_first(self, space, probe)


def changes_the_space(self: Strategy, space: TuningSpace, probe: Probe) -> Any:
    yield space.default_config()
    space.ops = space.ops[::-1]


def narrows_the_choices(self: Strategy, space: TuningSpace, probe: Probe) -> Any:
    yield space.default_config()
    space._choices["op000"] = frozenset([FLOAT])


def knows_the_probe_too_well(self: Strategy, space: TuningSpace, probe: Any) -> Any:
    yield space.default_config()
    yield space.default_config().fallback(*(name for name in probe._model.guilty if space[name].tunable))


def does_not_end_when_closed(self: Strategy, space: TuningSpace, probe: Probe) -> Any:
    try:
        yield space.default_config()
    except GeneratorExit:
        yield space.default_config().fallback(*space.tunable)


FAULTS = {
    no_generator: "strategy mine.*: propose must be a generator",
    breaks_at_once: "propose raises AttributeError",
    proposes_nothing: "strategy mine, .*, proposes nothing",
    draws_from_the_clock: "is not deterministic: with the same seed and the same answers, a second run",
    draws_from_the_global_generator: "uses the global random generators",
    draws_from_the_global_generator_of_numpy: "uses the global random generators",
    goes_round_in_circles: "proposed nothing new 1000 times in a row, so it would never end",
    leaves_the_space: "op 'op000' cannot run as 'int8 guesswork per_channel asym'",
    forgets_ops: "does not cover this model's ops: op 'op001' is missing",
    forgets_that_rules_forbid_fp32: "with ops that rules force to int8: op 'op000' cannot run as 'fp32'",
    forgets_that_rules_forbid_int8: "with ops that rules force to fp32: when it is sent None",
    proposes_an_empty_list: "it proposes an empty list",
    proposes_a_set: "must yield QuantConfig objects, not set",
    takes_a_list_for_a_trial: "when it is sent a list of 2 trials, it raises AttributeError",
    counts_on_a_score: "when every trial fails: when it is sent a failed trial, which has no score",
    counts_on_two_ops: "force every op to int8: when it is sent None at the start, it raises IndexError",
    changes_the_space: "changes the space",
    narrows_the_choices: "changes the space",
    knows_the_probe_too_well: "it raises AttributeError: .* has no attribute '_model'",
    does_not_end_when_closed: "when it is closed, it raises",
}


@pytest.mark.parametrize("propose", FAULTS, ids=lambda propose: propose.__name__)
def test_a_strategy_that(propose: Callable[..., Any]) -> None:
    with pytest.raises(AssertionError, match=FAULTS[propose]):
        check_strategy(strategy(propose))


def test_a_strategy_that_asks_for_more_than_its_worst_case() -> None:
    with pytest.raises(AssertionError, match="needs more evaluations than its worst_case of 5"):
        check_strategy(strategy(asks_for_more_than_it_said, lambda space: 5))


def most_harmless_first(self: Strategy, space: TuningSpace, probe: Probe) -> Any:
    config = space.default_config()
    yield config
    for op in reversed(probe.ranking()):
        config = config.fallback(op)
        yield config


def test_a_strategy_that_succeeds_later_than_it_said() -> None:
    late = "on a model with two culprits, first succeeds at trial 3, but its first_success is 2"
    with pytest.raises(AssertionError, match=late):
        check_strategy(strategy(worst_first, lambda space: 1 + len(space.tunable), lambda space: 2))
    # A strategy without a natural end runs for as long as its first_success announces.
    with pytest.raises(AssertionError, match="first succeeds at trial 13, but its first_success is 12"):
        check_strategy(strategy(most_harmless_first, first=lambda space: 12))


def test_a_first_success_beyond_the_worst_case() -> None:
    with pytest.raises(AssertionError, match=r"first_success of strategy mine, .* is 14, which is more than its"):
        check_strategy(strategy(worst_first, lambda space: 13, lambda space: 14))


@pytest.mark.parametrize("count", [-1, "many", 2.5])
def test_counts_that_are_no_numbers(count: Any) -> None:
    with pytest.raises(AssertionError, match=r"worst_case of strategy mine must return a whole number or None, not "):
        check_strategy(strategy(worst_first, lambda space: count))
    with pytest.raises(
        AssertionError, match=r"first_success of strategy mine must return a whole number or None, not "
    ):
        check_strategy(strategy(worst_first, first=lambda space: count))


def test_a_strategy_that_remembers_its_last_run() -> None:
    with pytest.raises(AssertionError, match="it ends after 13 trials in one run and after 1 in another"):
        check_strategy(strategy(ends_early_the_second_time, lambda space: 100)())


class Holding(Strategy):
    """Holds something that its runs do something to."""

    name = "holding"

    def __init__(self, held: Any, use: Callable[[Any], Any]) -> None:
        self.held, self.use = held, use

    def propose(self, space: TuningSpace, probe: Probe) -> Any:
        self.held = self.use(self.held) or self.held
        yield space.default_config()


@pytest.mark.parametrize(
    ("held", "use"), [([], lambda held: held.append(1)), (random.Random(1), lambda held: held.random())]
)
def test_an_instance_that_is_changed_by_a_run(held: Any, use: Callable[[Any], Any]) -> None:
    with pytest.raises(AssertionError, match="changes 'held' of its own instance, so a second run"):
        check_strategy(Holding(held, use))


@pytest.mark.parametrize("held", [3, "abc", lambda: 1, np.zeros(3)])
def test_an_instance_whose_copy_alone_is_changed(held: Any) -> None:
    mine = Holding(held, lambda held: [held])
    check_strategy(mine)
    assert mine.held is held


class TooEarly(Strategy):
    """Takes its seed from before the run."""

    name = "too_early"

    def __init__(self) -> None:
        self.early = self.seed

    def propose(self, space: TuningSpace, probe: Probe) -> Any:
        rng = random.Random(self.early)
        for _ in range(20):
            yield space.default_config().fallback(*rng.sample(space.tunable, rng.randrange(len(space.tunable) + 1)))


def test_a_seed_that_is_read_too_early() -> None:
    early = r"inside another strategy \(`yield from`\), proposes other configurations than on its own"
    with pytest.raises(AssertionError, match=early):
        check_strategy(TooEarly)
