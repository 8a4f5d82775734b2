"""The profile of the best model: its kernels next to those of the fp32 model."""

from __future__ import annotations

from dataclasses import dataclass

from quaver.insights.data.best_model import Kernel
from quaver.insights.data.run_reader import RunData
from quaver.unquantizable import Unquantizable, from_notes


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """One op, or one kernel without an op.

    Attributes:
        kernel: its times.
        kind: "int8", "fp32", "conversion", or "rest" for kernels that stay float and belong to no op.
    """

    kernel: Kernel
    kind: str


def profile_rows(data: RunData) -> list[ProfileRow]:
    """Return the profile of the best model, the slowest first."""
    inspection = data.inspection
    number = inspection.profile.get("trial")
    config = data.config(number) if isinstance(number, int) else None
    rows = []
    for kernel in inspection.kernels:
        if kernel.converts:
            kind = "conversion"
        elif config is not None and kernel.name in data.places:
            kind = "int8" if config[kernel.name].quantized else "fp32"
        else:
            kind = "rest"
        rows.append(ProfileRow(kernel, kind))
    return rows


def totals(rows: list[ProfileRow], best: bool) -> dict[str, float]:
    """Return the seconds of each kind, in the best model or in fp32."""
    seconds = dict.fromkeys(("int8", "fp32", "conversion", "rest"), 0.0)
    for row in rows:
        seconds[row.kind] += row.kernel.best if best else row.kernel.fp32
    return seconds


def uncovered(data: RunData) -> list[Unquantizable]:
    """Return the kinds of nodes that no int8 kernel covers, with their share of the fp32 time."""
    return [kind for kind in from_notes(data.snapshot.notes) if kind.share is None or kind.share > 0]
