"""The range of each channel, sorted, and how its values lie."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from quaver.insights.data.best_model import Histogram, OpInside
from quaver.insights.data.op_rows import OpRow
from quaver.insights.data.text import figure_text
from quaver.insights.figures.style import FAILED, FAINT, FP32, INT8, REST, empty, styled
from quaver.types import PlainDict


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


def weights_figure(rows: Sequence[OpRow]) -> go.Figure:
    """For each op how far its weights reach, and those of its median channel: far apart is bad for one scale."""
    seen = [(place, row, row.inside.weight) for place, row in enumerate(rows) if row.inside.weight is not None]
    if not seen:
        return empty("No weights were looked into.")
    figure = go.Figure()
    for name, colour, soft, quantized in (("int8", INT8, "#A6CEE3", True), ("fp32", FP32, "#F6DDA8", False)):
        chosen = [(place, row, weight) for place, row, weight in seen if row.pick.quantized == quantized]
        figure.add_bar(
            x=[place + 1 for place, _, _ in chosen],
            y=[2 * weight.reach for _, _, weight in chosen],
            base=[-weight.reach for _, _, weight in chosen],
            customdata=[[figure_text(row.op.name), weight.reach, weight.median_reach] for _, row, weight in chosen],
            marker={"color": soft, "line": {"width": 0}},
            name=f"{name}: all weights",
            hovertemplate="%{customdata[0]}<br>all weights: ±%{customdata[1]:.3g}<br>"
            "median channel: ±%{customdata[2]:.3g}<extra></extra>",
        )
        figure.add_bar(
            x=[place + 1 for place, _, _ in chosen],
            y=[2 * weight.median_reach for _, _, weight in chosen],
            base=[-weight.median_reach for _, _, weight in chosen],
            marker={"color": colour, "line": {"width": 0}},
            name=f"{name}: the median channel",
            hoverinfo="skip",
        )
    across = {"title": "op, in graph order", "tickformat": "d"}
    return styled(figure, 340, x=across, y={"title": "range of the weights"}, barmode="overlay", bargap=0.2)


# So many lines can be told apart.
_LINES = 64
# Weights are quantized to both sides of zero.
_SIDE = 127


def weight_figure(inside: OpInside) -> go.Figure:
    """The histogram of an op's weight."""
    seen = inside.weight
    if seen is None:
        return empty("This op has no weight, or it was not looked into.")
    if math.isnan(seen.scale):
        return _bars(seen, None, 0.0, "weight")
    return _bars(seen, (-_SIDE * seen.scale, _SIDE * seen.scale), seen.scale, "weight")


def activation_figure(inside: OpInside) -> go.Figure:
    """The histogram of an op's output."""
    seen = inside.activation
    if seen is None:
        return empty("The output of this op was not looked into.")
    limits = inside.limits
    return _bars(seen, (limits[0], limits[1]) if limits else None, limits[2] if limits else 0.0, "activation")


def _bars(seen: Histogram, limits: tuple[float, float] | None, step: float, what: str) -> go.Figure:
    bars = go.Bar(
        x=seen.centres,
        y=np.where(seen.counts > 0, seen.counts, np.nan),
        width=(seen.high - seen.low) / len(seen.counts),
        marker={"color": REST, "line": {"width": 0}},
        name=what,
        hovertemplate="%{x:.4g}: %{y:,} values<extra></extra>",
    )
    low, high = seen.low, seen.high
    drawn: PlainDict = {}
    if limits is not None and step > 0:
        drawn["shapes"] = [
            {**_TALL, "type": "rect", "x0": limits[0], "x1": limits[1], "fillcolor": INT8, "opacity": 0.08,
             "line": {"width": 0}, "layer": "below"},
            *(_line(edge, INT8, 1.5) for edge in limits),
            *_steps(max(limits[0], low), min(limits[1], high), step),
        ]  # fmt: skip
        low, high = min(low, limits[0]), max(high, limits[1])
        drawn["annotations"] = [
            {"text": _about(seen, step), "showarrow": False, "xref": "paper", "yref": "paper", "x": 0, "y": 1.1,
             "xanchor": "left", "font": {"size": 12, "color": FAINT}}
        ]  # fmt: skip
    room = 0.02 * (high - low)
    return styled(
        go.Figure(bars),
        330,
        legend=False,
        x={"title": f"value of the {what}", "range": [low - room, high + room]},
        y={"title": "values", "type": "log", "dtick": 1, "exponentformat": "power"},
        **drawn,
    )


_TALL = {"xref": "x", "yref": "paper", "y0": 0, "y1": 1}


def _line(x: float, colour: str, width: float) -> PlainDict:
    return {**_TALL, "type": "line", "x0": x, "x1": x, "line": {"color": colour, "width": width}}


def _steps(low: float, high: float, step: float) -> list[PlainDict]:
    """The steps themselves, where they are so wide that they can be told apart."""
    first, last = math.ceil(low / step), math.floor(high / step)
    if not 0 < last - first <= _LINES:
        return []
    return [_line(number * step, FAILED, 0.5) for number in range(first, last + 1)]


def _about(seen: Histogram, step: float) -> str:
    usual = seen.usual
    steps = min(255, max(1, round(usual / step))) if math.isfinite(usual) else 0
    several = f"; {seen.scales:,} scales, the widest is drawn" if seen.scales > 1 else ""
    return f"int8 range (blue), one step is {step:.3g}; 99 % of the values share about {steps} of 255 steps{several}"
