"""What each op takes in fp32 and reduced, measured in turns until it does not fall any more.

A processor has slow spells of a tenth of a second and more, in which everything takes half as long again: one profile
may lie in one altogether. The least of several that lie apart is what an op takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quaver.adapters import Adapter
from quaver.ops import QuantConfig

# Rounds to take at least and at most.
ROUNDS = (3, 7)
# Two rounds that lower the sum of all ops by no more than this part have told enough.
ENOUGH = 0.01

Seconds = Mapping[str, float]


def op_times(adapter: Adapter, config: QuantConfig) -> tuple[Seconds, Seconds]:
    """Seconds of each op in fp32 and as in `config`, on one thread; what belongs to no op is under the empty name."""
    fp32, reduced = _least(adapter, (None, config))
    return fp32, reduced


def least_seconds(adapter: Adapter, config: QuantConfig) -> Seconds:
    """The same of a single configuration."""
    return _least(adapter, (config,))[0]


def _least(adapter: Adapter, configs: Sequence[QuantConfig | None]) -> list[dict[str, float]]:
    least: list[dict[str, float]] = [{} for _ in configs]
    sums: list[float] = []
    for done in range(1, ROUNDS[1] + 1):
        for known, which in zip(least, configs, strict=True):
            for name, seconds in adapter.op_seconds(which, threads=1).items():
                known[name] = min(seconds, known.get(name, seconds))
        sums.append(sum(sum(known.values()) for known in least))
        if done >= ROUNDS[0] and sums[-1] >= (1.0 - ENOUGH) * sums[-3]:
            break
    return least
