"""The weights of all ops side by side, so that the one that looks different is seen."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from quaver.insights.data.op_rows import OpRow
from quaver.insights.data.wording import figure_text
from quaver.insights.figures.style import FP32, INT8, empty, styled


def weights_figure(rows: Sequence[OpRow]) -> go.Figure:
    """For each op how far its weights reach, and those of its median channel: far apart is bad for one scale."""
    seen = [(place, row, row.inside.weight) for place, row in enumerate(rows) if row.inside.weight is not None]
    if not seen:
        return empty("No weights were looked into.")
    figure = go.Figure()
    for name, colour, soft, reduced in (("int8", INT8, "#A6CEE3", True), ("fp32", FP32, "#F6DDA8", False)):
        chosen = [(place, row, weight) for place, row, weight in seen if row.pick.reduced == reduced]
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
