"""Several configurations at once, where there are workers for them."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from quaver.ops import QuantConfig
from quaver.trial import Trial

Beside = Generator[QuantConfig | Sequence[QuantConfig], Any, list[Trial]]

# Of configurations that do not depend on results so many times the width are asked for at once: nobody waits then for
# the slowest of a list, and the run ends no later for it.
AHEAD = 4


def beside(configs: Iterable[QuantConfig], width: int) -> Beside:
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
    while width > 1 and (asked := list(islice(configs, AHEAD * width))):
        yield asked
    yield from configs
