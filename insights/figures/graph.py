"""The graph of a model as a static figure; the live page has an interactive one."""

from __future__ import annotations

import math

import plotly.graph_objects as go

from quaver.insights.data.graph import Graph
from quaver.insights.data.text import figure_text
from quaver.insights.figures.style import BY_KIND, CONVERSION, REST, empty, styled


def graph_figure(graph: Graph) -> go.Figure:
    """Draw the nodes by precision, from left to right, with conversions in a colour of their own."""
    if not graph.edges:
        return empty("The graph of this model was not recorded.")
    places = {node.key: (node.x, node.y) for node in graph.nodes}
    figure = go.Figure()
    for converts, colour, name, width in (
        (False, "#C5CAD3", "values", 1.2),
        (True, CONVERSION, "conversions between int8 and fp32", 2.2),
    ):
        xs: list[float | None] = []
        ys: list[float | None] = []
        for edge in graph.edges:
            if edge.converts == converts:
                (x0, y0), (x1, y1) = places[edge.source], places[edge.target]
                aside = 0.35 if edge.skips else 0.0
                xs += [x0, (x0 + x1) / 2, x1, None]
                ys += [y0, (y0 + y1) / 2 + aside, y1, None]
        line = {"color": colour, "width": width, "shape": "spline"}
        figure.add_scatter(x=xs, y=ys, mode="lines", line=line, name=name, hoverinfo="skip")
    for kind in ("int8", "fp32", "mixed"):
        nodes = [node for node in graph.nodes if node.precision == kind]
        if nodes:
            figure.add_scatter(
                x=[node.x for node in nodes],
                y=[node.y for node in nodes],
                mode="markers",
                name=kind,
                marker={
                    "color": BY_KIND[kind],
                    "size": [min(8 + 2 * math.isqrt(len(node.rows)), 22) for node in nodes],
                    "symbol": "diamond" if kind == "fp32" else "circle",
                    "line": {"width": 0.5, "color": REST},
                },
                customdata=[[figure_text(node.label), len(node.rows)] for node in nodes],
                hovertemplate="%{customdata[0]} (%{customdata[1]} op(s))<extra></extra>",
            )
    tall = max(node.y for node in graph.nodes)
    return styled(
        figure,
        min(900, round(190 + 45 * tall)),
        x={"visible": False, "zeroline": False},
        y={"visible": False, "zeroline": False, "autorange": "reversed"},
    )
