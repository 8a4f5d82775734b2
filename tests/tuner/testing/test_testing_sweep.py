"""What `auto` promises about the number of evaluations, on a reduced sweep of simulated models."""

from __future__ import annotations

import functools
import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3]))

from benchmarks import simulation, simulation_figures
from benchmarks.simulation import NOISE, Bisection, Case
from quaver import QuantConfig
from quaver.strategies import strategies
from quaver.testing import SimulatedModel, check_strategy, drive
from quaver.testing.simulated import RANKINGS

SEEDS = range(12)
EASY = [Case(ops, culprits) for ops in (20, 50, 150) for culprits in (1, 3, 8)]
HARD = [Case(50, 3, 2), Case(150, 1, 1), Case(50, 3, 0, noise=NOISE), Case(50, 2, 2, noise=NOISE)]
LARGE = [Case(1000, 1)]
CASES = [*EASY, *HARD, *LARGE]
# What has no end of its own, and takes a while for each proposal.
SLOW = {"bayesian": 12, "tpe": 12, "random": 60, "exhaustive": 60}


def seeds(case: Case) -> Sequence[int]:
    return SEEDS if case.ops < 1000 else SEEDS[:10]


@functools.cache
def measured(name: str, case: Case) -> simulation.Row:
    return simulation.measure(name, case, seeds(case))


def with_ranking(case: Case, ranking: str) -> Case:
    return Case(case.ops, case.culprits, case.pairs, ranking, case.noise)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_with_a_right_ranking_auto_succeeds_within_twice_the_bound(case: Case) -> None:
    row = measured("auto", with_ranking(case, "right"))
    assert row.found == row.seeds
    assert row.first is not None
    # The baseline and the all-int8 trial belong to no search.
    assert row.first <= 2 + 2 * case.bound


@pytest.mark.parametrize("case", EASY, ids=str)
def test_with_a_right_ranking_that_holds_for_each_model_and_few_ops_fall_back(case: Case) -> None:
    for seed in seeds(case):
        last = drive("auto", case.model(seed))[-1]
        assert last.met
        assert last.number + 1 <= 2 + 2 * case.bound
        assert len(last.config.fp32_ops) <= 2 * case.guilty


@pytest.mark.parametrize("case", CASES, ids=str)
def test_with_a_useless_ranking_auto_takes_at_most_twice_as_long_as_plain_bisection(case: Case) -> None:
    auto, plain = measured("auto", with_ranking(case, "useless")), measured("bisection", case)
    assert auto.found == plain.found == len(seeds(case))
    assert auto.first is not None and plain.first is not None and auto.whole is not None and plain.whole is not None
    assert auto.first <= 2 * plain.first
    assert auto.whole <= 2 * plain.whole


@pytest.mark.parametrize("ranking", RANKINGS)
@pytest.mark.parametrize("case", EASY, ids=str)
def test_in_the_end_no_more_than_the_culprits_are_in_fp32(case: Case, ranking: str) -> None:
    assert measured("auto", with_ranking(case, ranking)).whole_fp32 == case.culprits


class Graded(SimulatedModel):
    """Every op does some damage, and the worst eight must fall back."""

    @functools.cached_property
    def sensitivity(self) -> dict[str, float]:  # type: ignore[override]
        chance = random.Random(self.seed)
        return {op.name: chance.lognormvariate(0.0, 2.0) for op in self.space.ops}

    def score(self, config: QuantConfig) -> float:
        allowed = sum(sorted(self.sensitivity.values())[:-8])
        return self.baseline * (1 - 0.0099 * sum(self.sensitivity[name] for name in config.int8_ops) / allowed)


@pytest.mark.parametrize("ops", [70, 200])
def test_where_every_op_does_some_damage_few_more_fall_back_than_must(ops: int) -> None:
    last = [drive("auto", Graded(ops=ops, seed=seed), objective="size")[-1] for seed in range(20)]
    assert all(trial.met for trial in last)
    assert statistics.fmean(trial.number + 1 for trial in last) <= 8
    assert statistics.fmean(len(trial.config.fp32_ops) for trial in last) <= 16


