"""`result.plot`: the figures of a run in Python."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from quaver.errors import HistoryError, MissingPackageError, SettingsError
from quaver.insights.data.op_rows import OpRow, op_rows
from quaver.insights.data.run_reader import FollowedRun, RunData
from quaver.suggestions import hint

if TYPE_CHECKING:
    import plotly.graph_objects as go


class Plot:
    """Draws a run, given its folder. Each method returns a plotly figure."""

    def __init__(self, workspace: str | os.PathLike[str]) -> None:
        self._run = FollowedRun(Path(workspace))

    def trials(self) -> go.Figure:
        """The score over the number of the trial, with what fp32 scores and what is allowed."""
        _check_plotly()
        from quaver.insights.figures.trials import trials_figure

        return trials_figure(self._data())

    def pareto(self, by: str = "latency") -> go.Figure:
        """Loss over "latency" or "size", with the trials that none beats in both."""
        _check_plotly()
        from quaver.engine.timing.objective import axes
        from quaver.insights.figures.tradeoff import tradeoff_figure

        if by not in axes():
            raise SettingsError(f"`by` must be {' or '.join(axes())}, not {by!r}")
        return tradeoff_figure(self._data(), by)

    def ops(self) -> go.Figure:
        """The error and the time of every op, in graph order."""
        _check_plotly()
        from quaver.insights.figures.ops import ops_figure

        return ops_figure(op_rows(self._data()))

    def histogram(self, op: str) -> go.Figure:
        """How the weight of an op lies, or its output if it has none, with the int8 range and its steps."""
        _check_plotly()
        from quaver.insights.figures.distributions import activation_figure, weight_figure

        row = self._row(op)
        return activation_figure(row.inside) if row.inside.weight is None else weight_figure(row.inside)

    def _data(self) -> RunData:
        data = self._run.poll()
        if data is None:
            raise HistoryError(self._run.problem or f"{self._run.path} holds no trial yet")
        return data

    def _row(self, op: str) -> OpRow:
        rows = {row.op.name: row for row in op_rows(self._data())}
        if op not in rows:
            raise SettingsError(f"no op is called {op!r}; {hint(op, rows)}")
        return rows[op]


def _check_plotly() -> None:
    try:
        import plotly  # noqa: F401
    except ImportError as error:
        raise MissingPackageError(
            "figures need plotly, which is not installed: pip install 'quaver[insights]'"
        ) from error
