"""Which parts of the outputs an op disturbs: the boxes of a detector, its class scores, or both."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from quaver.adapters import Adapter
from quaver.engine.inspection.output_error import OutputErrors
from quaver.engine.measurements import OUTPUT_METRIC
from quaver.ops import FLOAT, QuantConfig
from quaver.types import PlainMapping

log = logging.getLogger(__name__)

# Ops whose parts are measured. Judgement: those that a reader looks at first.
MAX_OPS = 12
# Feeds to measure them on, each a sample where the model takes single ones. Judgement: parts differ by factors.
MAX_FEEDS = 4


def part_errors(adapter: Adapter, config: QuantConfig | None, ops: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return, for each of these ops, the error of each part of the outputs when only this op is quantized.

    Args:
        adapter: the adapter of the float model, with probe samples.
        config: how the ops are quantized.
        ops: the ops; those in fp32 are left out, and all beyond `MAX_OPS`.

    Returns:
        Errors by op and by part. Empty if the outputs are of one part, or if measuring fails: the diagnosis then lacks
        only this.
    """
    names = [name for name in ops if config is not None and config[name].quantized][:MAX_OPS]
    feeds = adapter.probe_samples[:MAX_FEEDS]
    if config is None or not names or not feeds:
        return {}
    errors = OutputErrors(adapter, list(config)[-1], feeds)
    alone = QuantConfig((name, FLOAT) for name in config)
    try:
        if len(errors.metric(len(feeds)).parts) < 2:
            return {}
        return {
            name: {
                part.part.title: part.error for part in errors.by_slice(alone.replace({name: config[name]}), len(feeds))
            }
            for name in names
        }
    except Exception:
        log.warning("the errors of the parts of the outputs could not be measured", exc_info=True)
        return {}


def most_sensitive(notes: PlainMapping, config: QuantConfig) -> list[str]:
    """Return the ops whose sensitivity a history holds, in the choices of a configuration, the most sensitive first."""
    noted: Mapping[str, float] = notes.get(f"probe.sensitivity.{OUTPUT_METRIC}", {})
    errors = {name: noted[key] for name, choice in config.items() if (key := f"{name} {choice}") in noted}
    return sorted(errors, key=lambda name: -errors[name])