class Hopeless(SimulatedModel):
    """A model for which no configuration meets the criterion."""

    def score(self, config: QuantConfig) -> float:
        return 0.9 * self.baseline


@pytest.mark.parametrize(("ops", "most"), [(20, 20), (150, 30), (1000, 40)])
def test_when_nothing_helps_auto_notices_soon(ops: int, most: int) -> None:
    trials = drive("auto", Hopeless(ops=ops))
    assert len(trials) <= most
    assert all(trial.config.int8_ops for trial in trials)


@pytest.mark.parametrize("name", strategies())
@pytest.mark.parametrize("ranking", RANKINGS)
def test_no_strategy_goes_on_for_ever(name: str, ranking: str) -> None:
    model = SimulatedModel(ops=30, culprits=3, pairs=1, noise=NOISE, ranking=ranking, slow=5, reluctant=2)
    worst = strategies()[name]().worst_case(model.space)
    trials = drive(name, model, max_trials=SLOW.get(name, 1000), stop_at_first=False)
    assert len(trials) <= (worst or SLOW[name])


@pytest.mark.parametrize("name", [*strategies(), "bisection"])
@pytest.mark.parametrize("ranking", ["right", "useless"])
def test_a_run_that_is_resumed_anywhere_ends_the_same(name: str, ranking: str) -> None:
    model = SimulatedModel(ops=12, culprits=2, pairs=1, noise=NOISE, ranking=ranking, seed=3)

    def run(known: Sequence[object] = ()) -> list[object]:
        most = SLOW.get(name, 200)
        strategy = simulation.strategy_of(name)
        return list(drive(strategy, model, max_trials=most, stop_at_first=False, earlier=known, seed=5))  # type: ignore[arg-type]

    whole = run()
    for kept in {1, len(whole) // 2} if name == "bayesian" else {0, 1, 2, len(whole) // 2, len(whole) - 1, len(whole)}:
        assert run(whole[:kept]) == whole


def fingerprints() -> dict[str, list[str]]:
    """The trials of every strategy, as text."""
    model = SimulatedModel(ops=16, culprits=2, pairs=1, noise=NOISE, ranking="weak", slow=3, seed=4)
    return {
        name: [
            trial.config.fingerprint
            for trial in drive(name, model, max_trials=SLOW.get(name, 100), stop_at_first=False, seed=9)
        ]
        for name in strategies()
    }


def test_the_same_seed_gives_the_same_trials_in_another_process() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import json, {Path(__file__).stem} as test; "
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{code} print(json.dumps(test.fingerprints()))"],
        env={**os.environ, "PYTHONHASHSEED": "17"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == fingerprints()


def test_another_seed_gives_other_trials() -> None:
    model = SimulatedModel(ops=16, culprits=8)
    one, other = (drive("random", model, max_trials=20, stop_at_first=False, seed=seed) for seed in (1, 2))
    assert [trial.config for trial in one] != [trial.config for trial in other]


def test_plain_bisection_is_a_fair_yardstick() -> None:
    check_strategy(Bisection)
    for case in EASY:
        row = measured("bisection", case)
        assert row.found == row.seeds
        assert row.whole_fp32 == case.culprits


def test_the_page_holds_the_tables_of_the_last_sweep() -> None:
    page = (Path(__file__).parents[3] / "docs" / "strategies.md").read_text(encoding="utf-8")
    assert simulation_figures.tables(simulation.load()) in page, "run `python -m benchmarks.simulation --draw`"


def test_the_sweep_can_be_saved_loaded_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = simulation.load()
    monkeypatch.setattr(simulation, "RESULTS", tmp_path / "results" / "simulation.json")
    simulation.save(rows)
    assert simulation.load() == rows
    simulation_figures.draw(rows, tmp_path / "plot.svg")
    text = (tmp_path / "plot.svg").read_text(encoding="utf-8")
    assert "auto, ranking useless" in text
    assert len(text) < 60_000
