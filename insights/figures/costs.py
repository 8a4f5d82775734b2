"""Where the time of a run went."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from quaver.insights.data.wording import duration, figure_text
from quaver.insights.figures.style import INT8, REST, empty, styled


def costs_figure(costs: Mapping[str, float]) -> go.Figure:
    """A bar for each kind of work, those that took most first."""
    if not costs:
        return empty("Nothing was measured yet.")
    figure = go.Figure(
        go.Bar(
            y=[figure_text(name) for name in costs],
            x=list(costs.values()),
            orientation="h",
            marker={"color": [INT8 if name == "eval_func" else REST for name in costs], "line": {"width": 0}},
            text=[duration(value) for value in costs.values()],
            textposition="outside",
            cliponaxis=False,
            hoverinfo="skip",
        )
    )
    down = {"type": "category", "automargin": True, "autorange": "reversed"}
    room = {"l": 70, "r": 90, "t": 20, "b": 50}
    return styled(figure, 90 + 28 * len(costs), legend=False, x={"title": "seconds"}, y=down, bargap=0.35, margin=room)
