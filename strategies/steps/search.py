"""Search along a ranking of ops: steps that several strategies share.

Each is a generator to be used with `yield from`: it yields configurations, is sent their trials, and returns the trial
that it ends with. All assume that more fallbacks mean more accuracy. Where that does not hold they find less than they
could, but what they return was always evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from quaver.ops import QuantConfig
from quaver.strategies.steps.tuning import TUNING
from quaver.trial import Trial

Batch: TypeAlias = Generator[QuantConfig | Sequence[QuantConfig], Any, list[Trial]]
Search: TypeAlias = Generator[QuantConfig | Sequence[QuantConfig], Any, Trial | None]


def recorded(proposals: Search | Batch | Generator[Any, Any, None], trials: list[Trial]) -> Generator[Any, Any, None]:
    """Pass on what a search proposes, and append each of its trials to a list."""
    answer: Any = None
    while True:
        try:
            proposed = proposals.send(answer)
        except StopIteration:
            return
        answer = yield proposed
        trials += answer if isinstance(answer, list) else [answer]


def evaluate_batch(configs: Iterable[QuantConfig], width: int) -> Batch:
    """Evaluate all of them, as a list if there is more than one worker; return their trials, in order."""
    trials: list[Trial] = []
    batch = list(configs)
    if width > 1 and len(batch) > 1:
        trials += yield batch
        return trials
    for config in batch:
        trials.append((yield config))
    return trials


def stream(configs: Iterator[QuantConfig], width: int) -> Generator[QuantConfig | Sequence[QuantConfig], Any, None]:
    """Evaluate configurations that may have no end: one by one, or in lists if there is more than one worker."""
    while width > 1 and (batch := list(islice(configs, TUNING.prefetch * width))):
        yield batch
    yield from configs


def shortest_prefix(start: Trial, ranking: Sequence[str], width: int = 1) -> Search:
    """Find the fewest ops from the front of a ranking that must fall back from `start` to meet the criterion.

    `start` is assumed to fail and the whole ranking to be enough, so that is never tried. If all but the last op is not
    enough, that op must fall back although it ranks last, and the search continues among the others: log2(n) + 1 trials
    for each such op. From the second one on, its fallback must help. With several workers each search tries as many
    lengths at once.
    """
    ranking = list(ranking)
    trial_met = yield from _search(start, ranking, 0, width)
    for hidden in range(TUNING.max_searches - 1):
        if trial_met is not None or not ranking:
            return trial_met
        config = start.config.fallback(ranking.pop())
        if not config.quantized_ops:
            return None
        trial: Trial = yield config
        if trial.met:
            return trial
        if hidden and not _helps(trial, start):
            return None
        start = trial
        trial_met = yield from _search(start, ranking, TUNING.max_doubts, width)
    return trial_met


def _search(start: Trial, ranking: Sequence[str], doubts: int, width: int) -> Search:
    return (yield from (_bisect(start, ranking, doubts) if width == 1 else _split(start, ranking, width)))


def _split(start: Trial, ranking: Sequence[str], width: int) -> Search:
    """Find the shortest prefix with `width` lengths at once: log(n) / log(width + 1) rounds, `width` trials each.

    Before the first success the lengths grow by the same factor, after it they divide the gap evenly.
    """
    failing, enough, trial_met = 0, len(ranking), None
    while enough - failing > 1:
        grow = np.geomspace(max(failing, 1) if failing else 0.5, enough, width + 2)[1:-1]
        even = np.linspace(failing, enough, width + 2)[1:-1]
        lengths = sorted({min(max(round(point), failing + 1), enough - 1) for point in (even if trial_met else grow)})
        trials: list[Trial] = yield [start.config.fallback(*ranking[:length]) for length in lengths]
        for length, trial in zip(lengths, trials, strict=True):
            if trial.met:
                trial_met, enough = trial, length
                break
            failing = length
    return trial_met


def _bisect(start: Trial, ranking: Sequence[str], doubts: int) -> Search:
    """Find the shortest prefix that is enough, if it is not the whole; at most 2 log2(n) + 1 trials.

    As long as each step helps the ranking is right, and the next step is twice as long: few trials if the culprits rank
    high, and the first success falls back at most twice as many ops as it must. After a step that does not help, the
    next one goes half-way to the middle, in orders of magnitude. After another one the gap is halved, which is the best
    that can be done without a ranking: so a useless ranking costs two trials.
    """
    failing, enough, length = 0, len(ranking), 1
    last, trial_met = start, None
    while enough - failing > 1:
        middle = (failing + enough) // 2
        if trial_met is not None or doubts >= TUNING.max_doubts or length > middle:
            length = middle
        trial: Trial = yield start.config.fallback(*ranking[:length])
        if trial.met:
            trial_met, enough = trial, length
            continue
        failing, length = length, 2 * length
        if not _helps(trial, last):
            doubts += 1
            length = max(length, math.isqrt(failing * (failing + enough) // 2))
        last = trial
    return trial_met


def _helps(trial: Trial, before: Trial) -> bool:
    return trial.loss is not None and (before.loss is None or trial.loss < TUNING.helpful_step * before.loss)


def prune(start: Trial, config: QuantConfig, candidates: Sequence[str]) -> Search:
    """Bring ops of `start` back to what they are in `config`, as long as the criterion stays met.

    `candidates` are tried in groups, the least likely to be needed first: a group that can return costs one trial, and
    the next is twice as large; in one that cannot, the op that must stay is found by halving, and the next is half as
    large. For d ops that must stay out of n that is about d log2(n/d) trials, and never more than 2 n.
    """
    best = start
    waiting = list(candidates)
    size, blocked = max(1, len(waiting) // 2), 0  # the first `blocked` candidates hold an op that must stay
    while waiting:
        if blocked == 1:
            waiting, blocked = waiting[1:], 0
            continue
        group = waiting[: blocked // 2 or min(size, len(waiting))]
        trial: Trial = yield best.config.replace({name: config[name] for name in group})
        if not blocked:
            size = 2 * size if trial.met else max(1, size // 2)
        if trial.met:
            best, waiting = trial, waiting[len(group) :]
            blocked = max(blocked - len(group), 0)
        else:
            blocked = len(group)
    return best
