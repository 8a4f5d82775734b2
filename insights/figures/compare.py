"""Several runs on the same axes."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from quaver.insights.data.followed import RunData
from quaver.insights.data.wording import figure_text, loss
from quaver.insights.figures.style import SERIES, empty, styled


def compare_trials(runs: Sequence[RunData]) -> go.Figure:
    """The best loss so far over the number of evaluations."""
    figure = go.Figure()
    for colour, data in zip(_colours(len(runs)), runs, strict=True):
        best, xs, ys = None, [], []
        factor = 100.0 if data.criterion.is_relative else 1.0
        for place, row in enumerate(data.rows, 1):
            if row.trial.loss is not None:
                best = row.trial.loss if best is None else min(best, row.trial.loss)
                xs.append(place)
                ys.append(factor * best)
        name = figure_text(data.name, 40)
        figure.add_scatter(x=xs, y=ys, mode="lines+markers", name=name, line={"color": colour, "shape": "hv"})
    if not runs:
        return empty("Choose two or more runs.")
    down = {"title": "smallest loss so far (%, where it is relative)"}
    return styled(figure, x={"title": "trial", "tickformat": "d"}, y=down)


def compare_tradeoff(runs: Sequence[RunData]) -> go.Figure:
    """Loss over latency of all trials that were measured; the best of each run is filled."""
    figure = go.Figure()
    for colour, data in zip(_colours(len(runs)), runs, strict=True):
        rows = [row for row in data.rows if row.latency is not None and row.trial.loss is not None]
        factor = 100.0 if data.criterion.is_relative else 1.0
        best = None if data.best is None else data.best.number
        figure.add_scatter(
            x=[row.latency for row in rows],
            y=[factor * (row.trial.loss or 0.0) for row in rows],
            mode="markers",
            name=figure_text(data.name, 40),
            customdata=[[row.trial.number, loss(row.trial.loss, data.criterion)] for row in rows],
            marker={
                "color": colour,
                "size": [14 if row.trial.number == best else 8 for row in rows],
                "symbol": ["diamond" if row.trial.number == best else "circle-open" for row in rows],
                "line": {"width": 1.6, "color": colour},
            },
            hovertemplate="trial %{customdata[0]}: loss %{customdata[1]}, latency %{x:.3g}<extra></extra>",
        )
    if not runs:
        return empty("Choose two or more runs.")
    down = {"title": "loss (%, where it is relative; below 0: better than fp32)"}
    return styled(figure, x={"title": "latency, as a part of fp32's"}, y=down)


def _colours(count: int) -> list[str]:
    return [SERIES[place % len(SERIES)] for place in range(count)]
