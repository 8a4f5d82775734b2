"""Check that a history belongs to a model, and read its configurations for that model.

A history outlives versions of quaver. Another version may find other ops in a model or offer other choices for them, so
a rebuilt trial is checked by its sha256.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from quaver.adapters import Adapter
from quaver.adapters.options import OPS_VERSION
from quaver.errors import HistoryError, QuaverError
from quaver.history import Header
from quaver.history.records.header import OPS_VERSION_KEY
from quaver.ops import FLOAT, Op, QuantConfig
from quaver.types import PlainMapping


def check_same_model(adapter: Adapter, header: Header, path: Path) -> None:
    """Refuse a history of another model, or one with ops that this version does not find."""
    if header.adapter != adapter.name:
        raise HistoryError(f"{path} belongs to a model of {header.adapter}, not of {adapter.name}")
    if header.model_fingerprint != adapter.fingerprint:
        raise HistoryError(
            f"{path} belongs to another model: its fingerprint is {header.model_fingerprint[:12]}, "
            f"this one's {adapter.fingerprint[:12]}. Pass the float model that the run started from"
        )
    now = {op.name for op in adapter.ops()}
    gone = [op.name for op in header.ops if op.name not in now]
    if gone:
        raise HistoryError(
            f"{path} holds trials for the op {gone[0]!r}, which this version of quaver does not find in the model"
            f"{_and_more(gone)}. Use the version of quaver that recorded them, or start a new run"
        )


def check_same_ops(adapter: Adapter, header: Header, path: Path) -> None:
    """Refuse to resume a history if this version finds other ops in the model."""
    check_same_model(adapter, header, path)
    recorded = {op.name for op in header.ops}
    new = [op.name for op in adapter.ops() if op.name not in recorded]
    if new:
        raise HistoryError(
            f"{path} cannot be resumed: this version of quaver finds the op {new[0]!r} in the model, for which it "
            f"holds nothing{_and_more(new)}. Its trials can still be recovered; to tune on, start a new run"
        )


def restore(adapter: Adapter, header: Header, path: Path) -> None:
    """Restore the calibration of a history. A calibration that the adapter cannot use is an error of the file."""
    try:
        adapter.restore(header.calibration)
    except Exception as error:
        message = str(error) if isinstance(error, QuaverError) else f"{type(error).__name__}: {error}"
        raise HistoryError(
            f"the calibration in {path} cannot be used: {message:.300}. This adapter did not record it; start a new run"
        ) from error


def complete(config: QuantConfig, ops: Iterable[Op]) -> QuantConfig:
    """Return a recorded configuration for these ops; ops that were not recorded run in fp32."""
    return QuantConfig((op.name, config.get(op.name, FLOAT)) for op in ops)


def _and_more(names: list[str]) -> str:
    return f" (and {len(names) - 1} more like it)" if len(names) > 1 else ""


def was_optimised(settings: PlainMapping) -> bool:
    """Return whether a run rewrote the float graph; versions without that setting did not."""
    return settings.get("optimise_float") is True


# Runs of 0.2.0 did not record their version of the ops.
_UNRECORDED_OPS = 2


def ops_version_of(header: Header | None, settings: PlainMapping) -> int:
    """Return which ops a run found; the newest for a run that has not begun.

    Runs before 0.3.0 did not record it: they found the ops of 0.1.0 wherever they did not rewrite the float graph.
    """
    if header is None:
        return OPS_VERSION
    recorded = header.calibration.get(OPS_VERSION_KEY)
    if isinstance(recorded, int) and 1 <= recorded <= OPS_VERSION:
        return recorded
    return _UNRECORDED_OPS if was_optimised(settings) else 1


def was_portable(settings: PlainMapping) -> bool:
    """Return whether a run bounded int8 weights for processors without VNNI; versions without that setting did not."""
    return settings.get("portable") is True


def versions_of(adapter: Adapter) -> dict[str, str]:
    """Return the versions of quaver and of the packages that the adapter builds with."""
    try:
        own = version("quaver")
    except PackageNotFoundError:  # quaver runs from a folder and was never installed
        own = "0"
    return {"quaver": own, **adapter.versions}
