"""How the values of a weight or an activation lie, with the int8 range and its steps drawn over them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import plotly.graph_objects as go

from quaver.insights.data.inside import Histogram, OpInside
from quaver.insights.figures.style import FAILED, FAINT, INT8, REST, empty, styled

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
    drawn: dict[str, Any] = {}
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


def _line(x: float, colour: str, width: float) -> dict[str, Any]:
    return {**_TALL, "type": "line", "x0": x, "x1": x, "line": {"color": colour, "width": width}}


def _steps(low: float, high: float, step: float) -> list[dict[str, Any]]:
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
