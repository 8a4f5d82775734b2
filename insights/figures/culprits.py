"""Which ops cost accuracy, and what sending them back brings."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from quaver.insights.data.culprits import Step
from quaver.insights.data.followed import RunData
from quaver.insights.data.op_rows import OpRow
from quaver.insights.data.verdict import allowed_score
from quaver.insights.data.wording import figure_text
from quaver.insights.figures.style import FP32, INT8, MET, empty, level, styled

_LEAST = 1e-9


def ranking_figure(rows: Sequence[OpRow]) -> go.Figure:
    """The ops that disturb the output most."""
    if not rows:
        return empty("No op was measured by itself: this strategy does not need it.")
    figure = go.Figure()
    for name, colour, reduced in (("runs in int8", INT8, True), ("runs in fp32", FP32, False)):
        chosen = [row for row in rows if row.pick.reduced == reduced]
        figure.add_bar(
            y=[_label(row) for row in chosen],
            x=[max(row.shown_error, _LEAST) for row in chosen],
            orientation="h",
            name=name,
            marker={"color": colour, "line": {"width": 0}},
            customdata=[figure_text(row.op.kind) for row in chosen],
            hovertemplate="%{y} (%{customdata})<br>error %{x:.3g}<extra></extra>",
        )
    return styled(
        figure,
        110 + 22 * len(rows),
        x={"type": "log", "title": "error with this op alone in int8 (squared, as a part of the signal)", "dtick": 1,
           "exponentformat": "power"},
        y={"type": "category", "automargin": True, "autorange": "reversed", "categoryorder": "array",
           "categoryarray": [_label(row) for row in rows]},
        barmode="overlay",
        bargap=0.25,
    )  # fmt: skip


def _label(row: OpRow) -> str:
    return figure_text(row.op.name, 48)


def steps_figure(data: RunData, path: Sequence[Step]) -> go.Figure:
    """The best score with so many ops in fp32."""
    if not path:
        return empty("No trial has a score yet.")
    figure = go.Figure(
        go.Scatter(
            x=[step.fp32 for step in path],
            y=[step.score for step in path],
            customdata=[step.number for step in path],
            mode="lines+markers",
            line={"shape": "hv", "color": FP32, "width": 2},
            marker={"size": 9, "color": FP32},
            hovertemplate="%{x} fp32 ops: %{y:.6g} (trial %{customdata})<extra></extra>",
        )
    )
    base, criterion = data.baseline, data.criterion
    if base is not None and base.score is not None:
        allowed = allowed_score(base.score, criterion.first)
        figure.add_hline(**level(allowed, f"allowed {allowed:.4g}", MET, "dash"))
    return styled(figure, 340, legend=False, x={"title": "ops in fp32", "tickformat": "d"}, y={"title": "best score"})
