"""Does a strategy keep its contract? For authors of strategies, and for our own."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from quaver.criterion import Criterion
from quaver.errors import StrategyError
from quaver.ops import QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies import Proposals, Strategy, make_strategy, prepared
from quaver.target_budget import TargetBudget
from quaver.testing.drive import drive
from quaver.testing.simulated import SimulatedModel
from quaver.testing.strict_probe import Broken, StrictStrategy
from quaver.trial import Trial


def state_of(strategy: Strategy) -> dict[str, object]:
    """What an instance holds: as bytes, or the object itself where that cannot be."""
    state: dict[str, object] = {}
    for name, value in vars(strategy).items():
        try:
            state[name] = pickle.dumps(value)
        except Exception:  # pickle raises all sorts
            state[name] = value
    return state


def changed(before: dict[str, object], after: dict[str, object]) -> list[str]:
    """The names of what is another object, or in another state."""

    def same(one: object, other: object) -> bool:
        return one == other if isinstance(one, bytes) and isinstance(other, bytes) else one is other

    return [
        repr(name)
        for name in dict.fromkeys((*before, *after))
        if name not in before or name not in after or not same(before[name], after[name])
    ]


def picture_of(space: TuningSpace) -> object:
    """All that a space holds."""
    return {key: dict(value) if isinstance(value, dict) else value for key, value in vars(space).items()}


def global_rng() -> object:
    """The states of the generators of `random` and numpy that everybody shares."""
    kind, keys, *rest = np.random.get_state(legacy=True)
    return random.getstate(), kind, np.asarray(keys).tobytes(), *rest


@contextmanager
def global_rng_restored() -> Iterator[None]:
    """In the end, the shared generators are where they were."""
    before = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])


# A strategy that names no worst case is watched for so many trials; one that does, up to the larger number.
SOME = 8
MANY = 300
# So many of the models are run twice.
AGAIN = 2
# What no strategy would take for granted.
SEED = 9527
OBJECTIVE = "size"


def check_strategy(strategy: str | type[Strategy] | Strategy) -> None:
    """Run a strategy on small simulated models of all sorts and see whether it keeps the contract of `Strategy`.

    That is: it proposes configurations of the space, alone or in lists; the same ones for the same seed, also when
    another strategy hands over to it; it needs no more evaluations than it says; it takes failed trials, and changes
    neither the space, nor the instance it was given, nor anybody's random numbers.

    Give it as a name, a class, or an instance if its constructor needs arguments. A quick strategy takes a second.

    Raises:
        AssertionError: with a sentence that says what is wrong, and on which model it showed.
    """

    def make() -> Strategy:
        return strategy if isinstance(strategy, Strategy) else make_strategy(strategy)

    name = make().name or type(make()).__name__
    with global_rng_restored():
        # What a strategy imports on first use may draw random numbers; that is not its fault.
        _run(name, make, "when it is closed after its first trial", SimulatedModel(ops=4), 1, imports=True)
        for number, (where, model) in enumerate(_models().items()):
            trials = _run(name, make, where, model)
            assert trials, f"strategy {name}, {where}, proposes nothing"
            if number < AGAIN:
                _check_same(name, where, trials, _run(name, make, where, model))
        _check_nested(name, make)
        _check_budget(name, make)


def _models() -> dict[str, SimulatedModel]:
    """By what is special about them."""
    few = {"op.*": {"activation": {"algorithm": ["minmax"], "scheme": ["asym"]}}}
    misled = SimulatedModel(ops=9, culprits=2, pairs=1, noise=0.005, ranking="useless", slow=3, reluctant=1, seed=1)
    return {
        "on a model with two culprits": SimulatedModel(ops=12, culprits=2),
        "with noisy scores and a ranking that misleads": misled,
        "on a model that is harmless in int8": SimulatedModel(ops=6, culprits=0),
        "on a model with another good calibration": SimulatedModel(ops=6, culprits=2, relief={"percentile": 0.01}),
        "when no trial meets the criterion": _Hopeless(ops=10),
        "when every trial fails": _Failing(ops=6),
        "when scores follow no rule": _Arbitrary(ops=10, seed=2),
        "with a single op": SimulatedModel(ops=1),
        "with a single op that is harmless": SimulatedModel(ops=1, culprits=0),
        "with a space of nine configurations": _Hopeless(ops=2, rules=few),
        "with ops that rules force to fp32": SimulatedModel(ops=6, rules={"op00[0-2]": "fp32"}, culprits=["op004"]),
        "with ops that rules force to int8": SimulatedModel(ops=6, rules={"op00[0-2]": "int8"}, culprits=["op004"]),
        "when the culprit is forced to int8": SimulatedModel(ops=6, rules={"op004": "int8"}, culprits=["op004"]),
        "with rules that force every op to int8": SimulatedModel(ops=3, rules={"op.*": "int8"}),
    }


class _Hopeless(SimulatedModel):
    def score(self, config: QuantConfig) -> float:
        return 0.5 * self.baseline


class _Failing(SimulatedModel):
    def score(self, config: QuantConfig) -> float:
        raise RuntimeError("this evaluation fails")


class _Arbitrary(SimulatedModel):
    def score(self, config: QuantConfig) -> float:
        return self.baseline * random.Random(f"{self.seed} {config.fingerprint}").choice([0.5, 0.9, 1.0])


def _run(
    name: str,
    make: Callable[[], Strategy],
    where: str,
    model: SimulatedModel,
    max_trials: int | None = None,
    imports: bool = False,
    objective: str = "latency",
    target_budget: TargetBudget | None = None,
) -> list[Trial]:
    """Drive a strategy to its end, or to where it has shown enough."""
    given = make()
    before = state_of(given)
    strategy = make_strategy(given)
    told = prepared(strategy, seed=SEED, objective=objective, target_budget=target_budget)
    worst, first = (_counted(name, told, what, model.space) for what in ("worst_case", "first_success"))
    assert worst is None or first is None or first <= worst, (
        f"first_success of strategy {name}, {where}, is {first}, and that is more than its worst_case of {worst}"
    )
    enough = next((most for most in (worst, first) if most is not None and most <= MANY), SOME - 1)
    random.random(), np.random.random()  # so that setting the state of an earlier run again does not go unseen
    untouched, rng = picture_of(model.space), global_rng()
    try:
        trials = drive(
            StrictStrategy(strategy),
            model,
            None if target_budget is None else Criterion.within(target_budget),
            max_trials=max_trials or enough + 1,
            stop_at_first=False,
            seed=SEED,
            objective=objective,
        )
    except StrategyError as error:
        raise AssertionError(f"strategy {name}, {where}: {error}") from error
    except Broken as broken:
        raise AssertionError(f"strategy {name}, {where}: {broken}") from broken.__cause__
    assert picture_of(model.space) == untouched, f"strategy {name}, {where}, changes the space it was given"
    assert imports or global_rng() == rng, (
        f"strategy {name}, {where}, uses the global random numbers of `random` or numpy, which belong to the user; "
        "make a generator of its own from `seed`"
    )
    assert worst is None or len(trials) <= worst, (
        f"strategy {name}, {where}, asks for more evaluations than its worst_case of {worst}"
    )
    met = next((trial.number for trial in trials if trial.met), None)
    assert met is None or first is None or met <= first, (
        f"strategy {name}, {where}, succeeds at trial {met} for the first time; its first_success says {first} at most"
    )
    altered = changed(before, state_of(given))
    assert not altered, (
        f"strategy {name}, {where}, changes {' and '.join(altered)} of the instance it was given, so that another run "
        "would go another way; make what belongs to one run in `propose`"
    )
    return trials


def _counted(name: str, strategy: Strategy, what: str, space: TuningSpace) -> int | None:
    count: object = getattr(strategy, what)(space)
    assert count is None or (isinstance(count, int) and count >= 0), (
        f"{what} of strategy {name} must be a whole number or None, not {count!r}"
    )
    return count


def _check_same(name: str, where: str, one: list[Trial], other: list[Trial]) -> None:
    for first, second in zip(one, other, strict=False):
        assert first.config == second.config, (
            f"strategy {name}, {where}, is not deterministic: with the same seed and the same answers, trial "
            f"{first.number} of a second run is another one, so a run could not be resumed"
        )
    assert len(one) == len(other), (
        f"strategy {name}, {where}, is not deterministic: it ends after {len(one)} trials, and after {len(other)} when "
        "it is run again with the same seed and the same answers"
    )


def _check_nested(name: str, make: Callable[[], Strategy]) -> None:
    where, model = "inside another strategy (`yield from`)", SimulatedModel(ops=12, culprits=4)
    alone = _run(name, make, "by itself", model, SOME, objective=OBJECTIVE)
    nested = _run(name, lambda: _Outer(make), where, model, SOME, objective=OBJECTIVE)
    assert [trial.config for trial in alone] == [trial.config for trial in nested], (
        f"strategy {name}, {where}, proposes something else than by itself, with the same seed, objective and answers; "
        "read `seed` and `objective` in `propose`, not before"
    )


def _check_budget(name: str, make: Callable[[], Strategy]) -> None:
    """With a budget for the model instead of a criterion."""
    for target_budget in (TargetBudget(latency=0.6), TargetBudget(size=0.5), TargetBudget(0.7, 0.6)):
        where, model = f"with a {target_budget}", SimulatedModel(ops=12, culprits=2)
        trials = _run(name, make, where, model, SOME, objective="accuracy", target_budget=target_budget)
        assert any(trial.met for trial in trials), f"strategy {name}, {where}, tries nothing that keeps it"


@dataclass
class _Outer(Strategy):
    """A strategy that leaves everything to another one."""

    make: Callable[[], Strategy]

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        yield from make_strategy(self.make()).propose(space, probe)
