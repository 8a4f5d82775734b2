"""Searching along a ranking of ops: steps that several strategies are made of.

Each is a generator to be used with `yield from`: it yields configurations, is sent their trials, and returns the
trial it ends with. All assume that more fallbacks mean more accuracy. Where that does not hold they find less than
they could, but what they return has always been tried.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from quaver.ops import QuantConfig
from quaver.trial import Trial

Search = Generator[QuantConfig, Any, Trial | None]


def shortest_prefix(config: QuantConfig, ranking: Sequence[str]) -> Search:
    """The fewest ops from the front of a ranking that must fall back from `config` to meet the criterion.

    Doubles the number until a trial meets the criterion, then halves the gap to the last one that did not: at most
    2 log2(n) + 1 trials, and few if the culprits rank high. `config` itself is taken to fail and the whole ranking
    to be enough, so neither is tried; None means that nothing less than the whole ranking will do.
    """
    failing, enough = 0, len(ranking)
    found: Trial | None = None
    while enough - failing > 1:
        length = max(2 * failing, 1)
        if found is not None or length >= enough:
            length = (failing + enough) // 2
        trial: Trial = yield config.fallback(*ranking[:length])
        if trial.met:
            found, enough = trial, length
        else:
            failing = length
    return found


def prune(start: Trial, config: QuantConfig, candidates: Sequence[str]) -> Search:
    """Bring ops of `start` back to what they are in `config`, as long as the criterion stays met.

    `candidates` are tried in groups, the least likely to be needed first: a group that can return costs one trial,
    one that cannot is halved until the op that is needed stands alone. For d needed ops out of n that is about
    d log2(n/d) trials.
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
        if trial.met:
            best, rest = trial, rest[len(group) :]
            if blocked:
                blocked -= len(group)
            else:
                size *= 2
        else:
            blocked, size = len(group), max(1, size // 2)
    return best
