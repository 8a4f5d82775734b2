"""Remove boundaries between fp32 and quantized ops: each costs a conversion, which the times of ops do not show."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from quaver.ops import QuantConfig
from quaver.probe import OpTime, Probe
from quaver.space import TuningSpace
from quaver.strategies.steps.search import Search
from quaver.strategies.steps.tuning import TUNING
from quaver.trial import Trial


def fewer_boundaries(met: Trial, reference: QuantConfig, space: TuningSpace, probe: Probe) -> Search:
    """Make a model that meets the criterion faster, step by step, as long as it stays met.

    A move sends a run of quantized ops between fp32 ones to fp32, or takes a run of fallen ops, or one end of it, back
    to what it is in `reference`. The move that makes the whole model fastest is evaluated first. Every fallen op of
    `met` is assumed to be needed as long as no other one falls, as `prune` leaves it.
    """
    best, fp32 = met, frozenset(met.config.fp32_ops)
    not_enough = [fp32 - {name} for name in fp32 if reference[name].quantized]
    for _ in range(TUNING.max_boundary_trials):
        moves = {
            move
            for move in _moves(best.config, reference, space, probe.latency())
            if not any(names.issuperset(move.fp32_ops) for names in not_enough)
        }
        fast = min(sorted(moves, key=lambda move: move.fingerprint), key=probe.speed, default=None)
        if fast is None or probe.speed(fast) > TUNING.clearly_faster * probe.speed(best.config):
            break
        trial: Trial = yield fast
        if trial.met:
            best = trial
        else:
            not_enough.append(frozenset(fast.fp32_ops))
    return best


def _moves(
    config: QuantConfig, reference: QuantConfig, space: TuningSpace, times: Mapping[str, OpTime]
) -> Iterator[QuantConfig]:
    def saved(names: list[str]) -> float:
        return sum(times[name].saved for name in names)

    # Ops are in graph order, which is near enough to the order in which they read from each other.
    grouped = itertools.groupby(space.tunable, key=lambda name: config[name].quantized)
    runs = [(quantized, list(names)) for quantized, names in grouped]
    islands = sorted((names for quantized, names in runs if quantized), key=saved)
    for names in islands[: TUNING.max_boundary_moves] if len(islands) > 1 else ():
        yield config.fallback(*names)
    fallen = [[name for name in names if reference[name].quantized] for quantized, names in runs if not quantized]
    parts = sorted((part for names in fallen for part in _ends(names)), key=saved, reverse=True)
    for part in parts[: TUNING.max_boundary_moves]:
        yield config.replace({name: reference[name] for name in part})


def _ends(names: list[str]) -> Iterator[list[str]]:
    """Yield the whole run, and what can be cut off at either end of it."""
    for length in range(1, len(names) + 1):
        yield names[:length]
        if length < len(names):
            yield names[-length:]
