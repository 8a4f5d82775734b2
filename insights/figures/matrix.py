"""How each trial runs each op: a table of colours."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from quaver.insights.data.followed import RunData
from quaver.insights.data.wording import figure_text
from quaver.insights.figures.style import FP32, INT8, empty, styled

# More than this cannot be told apart on a screen.
MOST_OPS, MOST_TRIALS = 150, 300


def matrix_figure(data: RunData) -> go.Figure:
    """A row an op, a column a trial. Ops that every trial runs in the same precision are left out."""
    picks = data.picks
    if not picks.rows:
        return empty("No trial yet.")
    columns = _columns(data)
    codes = np.stack([picks.rows[place] for place in columns])
    table = picks.reduced[codes]
    varied = np.flatnonzero(table.any(axis=0) & ~table.all(axis=0))
    if not varied.size:
        what = "int8" if table.all() else "the same precision"
        return empty(f"All trials run every op in {what}.")
    if len(varied) > MOST_OPS:  # those that were sent back most often
        often = (~table[:, varied]).sum(axis=0)
        varied = np.sort(varied[np.argsort(-often, kind="stable")[:MOST_OPS]])
    shown = table[:, varied].T.astype(np.uint8)
    figure = go.Figure(
        go.Heatmap(
            z=shown,
            x=[str(data.rows[place].trial.number) for place in columns],
            y=[_label(picks.ops[place]) for place in varied],
            customdata=np.array([str(choice.precision) for choice in picks.choices])[codes[:, varied].T],
            colorscale=[[0, FP32], [0.5, FP32], [0.5, INT8], [1, INT8]],
            zmin=0,
            zmax=1,
            showscale=False,
            xgap=1 if len(columns) < 80 else 0,
            ygap=1 if len(varied) < 80 else 0,
            hovertemplate="trial %{x}<br>%{y}<br>%{customdata}<extra></extra>",
        )
    )
    for name, colour in (("int8", INT8), ("fp32", FP32)):
        marker = {"color": colour, "symbol": "square", "size": 10}
        figure.add_scatter(x=[None], y=[None], mode="markers", name=name, marker=marker)
    return styled(
        figure,
        max(220, min(900, 110 + 18 * len(varied))),
        x={"title": "trial", "type": "category", "showgrid": False},
        y={"autorange": "reversed", "showgrid": False, "automargin": True, "type": "category"},
    )


def _label(name: str) -> str:
    return figure_text(name, 44)


def _columns(data: RunData) -> list[int]:
    """Which trials to show: all, or so many evenly spread, the best among them."""
    count = len(data.rows)
    if count <= MOST_TRIALS:
        return list(range(count))
    chosen = {int(place) for place in np.linspace(0, count - 1, MOST_TRIALS)}
    if data.best is not None:
        chosen.add(next(place for place, row in enumerate(data.rows) if row.trial.number == data.best.number))
    return sorted(chosen)
