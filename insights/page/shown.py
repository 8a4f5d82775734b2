"""What a view is made from: one run as it is now, and what the reader has chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from quaver.insights.data.followed import RunData
from quaver.insights.data.op_rows import OpRow


@dataclass(frozen=True)
class Shown:
    """One run.

    Attributes:
        data: the run.
        ops: its ops in the best trial, made when they are asked for.
        others: all runs by key, with their names, for views that compare them.
        op: the place of the op that was chosen; None if none was.
    """

    data: RunData
    ops: Callable[[], list[OpRow]]
    others: dict[str, str] = field(default_factory=dict)
    op: int | None = None
