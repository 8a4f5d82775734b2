"""Strategies see the seed and the objective of their run, and nothing of it stays on them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from networks import Closeness, chain, inputs

import quaver
from quaver import Probe, QuantConfig, Strategy, TuningSpace
from quaver.strategies import Auto, Proposals, Random, make_strategy, prepared
from quaver.testing import SimulatedModel, drive

MODEL = SimulatedModel(ops=8, culprits=["op005"])


class Says(Strategy):
    """Proposes all int8 again and again, and notes what it sees each time."""

    def __init__(self, seen: list[tuple[int, str]], times: int = 1) -> None:
        self.seen, self.times = seen, times

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        for _ in range(self.times):
            self.seen.append((self.seed, self.objective))
            yield space.default_config()


class Outer(Strategy):
    """Leaves everything to an inner strategy, and has some of its own state."""

    name = "outer"

    def __init__(self, inner: type[Strategy] = Random) -> None:
        self.inner = inner
        self.rounds = 0

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        self.rounds += 1
        yield from self.inner().propose(space, probe)


class Outermost(Outer):
    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        yield from Outer(self.inner).propose(space, probe)


def configs(strategy: Any, **told: Any) -> list[QuantConfig]:
    return [trial.config for trial in drive(strategy, MODEL, max_trials=12, stop_at_first=False, **told)]


def test_a_strategy_sees_seed_and_objective_at_every_step() -> None:
    seen: list[tuple[int, str]] = []
    drive(Says(seen, 3), MODEL, seed=7, objective="size")
    assert seen == [(7, "size")] * 3


def test_outside_of_a_run_there_are_defaults() -> None:
    assert (Random().seed, Random().objective) == (0, "latency")


@pytest.mark.parametrize("outer", [Outer, Outermost])
def test_a_strategy_inside_another_has_its_seed_without_being_told(outer: type[Outer]) -> None:
    assert configs(outer, seed=3) == configs(Random, seed=3) != configs(Random, seed=4)


def test_a_strategy_inside_another_has_its_objective_without_being_told() -> None:
    model = SimulatedModel(ops=8, culprits=1, slow=4)
    by_size, by_time = (drive(Auto, model, objective=name) for name in ("size", "latency"))
    assert by_size != by_time
    assert [drive(Outer(Auto), model, objective=name) for name in ("size", "latency")] == [by_size, by_time]


def test_what_is_set_on_an_instance_counts_for_that_one() -> None:
    seen: list[tuple[int, str]] = []

    class Restarts(Strategy):
        def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
            for step in range(2):
                inner = Says(seen)
                inner.seed = self.seed + step
                yield from inner.propose(space, probe)
            yield from Says(seen).propose(space, probe)

    drive(Restarts, MODEL, seed=5, objective="size")
    assert seen == [(5, "size"), (6, "size"), (5, "size")]
    mine = Says(seen)
    mine.objective = "int8_ops"
    drive(mine, MODEL, seed=5, objective="size")
    assert seen[-1] == (5, "int8_ops")


def test_a_class_may_have_a_seed_of_its_own() -> None:
    @dataclass(frozen=True)
    class Fixed(Random):
        seed: int = 3

    assert configs(Fixed, seed=8) == configs(Random, seed=3)
    assert configs(Fixed(4), seed=8) == configs(Random, seed=4)


def test_an_instance_is_copied_and_stays_as_it_was() -> None:
    mine = Outer()
    before = dict(vars(mine))
    assert configs(mine, seed=3) == configs(mine, seed=3)
    assert vars(mine) == before and mine.seed == 0
    made = make_strategy(mine)
    assert made is not mine and type(made) is Outer and vars(made) == before


def test_a_copy_may_be_made_in_the_authors_own_way() -> None:
    class Deep(Outer):
        def __init__(self, log: list[int]) -> None:
            self.log = log

        def __copy__(self) -> Deep:
            return Deep(list(self.log))

        def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
            self.log.append(1)
            yield space.default_config()

    mine = Deep([])
    drive(mine, MODEL)
    assert mine.log == []


def test_fit_leaves_the_users_instance_alone_and_tells_those_inside(tmp_path: Path) -> None:
    model = chain(4)
    seen: list[tuple[int, str]] = []
    mine = Outer(lambda: Says(seen))  # type: ignore[arg-type]
    before = dict(vars(mine))
    result = quaver.fit(
        model,
        calib_dataloader=inputs(),
        eval_func=Closeness(model),
        strategy=mine,
        seed=11,
        objective="size",
        max_trials=1,
        timeout=60,
        workspace=tmp_path / "run",
    )
    assert len(result.trials) == 1
    assert vars(mine) == before
    assert seen == [(11, "size")]


def test_counts_of_evaluations_know_the_run_too() -> None:
    class Twice(Outer):
        def worst_case(self, space: TuningSpace) -> int:
            return self.seed

        def first_success(self, space: TuningSpace) -> int:
            return len(Random().objective)

    told = prepared(Twice(), seed=40, objective="size")
    assert (told.name, told.worst_case(MODEL.space), told.first_success(MODEL.space)) == ("outer", 40, 4)
    assert prepared(Says([]), seed=0, objective="size").name == "Says"


def test_runs_that_take_turns_in_one_thread_do_not_mix() -> None:
    seen: dict[int, list[tuple[int, str]]] = {1: [], 2: []}
    runs = {
        seed: prepared(Outer(lambda seed=seed: Says(seen[seed], 3)), seed=seed, objective="size")  # type: ignore[misc, arg-type]
        for seed in seen
    }
    proposals = {seed: run.propose(MODEL.space, MODEL.probe) for seed, run in runs.items()}
    for _ in range(3):
        for one in proposals.values():
            next(one)
    for one in proposals.values():
        one.close()
    assert seen == {1: [(1, "size")] * 3, 2: [(2, "size")] * 3}
    assert Random().seed == 0


def test_a_run_may_move_from_thread_to_thread() -> None:
    seen: list[tuple[int, str]] = []
    proposals = prepared(Outer(lambda: Says(seen, 4)), seed=6, objective="size").propose(  # type: ignore[arg-type]
        MODEL.space, MODEL.probe
    )
    for _ in range(4):
        with ThreadPoolExecutor(1) as elsewhere:
            elsewhere.submit(next, proposals).result()
    assert seen == [(6, "size")] * 4


class InStep(SimulatedModel):
    """Waits at each evaluation for the run in the other thread."""

    def score(self, config: QuantConfig) -> float:
        BARRIER.wait(timeout=30)
        return super().score(config)


BARRIER = threading.Barrier(2)


def test_two_runs_in_two_threads_each_have_their_own() -> None:
    def run(seed: int) -> list[QuantConfig]:
        trials = drive(Outermost, InStep(ops=8, culprits=["op005"]), max_trials=12, stop_at_first=False, seed=seed)
        return [trial.config for trial in trials]

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, (1, 2))) == [configs(Random, seed=1), configs(Random, seed=2)]


def test_a_strategy_is_closed_within_its_run() -> None:
    seen: list[int] = []

    class Tidy(Strategy):
        def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
            try:
                yield space.default_config()
                yield space.all_fp32()
            finally:
                seen.append(self.seed)

    drive(Tidy, MODEL, max_trials=1, seed=9)
    assert seen == [9]


def test_an_error_of_the_strategy_comes_out_as_it_is_and_ends_the_run() -> None:
    class Breaks(Strategy):
        def propose(self, space: TuningSpace, probe: Probe) -> Iterator[QuantConfig]:  # type: ignore[override]
            yield space.default_config()
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        drive(Breaks, MODEL, seed=9)
    assert Random().seed == 0
