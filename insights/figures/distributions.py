"""The range of each channel, and the distribution of its values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from quaver.insights.data.best_model import Histogram, OpDetails
from quaver.insights.data.op_rows import OpRow
from quaver.insights.data.text import figure_text
from quaver.insights.figures.style import FAILED, FAINT, FP32, INT8, REST, TRANSPARENT, empty, styled
from quaver.types import PlainDict


def channels_figure(histogram: Histogram | None, tensor: str) -> go.Figure:
    """Draw the range of each channel, the widest first."""
    if histogram is None or histogram.channel_low.size < 2:
        return empty(f"The {tensor} has only one channel, or was not inspected.")
    order = np.argsort(-np.maximum(np.abs(histogram.channel_low), np.abs(histogram.channel_high)), kind="stable")
    low, high = histogram.channel_low[order], histogram.channel_high[order]
    figure = go.Figure(
        go.Bar(
            x=np.arange(1, len(order) + 1),
            y=high - low,
            base=low,
            customdata=np.stack([order * histogram.run, low, high], axis=1),
            marker={"color": INT8, "line": {"width": 0}},
            hovertemplate="channel %{customdata[0]}: %{customdata[1]:.4g} to %{customdata[2]:.4g}<extra></extra>",
        )
    )
    each = "channels" if histogram.run == 1 else f"groups of {histogram.run} channels"
    across = {"title": f"{each} of the {tensor}, the widest first", "tickformat": "d"}
    return styled(figure, 300, legend=False, x=across, y={"title": "range"}, bargap=0.05)


def rows_figure(histogram: Histogram | None, tensor: str) -> go.Figure:
    """Draw a histogram of each channel as a row of colours."""
    if histogram is None or len(histogram.rows) < 2:
        return empty(f"There is no histogram of each channel of the {tensor}.")
    edges = np.linspace(histogram.low, histogram.high, histogram.rows.shape[1] + 1)
    figure = go.Figure(
        go.Heatmap(
            z=histogram.rows,
            x=(edges[:-1] + edges[1:]) / 2,
            y=np.arange(len(histogram.rows)) * histogram.row_run,
            colorscale=[[0, TRANSPARENT], [0.02, "#9CC4DF"], [1, "#1D6FA5"]],
            showscale=False,
            hovertemplate="channel %{y}, value %{x:.4g}<extra></extra>",
        )
    )
    return styled(
        figure,
        300,
        legend=False,
        x={"title": f"value of the {tensor}; stronger colours are more values", "showgrid": False},
        y={"title": "channel", "autorange": "reversed", "showgrid": False},
    )


def weights_figure(rows: Sequence[OpRow]) -> go.Figure:
    """Draw the range of each op's weights, and that of the median channel.

    Where they are far apart, one scale for all channels is inaccurate.
    """
    histogram = [(place, row, row.details.weight) for place, row in enumerate(rows) if row.details.weight is not None]
    if not histogram:
        return empty("No weights were inspected.")
    figure = go.Figure()
    for name, colour, soft, quantized in (("int8", INT8, "#A6CEE3", True), ("fp32", FP32, "#F6DDA8", False)):
        chosen = [(place, row, weight) for place, row, weight in histogram if row.choice.quantized == quantized]
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


# Judgement: more lines cannot be distinguished.
MAX_LINES = 64
# The largest integer of a weight in int8, which is symmetric around zero.
MAX_WEIGHT = 127


def weight_figure(details: OpDetails) -> go.Figure:
    """Draw the histogram of an op's weight."""
    histogram = details.weight
    if histogram is None:
        return empty("This op has no weight, or it was not inspected.")
    if math.isnan(histogram.scale):
        return _histogram_figure(histogram, None, 0.0, "weight")
    return _histogram_figure(
        histogram, (-MAX_WEIGHT * histogram.scale, MAX_WEIGHT * histogram.scale), histogram.scale, "weight"
    )


def activation_figure(details: OpDetails) -> go.Figure:
    """Draw the histogram of an op's output."""
    histogram = details.activation
    if histogram is None:
        return empty("The output of this op was not inspected.")
    limits = details.limits
    return _histogram_figure(
        histogram, (limits[0], limits[1]) if limits else None, limits[2] if limits else 0.0, "activation"
    )


def _histogram_figure(histogram: Histogram, limits: tuple[float, float] | None, step: float, tensor: str) -> go.Figure:
    bars = go.Bar(
        x=histogram.centres,
        y=np.where(histogram.counts > 0, histogram.counts, np.nan),
        width=(histogram.high - histogram.low) / len(histogram.counts),
        marker={"color": REST, "line": {"width": 0}},
        name=tensor,
        hovertemplate="%{x:.4g}: %{y:,} values<extra></extra>",
    )
    low, high = histogram.low, histogram.high
    overlay: PlainDict = {}
    if limits is not None and step > 0:
        overlay["shapes"] = [
            {**_TALL, "type": "rect", "x0": limits[0], "x1": limits[1], "fillcolor": INT8, "opacity": 0.08,
             "line": {"width": 0}, "layer": "below"},
            *(_line(edge, INT8, 1.5) for edge in limits),
            *_steps(max(limits[0], low), min(limits[1], high), step),
        ]  # fmt: skip
        low, high = min(low, limits[0]), max(high, limits[1])
        overlay["annotations"] = [
            {"text": _about(histogram, step), "showarrow": False, "xref": "paper", "yref": "paper", "x": 0, "y": 1.1,
             "xanchor": "left", "font": {"size": 12, "color": FAINT}}
        ]  # fmt: skip
    margin = 0.02 * (high - low)
    return styled(
        go.Figure(bars),
        330,
        legend=False,
        x={"title": f"value of the {tensor}", "range": [low - margin, high + margin]},
        y={"title": "values", "type": "log", "dtick": 1, "exponentformat": "power"},
        **overlay,
    )


_TALL = {"xref": "x", "yref": "paper", "y0": 0, "y1": 1}


def _line(x: float, colour: str, width: float) -> PlainDict:
    return {**_TALL, "type": "line", "x0": x, "x1": x, "line": {"color": colour, "width": width}}


def _steps(low: float, high: float, step: float) -> list[PlainDict]:
    """Return a line for each step, if they are wide enough to be distinguished."""
    first, last = math.ceil(low / step), math.floor(high / step)
    if not 0 < last - first <= MAX_LINES:
        return []
    return [_line(number * step, FAILED, 0.5) for number in range(first, last + 1)]


def _about(histogram: Histogram, step: float) -> str:
    width = histogram.central_width
    steps = min(255, max(1, round(width / step))) if math.isfinite(width) else 0
    several = f"; {histogram.scales:,} scales, the widest is drawn" if histogram.scales > 1 else ""
    return f"int8 range (blue), one step is {step:.3g}; 99 % of the values share about {steps} of 255 steps{several}"
