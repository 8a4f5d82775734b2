"""Check that a strategy keeps the contract of `Strategy`."""

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
from quaver.testing.strict_probe import ContractViolation, StrictStrategy
from quaver.trial import Trial


def state_of(strategy: Strategy) -> dict[str, object]:
    """Return the attributes of an instance, pickled where possible and else as they are."""
    state: dict[str, object] = {}
    for name, value in vars(strategy).items():
        try:
            state[name] = pickle.dumps(value)
        except Exception:  # pickle raises many kinds of errors
            state[name] = value
    return state


def changed(before: dict[str, object], after: dict[str, object]) -> list[str]:
    """Return the names of attributes that hold another object or another state."""

    def is_same(old: object, new: object) -> bool:
        return old == new if isinstance(old, bytes) and isinstance(new, bytes) else old is new

    return [
        repr(name)
        for name in dict.fromkeys((*before, *after))
        if name not in before or name not in after or not is_same(before[name], after[name])
    ]


def space_contents(space: TuningSpace) -> object:
    """Return a copy of everything that a space holds."""
    return {key: dict(value) if isinstance(value, dict) else value for key, value in vars(space).items()}


def global_rng() -> object:
    """Return the state of the shared random generators of `random` and numpy."""
    kind, keys, *position = np.random.get_state(legacy=True)
    return random.getstate(), kind, np.asarray(keys).tobytes(), *position


@contextmanager
def global_rng_restored() -> Iterator[None]:
    """Restore the shared random generators at the end."""
    before = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])


# Trials that are checked of a strategy without a worst case, and at most of one with a worst case (judgement: a check
# takes about a second).
DEFAULT_TRIALS = 8
MAX_TRIALS = 300
# Number of models on which determinism is checked by a second run.
REPEATED_MODELS = 2
# A seed and an objective that differ from the defaults, so that a strategy that ignores them is noticed.
SEED = 9527
OBJECTIVE = "size"


def check_strategy(strategy: str | type[Strategy] | Strategy) -> None:
    """Run a strategy on small simulated models and check that it keeps the contract of `Strategy`.

    The strategy must propose configurations of the space, one by one or in lists; propose the same ones for the same
    seed, also when another strategy delegates to it; need no more evaluations than `worst_case` states; accept failed
    trials; and change neither the space, nor its own instance, nor the shared random generators.

    Pass a name, a class, or an instance if the constructor needs arguments. A fast strategy takes about a second.

    Raises:
        AssertionError: the strategy breaks the contract; the message says how and on which model.
    """

    def make() -> Strategy:
        return strategy if isinstance(strategy, Strategy) else make_strategy(strategy)

    name = make().name or type(make()).__name__
    with global_rng_restored():
        # Packages that a strategy imports on first use may draw random numbers, which is not its fault.
        _run(
            name, make, "when it is closed after its first trial", SimulatedModel(ops=4), _Conditions(1, may_draw=True)
        )
        for number, (where, model) in enumerate(_models().items()):
            trials = _run(name, make, where, model)
            assert trials, f"strategy {name}, {where}, proposes nothing"
            if number < REPEATED_MODELS:
                _check_same(name, where, trials, _run(name, make, where, model))
        _check_nested(name, make)
        _check_budget(name, make)


