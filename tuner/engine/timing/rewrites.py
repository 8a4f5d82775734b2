"""Leave out rewrites of the float graph that make a model slower on this machine.

A rewrite replaces kernels by others that are faster on most machines. Whether they are on this one, for this model, is
measured once: the rewritten float model against the user's own, interleaved. Only if it is clearly slower, the model is
built without each rewrite in turn. Several measurements must agree, or else the rewrites stay: a slow phase of the
machine must not change what is tuned. The decision is recorded in the history and in the timing cache.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from quaver.adapters import Adapter, Model, abilities
from quaver.engine.timing.cache import TimingCache
from quaver.engine.timing.latency import as_deployed, measure
from quaver.errors import QuaverError
from quaver.space import TuningSpace

log = logging.getLogger(__name__)

# A model is slower if it takes more than this many times the seconds of another. Judgement: interleaved figures of
# equal models differ by 2 % on a busy machine, and a tie must give the same answer each time.
MARGIN = 1.05
# Processor seconds of the first look, which most models pass, and of a measurement that decides. Judgement.
_FIRST_SECONDS, _SECONDS = 0.03, 0.5
# Measurements that must agree before a rewrite is left out. Judgement: a figure that is wrong by the margin one time in
# ten is so three times one time in a thousand.
AGREEING = 3
_RECORD, _KEY = "rewrites", "slow"


@dataclass(frozen=True, slots=True)
class _Pair:
    """Seconds of a model in fp32, and with all ops in int8."""

    fp32: float
    int8: float


def slow_rewrites(adapter: Adapter, cache: TimingCache | None = None) -> tuple[str, ...]:
    """Return the rewrites without which the model is faster on this machine.

    A rewrite that slows the float model down stays if it makes the int8 model faster than the float model is without
    it.

    Args:
        adapter: a model with probe samples, not calibrated yet.
        cache: holds the decision of an earlier run on the same model, machine and versions.
    """
    names = [name for name, _ in abilities.rewrites(adapter)]
    can_choose = abilities.supports(type(adapter), abilities.SupportsRewriteChoice)
    if not names or not adapter.probe_samples or not can_choose:
        return ()
    cache = TimingCache(None) if cache is None else cache
    decided = cache.get(_RECORD, _KEY)
    if isinstance(decided, list) and all(name in names for name in decided):
        return tuple(decided)
    try:
        slow = _measured(adapter, names) if _is_slower_than_given(adapter) else ()
    except QuaverError as error:  # a model that cannot be built or run shows later, with a better message
        log.info("the rewrites are not timed: %s", str(error).partition("\n")[0])
        return ()
    cache.put(_RECORD, {_KEY: list(slow)})
    if slow:
        log.warning("on this machine the float model is faster without these rewrites: %s", ", ".join(slow))
    return slow


def _is_slower_than_given(adapter: Adapter) -> bool:
    models = [abilities.build_unmodified(adapter), adapter.assemble(None)]
    given, tuned = _seconds(adapter, models, _FIRST_SECONDS)
    return tuned > given and all(tuned > MARGIN * given for given, tuned in _measurements(adapter, models))


def _measured(adapter: Adapter, names: Sequence[str]) -> tuple[str, ...]:
    """Return the rewrites that slow the float model down and that int8 does not need."""
    slow = []
    for name in names:
        with contextlib.suppress(QuaverError):  # without it, nothing may be left to quantize
            if all(_slows_down(*pair) for pair in _compared(adapter, [name])):
                slow.append(name)
    if slow == list(names):
        return tuple(slow)
    # Together they may not be enough. Then the model is tuned as it is given, unless int8 is faster with the rewrites.
    with contextlib.suppress(QuaverError):
        if all(
            before.fp32 > MARGIN * without.fp32 and min(before.fp32, before.int8) >= min(without.fp32, without.int8)
            for before, without in _compared(adapter, names, slow)
        ):
            return tuple(names)
    return tuple(slow)


def _slows_down(before: _Pair, without: _Pair) -> bool:
    """Return True if the float model is faster without a rewrite, and int8 does not need it."""
    needs_it = without.int8 > MARGIN * before.int8 and without.fp32 > before.int8
    return MARGIN * without.fp32 < before.fp32 and not needs_it


def _compared(adapter: Adapter, names: Sequence[str], skipped: Sequence[str] = ()) -> Iterator[tuple[_Pair, _Pair]]:
    """Yield the seconds of the model without `skipped`, and without `names`, interleaved, of several measurements."""
    with contextlib.ExitStack() as stack:
        models: list[Model] = []
        for left_out in (skipped, names):
            variant = abilities.require(adapter, abilities.SupportsRewriteChoice).without_rewrites(left_out)
            stack.callback(variant.close)
            models += [variant.assemble(None), variant.assemble(TuningSpace(variant.ops()).default_config())]
        for seconds in _measurements(adapter, models):
            yield _Pair(*seconds[:2]), _Pair(*seconds[2:])


def _measurements(adapter: Adapter, models: Sequence[Model]) -> Iterator[list[float]]:
    return (_seconds(adapter, models, _SECONDS) for _ in range(AGREEING))


def _seconds(adapter: Adapter, models: Sequence[Model], seconds: float) -> list[float]:
    latencies = measure([as_deployed(model) for model in models], adapter.timing_feed, seconds)
    return [latency.seconds for latency in latencies]
