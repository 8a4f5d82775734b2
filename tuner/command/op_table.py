"""Tables of the ops of a trial, and of the ops in which two trials differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.text import Text

from quaver.api.display import tables
from quaver.ops import DETAILS, Op, OpConfig, QuantConfig
from quaver.trial_lineage import Change

HEADINGS = ("op", "kind", "precision", *DETAILS, "repairs")


def write(ops: Sequence[Op], config: QuantConfig) -> None:
    """Print a row for each op. In a terminal, what all quantized ops share is printed once, below the table."""
    if not ops:
        print("no op runs in fp32")
        return
    rows = [_cells(op, config[op.name]) for op in ops]
    common: dict[int, str] = {}
    if tables.columns() is not None:
        quantized = [cells for op, cells in zip(ops, rows, strict=True) if config[op.name].quantized]
        for at in range(3, len(HEADINGS)):
            values = {cells[at] for cells in quantized}
            if len(values) <= 1:
                common[at] = next(iter(values), "")
    columns = [at for at in range(len(HEADINGS)) if at not in common]
    table = [[_coloured(cells[at], at, config[op.name]) for at in columns] for op, cells in zip(ops, rows, strict=True)]
    tables.write([HEADINGS[at] for at in columns], table)
    if shared := " ".join(filter(None, common.values())):
        tables.line(f"all quantized ops: {shared}")


def write_changes(changes: Iterable[Change], kinds: Mapping[str, str], names: Sequence[str]) -> None:
    """Print the ops that two trials run differently, below their names; only the precisions where those differ."""
    rows = [(change.op, kinds.get(change.op, "-"), *_sides(change)) for change in changes]
    tables.write(("op", "kind", *names), rows)


def op_to_dict(op: Op, pick: OpConfig) -> dict[str, str]:
    """Return a row as JSON."""
    return dict(zip(HEADINGS, _cells(op, pick), strict=True))


def _cells(op: Op, pick: OpConfig) -> tuple[str, ...]:
    details = (getattr(pick, field) for field in DETAILS)
    return op.name, op.kind, str(pick.precision), *details, " ".join(pick.repairs)


def _coloured(text: str, at: int, pick: OpConfig) -> Text:
    return tables.cell(text or "-", tables.FP32 if HEADINGS[at] == "precision" and not pick.quantized else "")


def _sides(change: Change) -> tuple[Text, Text]:
    sides = (change.before, change.now)
    whole = len({pick and pick.precision for pick in sides}) == 1
    before, now = (
        tables.cell("-") if pick is None
        else tables.cell(str(pick if whole else pick.precision), "" if pick.quantized else tables.FP32)
        for pick in sides
    )  # fmt: skip
    return before, now
