"""Searching along a ranking of ops: steps that several strategies are made of.

Each is a generator to be used with `yield from`: it yields configurations, is sent their trials, and returns the
trial it ends with. All assume that more fallbacks mean more accuracy. Where that does not hold they find less than
they could, but what they return has always been tried.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from quaver.ops import QuantConfig
from quaver.trial import Trial

Batch = Generator[QuantConfig | Sequence[QuantConfig], Any, list[Trial]]

# Of configurations that do not depend on results so many times the width are asked for at once: nobody waits then for
# the slowest of a list, and the run ends no later for it.
PREFETCH = 4


def evaluate_batch(configs: Iterable[QuantConfig], width: int) -> Batch:
    """Ask for all of them, as a list if there is more than one worker; their trials, in order."""
    trials: list[Trial] = []
    asked = list(configs)
    if width > 1 and len(asked) > 1:
        trials += yield asked
        return trials
    for config in asked:
        trials.append((yield config))
    return trials


def stream(configs: Iterator[QuantConfig], width: int) -> Generator[QuantConfig | Sequence[QuantConfig], Any, None]:
    """Ask for configurations of which there may be no end: one by one, or in lists if there is more than one worker."""
    while width > 1 and (asked := list(islice(configs, PREFETCH * width))):
        yield asked
    yield from configs


Search = Generator[QuantConfig | Sequence[QuantConfig], Any, Trial | None]

# A step along a ranking helps if it brings the loss below this part of what it was.
HELPS = 0.9
# After so many steps that did not help, the ranking is not followed any more.
DOUBTS = 2
# How many ops that must fall back may hide at the end of a ranking, one after another.
SEARCHES = 5


def shortest_prefix(start: Trial, ranking: Sequence[str], width: int = 1) -> Search:
    """The fewest ops from the front of a ranking that must fall back from `start` to meet the criterion.

    `start` is taken to fail and the whole ranking to be enough, so that is never tried. If all but the last op is not
    enough, that op must fall back although it ranks last, and the search goes on among the others: log2(n) + 1 trials
    for each such op. From the second one on, its fallback must help. With several workers each search tries as many
    lengths at once.
    """
    rest = list(ranking)
    found = yield from _search(start, rest, 0, width)
    for hidden in range(SEARCHES - 1):
        if found is not None or not rest:
            return found
        config = start.config.fallback(rest.pop())
        if not config.quantized_ops:
            return None
        trial: Trial = yield config
        if trial.met:
            return trial
        if hidden and not _helps(trial, start):
            return None
        start = trial
        found = yield from _search(start, rest, DOUBTS, width)
    return found


def _search(start: Trial, ranking: Sequence[str], doubts: int, width: int) -> Search:
    return (yield from (_bisect(start, ranking, doubts) if width == 1 else _split(start, ranking, width)))


def _split(start: Trial, ranking: Sequence[str], width: int) -> Search:
    """The same with `width` lengths at once: log(n) / log(width + 1) rounds, `width` trials each.

    Before the first success the lengths grow by the same factor, after it they part the gap evenly.
    """
    failing, enough, found = 0, len(ranking), None
    while enough - failing > 1:
        grow = np.geomspace(max(failing, 1) if failing else 0.5, enough, width + 2)[1:-1]
        even = np.linspace(failing, enough, width + 2)[1:-1]
        lengths = sorted({min(max(round(point), failing + 1), enough - 1) for point in (even if found else grow)})
        trials: list[Trial] = yield [start.config.fallback(*ranking[:length]) for length in lengths]
        for length, trial in zip(lengths, trials, strict=True):
            if trial.met:
                found, enough = trial, length
                break
            failing = length
    return found


def _bisect(start: Trial, ranking: Sequence[str], doubts: int) -> Search:
    """The shortest prefix that is enough, if it is not the whole; at most 2 log2(n) + 1 trials.

    As long as each step helps the ranking is right, and the next step is twice as long: few trials if the
    culprits rank high, and the first success falls back at most twice as many ops as it must. After a step that does
    not help, the next goes half-way to the middle, in orders of magnitude. After another one the gap is halved, which
    is the best one can do without a ranking: so one that is of no use costs two trials.
    """
    failing, enough, length = 0, len(ranking), 1
    last, found = start, None
    while enough - failing > 1:
        middle = (failing + enough) // 2
        if found is not None or doubts >= DOUBTS or length > middle:
            length = middle
        trial: Trial = yield start.config.fallback(*ranking[:length])
        if trial.met:
            found, enough = trial, length
            continue
        failing, length = length, 2 * length
        if not _helps(trial, last):
            doubts += 1
            length = max(length, math.isqrt(failing * (failing + enough) // 2))
        last = trial
    return found


def _helps(trial: Trial, before: Trial) -> bool:
    return trial.loss is not None and (before.loss is None or trial.loss < HELPS * before.loss)


def prune(start: Trial, config: QuantConfig, candidates: Sequence[str]) -> Search:
    """Bring ops of `start` back to what they are in `config`, as long as the criterion stays met.

    `candidates` are tried in groups, the least likely to be needed first: a group that can return costs one trial,
    and the next is twice as large; in one that cannot, the op that is needed is found by halving, and the next is
    half as large. For d needed ops out of n that is about d log2(n/d) trials, and never more than 2 n.
    """
    best = start
    rest = list(candidates)
    size, blocked = max(1, len(rest) // 2), 0  # so many at the front are known to hold an op that is needed
    while rest:
        if blocked == 1:
            rest, blocked = rest[1:], 0
            continue
        group = rest[: blocked // 2 or min(size, len(rest))]
        trial: Trial = yield best.config.replace({name: config[name] for name in group})
        if not blocked:
            size = 2 * size if trial.met else max(1, size // 2)
        if trial.met:
            best, rest = trial, rest[len(group) :]
            blocked = max(blocked - len(group), 0)
        else:
            blocked = len(group)
    return best
