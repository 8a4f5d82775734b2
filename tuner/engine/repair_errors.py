"""What repairs would do to the error of each op by itself: a pass over the kept samples for each repair."""

from __future__ import annotations

import logging
from dataclasses import replace

from quaver.adapters import Adapter
from quaver.ops import FLOAT, QuantConfig
from quaver.space import TuningSpace

log = logging.getLogger(__name__)


def repaired_errors(
    adapter: Adapter, space: TuningSpace, config: QuantConfig | None
) -> dict[str, dict[str, float]] | None:
    """By repair the error of each op that could be given it, and under an empty name that without.

    None if there is nothing to repair. A failure costs a diagnosis just this.
    """
    able = [op for op in space.ops if config is not None and op.repairs and config[op.name].reduced]
    if config is None or not able or not adapter.kept:
        return None
    bare = {op.name: replace(config[op.name], repairs=()) for op in able}
    alone = QuantConfig((name, bare.get(name, FLOAT)) for name in config)
    found: dict[str, dict[str, float]] = {}
    try:
        for spelled in ("", *dict.fromkeys(one for op in able for one in op.repairs)):
            given = {op.name: pick for op in able if (pick := op.repaired(bare[op.name], spelled)) != bare[op.name]}
            errors = adapter.local_errors(alone.replace(given))
            names = given if spelled else bare
            found[spelled] = {name: _relative(*errors[name]) for name in names}
    except Exception:
        log.warning("what repairs would bring cannot be told", exc_info=True)
        return None
    return found


def _relative(noise: float, signal: float) -> float:
    return noise / signal if signal > 0 else noise
