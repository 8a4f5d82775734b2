"""Where the time goes: kernels of the fp32 model beside those of the best one."""

from __future__ import annotations

from dataclasses import dataclass

from quaver.insights.data.best_model import Kernel
from quaver.insights.data.run_reader import RunData
from quaver.unquantizable import Unquantizable, from_notes


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """One op, or kernel of no op.

    Attributes:
        kernel: its times.
        kind: "int8", "fp32", "conversion" or "rest" (what is no op, and stays float).
    """

    kernel: Kernel
    kind: str


def profile_rows(data: RunData) -> list[ProfileRow]:
    """The profile of the best model, those that take most first."""
    inside = data.inside
    number = inside.profile.get("trial")
    config = data.config(number) if isinstance(number, int) else None
    rows = []
    for kernel in inside.kernels:
        if kernel.converts:
            kind = "conversion"
        elif config is not None and kernel.name in data.places:
            kind = "int8" if config[kernel.name].quantized else "fp32"
        else:
            kind = "rest"
        rows.append(ProfileRow(kernel, kind))
    return rows


def totals(rows: list[ProfileRow], best: bool) -> dict[str, float]:
    """Seconds by kind, in the best model or in fp32."""
    found = dict.fromkeys(("int8", "fp32", "conversion", "rest"), 0.0)
    for row in rows:
        found[row.kind] += row.kernel.best if best else row.kernel.fp32
    return found


def uncovered(data: RunData) -> list[Unquantizable]:
    """What no int8 kernel covers, by kind, with its share of the fp32 time."""
    return [one for one in from_notes(data.snapshot.notes) if one.share is None or one.share > 0]
