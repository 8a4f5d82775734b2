"""How many evaluations does each strategy need, on models that are known inside out and cost nothing to evaluate?

    python -m benchmarks.simulation            # the sweep (some minutes), then the table and the plot
    python -m benchmarks.simulation --draw     # the table and the plot from the last sweep

n ops, of which d must fall back (some of them two by two), scores with or without noise, and a label-free ranking that
is right, weak or useless. Every figure counts calls of eval_func, the fp32 baseline and the all-int8 trial included.
Two yardsticks: telling which d of n ops are guilty takes log2 C(n, d) evaluations if each answers yes or no (the bound
of group testing), and plain bisection in graph order, `Bisection` below, needs no ranking.

Figures go to `benchmarks/results/simulation.json`, the tables into `docs/strategies.md`, the plot to
`docs/strategies.svg`.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from benchmarks import result_files
from quaver import Probe, Strategy, Trial, TuningSpace
from quaver.strategies import Proposals, make_strategy
from quaver.testing import SimulatedModel, drive
from quaver.testing.simulated import RANKINGS

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "simulation.json"

SIZES = (20, 50, 150, 1000)
CULPRITS = (1, 3, 8)
NOISE = 0.004  # half of what may be lost
# Strategies that ask the probe for a ranking, and those that do not, so that one run stands for all rankings.
RANKED = ("auto", "mse", "mse_v2", "conservative", "bayesian")
BLIND = ("bisection", "basic", "random", "exhaustive")
# Limits for strategies without a natural end, or with a distant one, in trials.
MOST_TRIALS = {"random": 200, "bayesian": 60, "exhaustive": 200}


class Bisection(Strategy):
    """Binary splitting in graph order: the shortest prefix that is enough ends with a culprit; then the rest of it."""

    name = "bisection"

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        config = space.default_config()
        trial: Trial = yield config
        rest = list(space.tunable)
        while rest and not trial.met:
            failing, enough = 0, len(rest)
            while enough - failing > 1:
                middle = (failing + enough) // 2
                trial = yield config.fallback(*rest[:middle])
                failing, enough = (failing, middle) if trial.met else (middle, enough)
            config, rest = config.fallback(rest[enough - 1]), rest[: enough - 1]
            if config.int8_ops:
                trial = yield config


@dataclass(frozen=True)
class Case:
    """A family of models that differ in their seed.

    Attributes:
        ops: how many there are.
        culprits: how many do damage by themselves or as the first of a pair.
        pairs: how many of those come with a second one.
        ranking: right, weak or useless.
        noise: standard deviation of the score.
    """

    ops: int
    culprits: int
    pairs: int = 0
    ranking: str = "right"
    noise: float = 0.0

    @property
    def guilty(self) -> int:
        """How many ops must fall back."""
        return self.culprits + self.pairs

    @property
    def bound(self) -> float:
        """Evaluations that any search needs on average to know all culprits."""
        return math.log2(math.comb(self.ops, self.guilty))

    def model(self, seed: int) -> SimulatedModel:
        """One of the family."""
        return SimulatedModel(self.ops, self.culprits, self.pairs, noise=self.noise, ranking=self.ranking, seed=seed)


@dataclass(frozen=True)
class Row:
    """What a strategy needed on a case: means over the seeds on which it succeeded.

    Attributes:
        case: the family of models.
        strategy: its name.
        seeds: how many models were tried.
        found: on how many a trial met the criterion.
        first: evaluations to the first success.
        first_fp32: ops in fp32 in that trial.
        whole: evaluations when the strategy ended.
        whole_fp32: the fewest ops in fp32 of all trials that met the criterion.
        seconds: time the runs took together.
    """

    case: Case
    strategy: str
    seeds: int
    found: int
    first: float | None
    first_fp32: float | None
    whole: float | None
    whole_fp32: float | None
    seconds: float


def strategy_of(name: str) -> Strategy:
    """A built-in strategy or plain bisection."""
    return Bisection() if name == "bisection" else make_strategy(name)


def measure(name: str, case: Case, seeds: Sequence[int]) -> Row:
    """Run a strategy on the models of a case, each to its end."""
    start = time.perf_counter()
    most = MOST_TRIALS.get(name, 4 * case.ops + 100)
    firsts, wholes = [], []
    for seed in seeds:
        trials = drive(strategy_of(name), case.model(seed), max_trials=most, stop_at_first=False, seed=seed)
        met = [trial for trial in trials if trial.met]
        if met:
            firsts.append((met[0].number + 1, len(met[0].config.fp32_ops)))
            wholes.append((len(trials) + 1, min(len(trial.config.fp32_ops) for trial in met)))
    first, whole = _means(firsts), _means(wholes)
    return Row(case, name, len(seeds), len(firsts), *first, *whole, round(time.perf_counter() - start, 2))


def _means(pairs: list[tuple[int, int]]) -> tuple[float | None, float | None]:
    if not pairs:
        return None, None
    return round(fmean(one for one, _ in pairs), 2), round(fmean(two for _, two in pairs), 2)


def plan() -> Iterator[tuple[str, Case, int]]:
    """Strategy, case and number of seeds of every row."""
    for ops in SIZES:
        for culprits in CULPRITS:
            yield from _plan(ops, culprits, 0, 0.0)
    for ops in SIZES[1:3]:
        yield from _plan(ops, 3, 2, 0.0)
        yield from _plan(ops, 3, 0, NOISE)
        yield from _plan(ops, 3, 2, NOISE)


def _plan(ops: int, culprits: int, pairs: int, noise: float) -> Iterator[tuple[str, Case, int]]:
    plain = not pairs and not noise
    many, few = (10, 1) if ops == SIZES[-1] else (25, 3)
    for name in BLIND:
        if name == "exhaustive" and (ops, culprits) != (SIZES[0], 1):
            continue
        if plain or name == "bisection":
            yield name, Case(ops, culprits, pairs, noise=noise), many if name == "bisection" else few
    for ranking in RANKINGS:
        case = Case(ops, culprits, pairs, ranking, noise)
        yield "auto", case, many
        for name in RANKED[1:] if plain else ():
            if name == "bayesian" and ops != 50:
                continue  # each proposal takes a while
            if name == "mse_v2" and ops == SIZES[-1] and culprits != 3:
                continue  # 32 sums over all ops for each proposal
            yield name, case, 1 if name == "bayesian" else few


def sweep() -> list[Row]:
    """All rows, and their time on the screen."""
    rows = []
    for name, case, seeds in plan():
        row = measure(name, case, range(seeds))
        print(f"{row.seconds:6.1f} s  {name:13} {case}", flush=True)
        rows.append(row)
    print(f"{sum(row.seconds for row in rows):.0f} s in all")
    return rows


def save(rows: Sequence[Row]) -> None:
    """Write the figures."""
    title = "Evaluations that each strategy needs on simulated models"
    result_files.write(RESULTS, title, [asdict(row) for row in rows])


def load() -> list[Row]:
    """Read them again."""
    records = result_files.rows_of(RESULTS)
    return [Row(**{**record, "case": Case(**record["case"])}) for record in records]


def main() -> None:
    """Run the sweep, or take the last one, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", action="store_true", help="take the figures of the last sweep")
    if not parser.parse_args().draw:
        save(sweep())
    # By its own name this module has other classes than as a script.
    from benchmarks import simulation, simulation_figures, tables

    simulation_figures.draw(simulation.load())
    tables.main()


if __name__ == "__main__":
    main()
