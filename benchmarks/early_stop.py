"""Early stop by simulation, with the code that a run uses: how often it is wrong, and how many samples it saves.

    python -m benchmarks.run early_stop

*On the border* a trial loses exactly what is allowed, 1 % of the fp32 score, so that the full set accepts it. Of 10,000
random orders of its samples at most delta may be stopped. *On the path* there are the trials of a short search: losses
of 30, 5 and 2 %, then one of 0.5 %, which succeeds. Beside early stop stand two races with bounds that hold at every
look (Hoeffding's and Bernstein's, both without replacement), and the test that many would write: a z-test at every
look.

The rows go to `benchmarks/results/early_stop.json`, the plot to `docs/early_stop.svg`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.statistics import EarlyStop

Scores = NDArray[np.float64]

DELTA = 0.05
ALLOWED = 0.01
RUNS = 10_000
RUNS_ON_THE_PATH = 400
PATH = (0.30, 0.05, 0.02, 0.005)
RIGHT = 0.8
# Samples and the size of a batch on the border, by kind of score.
BORDER = {
    "few flips": ((500, 1), (500, 16), (2000, 64), (10_000, 256)),
    "many flips": ((500, 64), (2000, 256), (10_000, 1024)),
    "continuous": ((500, 256), (2000, 64), (10_000, 1024)),
}


def population(kind: str, count: int, loss: float) -> tuple[Scores, Scores]:
    """Scores of both models, of which int8's sum is less by just this part of fp32's."""
    rng = np.random.default_rng(count)
    if kind == "continuous":
        fp32 = rng.beta(5, 2, count)
        change = rng.normal(0, 0.1, count) * np.minimum(fp32, 1 - fp32)
        return fp32, fp32 - change - (loss * fp32.sum() - change.sum()) / count
    right = round(RIGHT * count)
    gained = round(0.05 * count) if kind == "many flips" else round(0.002 * count)
    lost = round(loss * right) + gained
    fp32 = np.r_[np.ones(right), np.zeros(count - right)]
    int8 = fp32.copy()
    int8[:lost] = 0
    int8[right : right + gained] = 1
    return fp32, int8


def betting(fp32: Scores, int8: Scores, batch: int) -> int | None:
    """How many samples early stop sees before it stops; None if it does not."""
    watch = EarlyStop(fp32, ALLOWED * fp32.sum(), DELTA)
    for first in range(0, fp32.size, batch):
        if watch.update(int8[first : first + batch]):
            return watch.seen
    return None


def looks(fp32: Scores, int8: Scores, batch: int) -> Iterator[tuple[int, float, float, float]]:
    """At each look: samples seen, mean of the differences beyond what is allowed, their deviation, what is left."""
    lost = fp32 - int8
    sums, squares = np.cumsum(lost), np.cumsum(lost**2)
    allowed = ALLOWED * fp32.sum() / fp32.size
    for seen in range(batch, fp32.size, batch):
        mean = sums[seen - 1] / seen
        deviation = np.sqrt(max(squares[seen - 1] / seen - mean**2, 0.0))
        yield seen, float(mean - allowed), float(deviation), 1 - (seen - 1) / fp32.size


def hoeffding(fp32: Scores, int8: Scores, batch: int) -> int | None:
    """A race with Hoeffding's and Serfling's bound, delta shared by all looks."""
    share = np.log(fp32.size / batch / DELTA)
    for seen, mean, _, left in looks(fp32, int8, batch):
        if mean > 2 * np.sqrt(left * share / (2 * seen)):
            return seen
    return None


def bernstein(fp32: Scores, int8: Scores, batch: int) -> int | None:
    """A race with the empirical bound of Bernstein and Serfling, delta shared by all looks."""
    share = np.log(5 * fp32.size / batch / DELTA)
    for seen, mean, deviation, left in looks(fp32, int8, batch):
        if mean > deviation * np.sqrt(2 * left * share / seen) + 2 * (7 / 3 + 3 / np.sqrt(2)) * share / seen:
            return seen
    return None


def peeking(fp32: Scores, int8: Scores, batch: int) -> int | None:
    """A z-test of level delta at every look, as if it were the only one."""
    for seen, mean, deviation, left in looks(fp32, int8, batch):
        if deviation > 0 and mean > 1.645 * deviation * np.sqrt(left / seen):
            return seen
    return None


RULES: dict[str, Callable[[Scores, Scores, int], int | None]] = {
    "early stop": betting,
    "Hoeffding race": hoeffding,
    "Bernstein race": bernstein,
    "peeking with a z-test": peeking,
}


def stops(rule: str, kind: str, count: int, batch: int, loss: float, runs: int) -> list[int | None]:
    """Return the number of samples after which the rule stops the trial, per random order."""
    fp32, int8 = population(kind, count, loss)
    rng = np.random.default_rng(batch)
    found = []
    for _ in range(runs):
        order = rng.permutation(count)
        found.append(RULES[rule](fp32[order], int8[order], batch))
    return found


def border() -> Iterator[dict[str, Any]]:
    """False stops of trials that the full set would accept, and of the z-test beside them."""
    for kind, sizes in BORDER.items():
        for count, batch in sizes:
            found = stops("early stop", kind, count, batch, ALLOWED, RUNS)
            beside = stops("peeking with a z-test", kind, count, batch, ALLOWED, RUNS // 10)
            yield {
                "scores": kind,
                "N": count,
                "batch": batch,
                "runs": RUNS,
                "false stops": sum(seen is not None for seen in found) / RUNS,
                "allowed": DELTA,
                "false stops of a z-test": sum(seen is not None for seen in beside) / len(beside),
            }


def path(count: int = 2000, batch: int = 16) -> Iterator[dict[str, Any]]:
    """What each rule spends on the trials of a search, as parts of a full evaluation."""
    for kind in BORDER:
        for rule in ("full evaluation", *RULES):
            shares, wrong = [], 0.0
            for loss in PATH:
                if rule == "full evaluation":
                    shares.append(1.0)
                    continue
                found = stops(rule, kind, count, batch, loss, RUNS_ON_THE_PATH)
                shares.append(float(np.mean([count if seen is None else seen for seen in found])) / count)
                if loss <= ALLOWED:
                    wrong = sum(seen is not None for seen in found) / len(found)
            yield {
                "scores": kind,
                "rule": rule,
                **{f"loss {loss:.1%}": share for loss, share in zip(PATH, shares, strict=True)},
                "samples saved": 1 - sum(shares) / len(shares),
                "good trial stopped": wrong,
            }


def run() -> list[dict[str, Any]]:
    """All rows; the plot is drawn on the way."""
    from benchmarks.early_stop_figure import draw

    rows = [*border(), *path()]
    draw(rows)
    return rows
