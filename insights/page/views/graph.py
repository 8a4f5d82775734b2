"""The graph: what runs in what, where values are converted, folded by module."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import dash_cytoscape as cyto
from dash import dcc, html

from quaver.insights.data import text as wording
from quaver.insights.data.graph import Graph, depths, make_graph, usual_depth
from quaver.insights.data.op_rows import OpRow
from quaver.insights.figures.style import BY_KIND, CONVERSION
from quaver.insights.page.runs import ViewContext
from quaver.types import PlainDict

COLOURS = {"precision": "precision", "error": "error", "time": "time"}
# From little to much, told apart without seeing red and green.
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


def layout(shown: ViewContext) -> list[Any]:
    """The view."""
    ops = shown.ops()
    if not any(row.inside.before for row in ops):
        return [html.P("The graph is recorded when a run ends; this one has none yet.")]
    usual, deepest = usual_depth(ops), depths(ops)
    levels = {"all": "every op", **{str(depth): f"{depth} level(s) of modules" for depth in range(1, deepest + 1)}}
    levels["0"] = "stretches of ops"
    return [
        html.Div(
            [
                html.Span("colour by", className="faint"),
                dcc.RadioItems(COLOURS, "precision", id={"part": "graph-colour"}, inline=True, className="radio"),
                html.Span("fold to", className="faint"),
                dcc.Dropdown(
                    levels, "all" if usual is None else str(usual), id={"part": "graph-depth"}, clearable=False,
                    className="small",
                ),
            ],
            className="bar",
        ),
        html.P([
            html.Span("■ int8  ", style={"color": BY_KIND["int8"]}),
            html.Span("◆ fp32  ", style={"color": BY_KIND["fp32"]}),
            html.Span("■ module of both  ", style={"color": BY_KIND["mixed"]}),
            html.Span("▬ values are converted here  ", style={"color": CONVERSION}),
            html.Span("Click a module to open it, an op to look into it.", className="faint"),
        ]),
        cyto.Cytoscape(
            id={"part": "graph"}, elements=elements(ops, usual, (), "precision"),
            layout={"name": "preset", "fit": True},
            stylesheet=_STYLESHEET, style={"width": "100%", "height": "640px", "border": "1px solid #E5E7EB"},
            minZoom=0.02, maxZoom=3, responsive=True,
        ),
    ]  # fmt: skip


def elements(ops: Sequence[OpRow], depth: int | None, opened: Sequence[str], colour: str) -> list[PlainDict]:
    """Nodes and edges as cytoscape takes them; labels are drawn as plain text."""
    graph = make_graph(ops, depth, frozenset(opened))
    places = {row.op.name: place for place, row in enumerate(ops)}
    shades = _shades(graph, colour)
    found: list[PlainDict] = [
        {
            "data": {
                "id": node.key,
                "label": wording.name(node.label, 40) + (f" ({len(node.rows)})" if node.folded else ""),
                "colour": shades[node.key],
                "size": min(26 + 4 * math.isqrt(len(node.rows)), 60),
                "shape": "round-rectangle" if node.folded else "diamond" if node.precision == "fp32" else "ellipse",
                "place": -1 if node.folded else places[node.rows[0].op.name],
            },
            "position": {"x": 110 * node.x, "y": 80 * node.y + (16 if node.column % 2 else 0)},
        }
        for node in graph.nodes
    ]
    for edge in graph.edges:
        ends = {"source": edge.source, "target": edge.target}
        found.append({"data": {**ends, "border": edge.border, "skips": edge.skips}})
    return found


def _shades(graph: Graph, colour: str) -> dict[str, str]:
    if colour == "precision":
        return {node.key: BY_KIND[node.precision] for node in graph.nodes}
    values = {node.key: node.error if colour == "error" else node.seconds for node in graph.nodes}
    known = [value for value in values.values() if math.isfinite(value) and value > 0]
    if not known:
        return dict.fromkeys(values, _UNKNOWN)
    low, high = math.log(min(known)), math.log(max(known))

    def shade(value: float) -> str:
        if not math.isfinite(value):
            return _UNKNOWN
        part = (math.log(max(value, math.exp(low))) - low) / ((high - low) or 1.0)
        return _SCALE[min(int(part * len(_SCALE)), len(_SCALE) - 1)]

    return {key: shade(value) for key, value in values.items()}