def _models() -> dict[str, SimulatedModel]:
    """Return the simulated models by a description of each."""
    few = {"op.*": {"activation": {"algorithm": ["minmax"], "scheme": ["asym"]}}}
    misled = SimulatedModel(ops=9, culprits=2, pairs=1, noise=0.005, ranking="useless", slow=3, reluctant=1, seed=1)
    return {
        "on a model with two culprits": SimulatedModel(ops=12, culprits=2),
        "with noisy scores and a misleading ranking": misled,
        "on a model that loses nothing in int8": SimulatedModel(ops=6, culprits=0),
        "on a model that another calibration repairs": SimulatedModel(ops=6, culprits=2, relief={"percentile": 0.01}),
        "when no trial meets the criterion": _Hopeless(ops=10),
        "when every trial fails": _Failing(ops=6),
        "with arbitrary scores": _Arbitrary(ops=10, seed=2),
        "with a single op": SimulatedModel(ops=1),
        "with a single op that loses nothing": SimulatedModel(ops=1, culprits=0),
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


@dataclass(frozen=True)
class _Conditions:
    """Settings of a checked run.

    Attributes:
        max_trials: largest number of trials; None runs to the worst case.
        may_draw: True if the shared random generators may change, because packages are imported.
        objective: objective that the strategy sees.
        target_budget: a target budget in place of the criterion.
    """

    max_trials: int | None = None
    may_draw: bool = False
    objective: str = "latency"
    target_budget: TargetBudget | None = None


def _run(
    name: str,
    make: Callable[[], Strategy],
    where: str,
    model: SimulatedModel,
    conditions: _Conditions | None = None,
) -> list[Trial]:
    """Drive a strategy to its end or to its worst case, and check what it does."""
    conditions = conditions or _Conditions()
    objective, target_budget = conditions.objective, conditions.target_budget
    instance = make()
    before = state_of(instance)
    strategy = make_strategy(instance)
    driven = prepared(strategy, seed=SEED, objective=objective, target_budget=target_budget)
    worst, first = (_stated_count(name, driven, method, model.space) for method in ("worst_case", "first_success"))
    assert worst is None or first is None or first <= worst, (
        f"first_success of strategy {name}, {where}, is {first}, which is more than its worst_case of {worst}"
    )
    trial_limit = next(
        (count for count in (worst, first) if count is not None and count <= MAX_TRIALS), DEFAULT_TRIALS - 1
    )
    random.random(), np.random.random()  # a strategy that resets the generators to an earlier state is noticed
    contents, rng = space_contents(model.space), global_rng()
    try:
        trials = drive(
            StrictStrategy(strategy),
            model,
            None if target_budget is None else Criterion.within(target_budget),
            max_trials=conditions.max_trials or trial_limit + 1,
            stop_at_first=False,
            seed=SEED,
            objective=objective,
        )
    except StrategyError as error:
        raise AssertionError(f"strategy {name}, {where}: {error}") from error
    except ContractViolation as violation:
        raise AssertionError(f"strategy {name}, {where}: {violation}") from violation.__cause__
    assert space_contents(model.space) == contents, f"strategy {name}, {where}, changes the space"
    assert conditions.may_draw or global_rng() == rng, (
        f"strategy {name}, {where}, uses the global random generators of `random` or numpy, which belong to the user; "
        "create a generator from `seed`"
    )
    assert worst is None or len(trials) <= worst, (
        f"strategy {name}, {where}, needs more evaluations than its worst_case of {worst}"
    )
    met = next((trial.number for trial in trials if trial.met), None)
    assert met is None or first is None or met <= first, (
        f"strategy {name}, {where}, first succeeds at trial {met}, but its first_success is {first}"
    )
    altered = changed(before, state_of(instance))
    assert not altered, (
        f"strategy {name}, {where}, changes {' and '.join(altered)} of its own instance, so a second run would differ; "
        "keep the state of a run inside `propose`"
    )
    return trials


def _stated_count(name: str, strategy: Strategy, method: str, space: TuningSpace) -> int | None:
    count: object = getattr(strategy, method)(space)
    assert count is None or (isinstance(count, int) and count >= 0), (
        f"{method} of strategy {name} must return a whole number or None, not {count!r}"
    )
    return count


def _check_same(name: str, where: str, first_run: list[Trial], second_run: list[Trial]) -> None:
    for first, second in zip(first_run, second_run, strict=False):
        assert first.config == second.config, (
            f"strategy {name}, {where}, is not deterministic: with the same seed and the same answers, a second run "
            f"proposes another trial {first.number}, so a run could not be resumed"
        )
    assert len(first_run) == len(second_run), (
        f"strategy {name}, {where}, is not deterministic: with the same seed and the same answers it ends after "
        f"{len(first_run)} trials in one run and after {len(second_run)} in another"
    )


def _check_nested(name: str, make: Callable[[], Strategy]) -> None:
    where, model = "inside another strategy (`yield from`)", SimulatedModel(ops=12, culprits=4)
    alone = _run(name, make, "on its own", model, _Conditions(DEFAULT_TRIALS, objective=OBJECTIVE))
    nested = _run(name, lambda: _Outer(make), where, model, _Conditions(DEFAULT_TRIALS, objective=OBJECTIVE))
    assert [trial.config for trial in alone] == [trial.config for trial in nested], (
        f"strategy {name}, {where}, proposes other configurations than on its own with the same seed and answers; "
        "read `seed` and `objective` in `propose`, not before"
    )


def _check_budget(name: str, make: Callable[[], Strategy]) -> None:
    """Check a strategy with a target budget instead of a criterion."""
    for target_budget in (TargetBudget(latency=0.6), TargetBudget(size=0.5), TargetBudget(0.7, 0.6)):
        where, model = f"with a {target_budget}", SimulatedModel(ops=12, culprits=2)
        conditions = _Conditions(DEFAULT_TRIALS, objective="accuracy", target_budget=target_budget)
        trials = _run(name, make, where, model, conditions)
        assert any(trial.met for trial in trials), f"strategy {name}, {where}, proposes nothing within it"


@dataclass
class _Outer(Strategy):
    """A strategy that delegates everything to another one."""

    make: Callable[[], Strategy]

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        yield from make_strategy(self.make()).propose(space, probe)
