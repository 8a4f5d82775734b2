"""The graph: the precision of each op, the conversions, and modules that can be folded."""

from __future__ import annotations

import math
from collections.abc import Sequence

import dash_cytoscape as cyto
from dash import dcc, html
from dash.development.base_component import Component

from quaver.insights.data.graph import Graph, default_depth, make_graph, max_depth
from quaver.insights.data.op_rows import OpRow
from quaver.insights.data.text import name
from quaver.insights.figures.style import BY_KIND, CONVERSION
from quaver.insights.page.runs import ViewContext
from quaver.types import PlainDict

COLOURS = {"precision": "precision", "error": "error", "time": "time"}
# Colours from small to large values, which can be distinguished without seeing red and green.
_SCALE = ("#FDE8C8", "#FBC580", "#F28E3D", "#C9540F", "#7A2A05")
_UNKNOWN = "#D1D5DB"
_STYLESHEET = [
    {"selector": "node", "style": {
        "background-color": "data(colour)", "label": "data(label)", "font-size": 11, "width": "data(size)",
        "height": "data(size)", "text-valign": "bottom", "text-margin-y": 4, "color": "#1F2937", "border-width": 1,
        "border-color": "#6B7280", "text-wrap": "ellipsis", "text-max-width": "120px", "min-zoomed-font-size": 7}},
    {"selector": "node[shape]", "style": {"shape": "data(shape)"}},
    {"selector": "edge", "style": {
        "width": 1.4, "line-color": "#C5CAD3", "target-arrow-color": "#C5CAD3", "target-arrow-shape": "triangle",
        "arrow-scale": 0.7, "curve-style": "bezier"}},
    {"selector": "edge[?skips]", "style": {
        "curve-style": "unbundled-bezier", "control-point-distances": [110], "control-point-weights": [0.5]}},
    {"selector": "edge[?border]", "style": {
        "width": 3.5, "line-color": CONVERSION, "target-arrow-color": CONVERSION}},
]  # fmt: skip


def layout(context: ViewContext) -> list[Component]:
    """Return the view."""
    ops = context.ops()
    if not any(row.details.before for row in ops):
        return [html.P("The graph is recorded when a run ends; this one has none yet.")]
    default, deepest = default_depth(ops), max_depth(ops)
    levels = {"all": "every op", **{str(depth): f"{depth} level(s) of modules" for depth in range(1, deepest + 1)}}
    levels["0"] = "stretches of ops"
    return [
        html.Div(
            [
                html.Span("colour by", className="faint"),
                dcc.RadioItems(COLOURS, "precision", id={"part": "graph-colour"}, inline=True, className="radio"),
                html.Span("fold to", className="faint"),
                dcc.Dropdown(
                    levels, "all" if default is None else str(default), id={"part": "graph-depth"}, clearable=False,
                    className="small",
                ),
            ],
            className="bar",
        ),
        html.P([
            html.Span("■ int8  ", style={"color": BY_KIND["int8"]}),
            html.Span("◆ fp32  ", style={"color": BY_KIND["fp32"]}),
            html.Span("■ module with both  ", style={"color": BY_KIND["mixed"]}),
            html.Span("▬ conversion  ", style={"color": CONVERSION}),
            html.Span("Click a module to open it, or an op to see its details.", className="faint"),
        ]),
        cyto.Cytoscape(
            id={"part": "graph"}, elements=elements(ops, default, (), "precision"),
            layout={"name": "preset", "fit": True},
            stylesheet=_STYLESHEET, style={"width": "100%", "height": "640px", "border": "1px solid #E5E7EB"},
            minZoom=0.02, maxZoom=3, responsive=True,
        ),
    ]  # fmt: skip


def elements(ops: Sequence[OpRow], depth: int | None, opened: Sequence[str], colour: str) -> list[PlainDict]:
    """Return nodes and edges for cytoscape, which draws labels as plain text."""
    graph = make_graph(ops, depth, frozenset(opened))
    places = {row.op.name: place for place, row in enumerate(ops)}
    shades = _shades(graph, colour)
    elements_list: list[PlainDict] = [
        {
            "data": {
                "id": node.key,
                "label": name(node.label, 40) + (f" ({len(node.rows)})" if node.is_folded else ""),
                "colour": shades[node.key],
                "size": min(26 + 4 * math.isqrt(len(node.rows)), 60),
                "shape": "round-rectangle" if node.is_folded else "diamond" if node.precision == "fp32" else "ellipse",
                "place": -1 if node.is_folded else places[node.rows[0].op.name],
            },
            "position": {"x": 110 * node.x, "y": 80 * node.y + (16 if node.column % 2 else 0)},
        }
        for node in graph.nodes
    ]
    for edge in graph.edges:
        ends = {"source": edge.source, "target": edge.target}
        elements_list.append({"data": {**ends, "border": edge.converts, "skips": edge.skips}})
    return elements_list


def _shades(graph: Graph, colour: str) -> dict[str, str]:
    """Return the colour of each node."""
    if colour == "precision":
        return {node.key: BY_KIND[node.precision] for node in graph.nodes}
    values = {node.key: node.error if colour == "error" else node.seconds for node in graph.nodes}
    positive = [value for value in values.values() if math.isfinite(value) and value > 0]
    if not positive:
        return dict.fromkeys(values, _UNKNOWN)
    low, high = math.log(min(positive)), math.log(max(positive))

    def shade(value: float) -> str:
        if not math.isfinite(value):
            return _UNKNOWN
        part = (math.log(max(value, math.exp(low))) - low) / ((high - low) or 1.0)
        return _SCALE[min(int(part * len(_SCALE)), len(_SCALE) - 1)]

    return {key: shade(value) for key, value in values.items()}
