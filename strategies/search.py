"""Searching along a ranking of ops: steps that several strategies are made of.

Each is a generator to be used with `yield from`: it yields configurations, is sent their trials, and returns the
trial it ends with. All assume that more fallbacks mean more accuracy. Where that does not hold they find less than
they could, but what they return has always been tried.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from quaver.ops import QuantConfig
from quaver.trial import Trial

Search = Generator[QuantConfig, Any, Trial | None]

# How often a ranking may be wrong before ops are only counted.
PATIENCE = 3
# How many ops that must fall back may hide at the end of a ranking, one after another.
SEARCHES = 5


def shortest_prefix(start: Trial, ranking: Sequence[str], harm: Mapping[str, float]) -> Search:
    """The fewest ops from the front of a ranking that must fall back from `start` to meet the criterion.

    Takes at most log2(n) + 3 trials, and few if the culprits rank high. `start` is taken to fail and the whole ranking
    to be enough, so that is never tried. If all but the last op is not enough, that op must fall back although it ranks
    last; if this lessens the loss, the search goes on among the others, with log2(n) + 1 trials for each such op.
    """
    rest, config = list(ranking), start.config
    found = yield from _bisect(config, rest, harm, PATIENCE)
    for _ in range(SEARCHES - 1):
        if found is not None or not rest:
            return found
        config = config.fallback(rest.pop())
        if not config.int8_ops:
            return None
        trial: Trial = yield config
        if trial.met:
            return trial
        if trial.loss is None or (start.loss is not None and trial.loss >= start.loss):
            return None
        start = trial
        found = yield from _bisect(config, rest, harm, 0)
    return found


def _bisect(config: QuantConfig, ranking: Sequence[str], harm: Mapping[str, float], patience: int) -> Search:
    """The same without a second search: prefixes that leave half of the harm of the one before, or double its length.

    After `patience` failures the ranking is worth little. Then, and when one prefix was enough, the gap is halved,
    which is the best one can do without a ranking.
    """
    left = [*itertools.accumulate(harm[name] for name in reversed(ranking))][::-1]
    failing, enough = 0, len(ranking)
    found: Trial | None = None
    while enough - failing > 1:
        length = (failing + enough) // 2
        if found is None and patience:
            halved = next((n for n in range(failing + 1, length) if left[n] <= left[failing] / 2), length)
            length = min(max(2 * failing, halved), length)
            patience -= 1
        trial: Trial = yield config.fallback(*ranking[:length])
        if trial.met:
            found, enough = trial, length
        else:
            failing = length
    return found


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
