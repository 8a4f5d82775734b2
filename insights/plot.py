"""`result.plot`: the figures of a run in Python."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from quaver.errors import HistoryError, MissingPackageError, SettingsError
from quaver.extras import install_command
from quaver.insights.data.op_rows import OpRow, op_rows
from quaver.insights.data.run_reader import FollowedRun, RunData
from quaver.suggestions import hint

if TYPE_CHECKING:
    import plotly.graph_objects as go


class Plot:
    """Draw a run, given its folder. Each method returns a plotly figure."""

    def __init__(self, workspace: str | os.PathLike[str]) -> None:
        self._run = FollowedRun(Path(workspace))

    def trials(self) -> go.Figure:
        """Return the score of each trial, with fp32's score and the allowed score."""
        _check_plotly()
        from quaver.insights.figures.trials import trials_figure

        return trials_figure(self._data())

    def pareto(self, by: str = "latency") -> go.Figure:
        """Return the loss over "latency" or "size", with the Pareto front."""
        _check_plotly()
        from quaver.engine.timing.objective import axes
        from quaver.insights.figures.tradeoff import tradeoff_figure

        if by not in axes():
            raise SettingsError(f"`by` must be {' or '.join(axes())}, not {by!r}")
        return tradeoff_figure(self._data(), by)

    def sizes(self) -> go.Figure:
        """Return the divergence of a language model over the bytes of its weights."""
        _check_plotly()
        from quaver.insights.figures.tradeoff import sizes_figure

        return sizes_figure(self._data())

    def ops(self) -> go.Figure:
        """Return the error and the time of every op, in graph order."""
        _check_plotly()
        from quaver.insights.figures.ops import ops_figure

        return ops_figure(op_rows(self._data()))

    def histogram(self, op: str) -> go.Figure:
        """Return the histogram of an op's weight with the int8 range and its steps.

        An op without a weight shows its output instead.
        """
        _check_plotly()
        from quaver.insights.figures.distributions import activation_figure, weight_figure

        row = self._row(op)
        return activation_figure(row.details) if row.details.weight is None else weight_figure(row.details)

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
            f"figures need plotly, which is not installed: {install_command('insights')}"
        ) from error
