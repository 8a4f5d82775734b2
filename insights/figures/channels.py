"""The range of each channel, sorted, and how its values lie."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from quaver.insights.data.inside import Histogram
from quaver.insights.figures.style import INT8, empty, styled


def channels_figure(seen: Histogram | None, what: str) -> go.Figure:
    """From the channel with the widest range to that with the smallest."""
    if seen is None or seen.channel_low.size < 2:
        return empty(f"The {what} has one channel only, or it was not looked into.")
    order = np.argsort(-np.maximum(np.abs(seen.channel_low), np.abs(seen.channel_high)), kind="stable")
    low, high = seen.channel_low[order], seen.channel_high[order]
    figure = go.Figure(
        go.Bar(
            x=np.arange(1, len(order) + 1),
            y=high - low,
            base=low,
            customdata=np.stack([order * seen.run, low, high], axis=1),
            marker={"color": INT8, "line": {"width": 0}},
            hovertemplate="channel %{customdata[0]}: %{customdata[1]:.4g} to %{customdata[2]:.4g}<extra></extra>",
        )
    )
    each = "channels" if seen.run == 1 else f"runs of {seen.run} channels"
    across = {"title": f"{each} of the {what}, the widest first", "tickformat": "d"}
    return styled(figure, 300, legend=False, x=across, y={"title": "range"}, bargap=0.05)


def rows_figure(seen: Histogram | None, what: str) -> go.Figure:
    """A histogram for each channel, as a row of colours."""
    if seen is None or len(seen.rows) < 2:
        return empty(f"There is no histogram by channel of the {what}.")
    edges = np.linspace(seen.low, seen.high, seen.rows.shape[1] + 1)
    figure = go.Figure(
        go.Heatmap(
            z=seen.rows,
            x=(edges[:-1] + edges[1:]) / 2,
            y=np.arange(len(seen.rows)) * seen.row_run,
            colorscale=[[0, "#FFFFFF"], [0.02, "#D6E6F2"], [1, "#08306B"]],
            showscale=False,
            hovertemplate="channel %{y}, value %{x:.4g}<extra></extra>",
        )
    )
    return styled(
        figure,
        300,
        legend=False,
        x={"title": f"value of the {what}; darker is more", "showgrid": False},
        y={"title": "channel", "autorange": "reversed", "showgrid": False},
    )
