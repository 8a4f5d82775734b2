"""Whether a history belongs to the model at hand."""

from __future__ import annotations

from pathlib import Path

from quaver.adapters import Adapter
from quaver.errors import HistoryError
from quaver.history import Header


def check_same_model(adapter: Adapter, header: Header, path: Path) -> None:
    """Refuse a history of another model, with the reason."""
    if header.adapter != adapter.name:
        raise HistoryError(f"{path} belongs to a model of {header.adapter}, not of {adapter.name}")
    if header.model_fingerprint != adapter.fingerprint:
        raise HistoryError(
            f"{path} belongs to another model: its fingerprint is {header.model_fingerprint[:12]}, "
            f"this one's {adapter.fingerprint[:12]}. Give the float model that the run started from"
        )
    if header.ops != adapter.inspect():
        raise HistoryError(f"{path} lists other ops than this version of quaver finds in the model; start a new run")
