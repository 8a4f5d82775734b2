"""The graph: the precision of each op, the conversions, and modules that can be folded."""

from __future__ import annotations

import math
from collections.abc import Sequence

import dash_cytoscape as cyto
from dash import dcc, html
from dash.development.base_component import Component

from quaver.formatting import plural
from quaver.insights.data.graph import Graph, Node, default_depth, make_graph, max_depth
from quaver.insights.data.op_rows import OpRow
from quaver.insights.data.summary import Fact
from quaver.insights.data.text import listed, name, time_text
from quaver.insights.figures.style import BY_KIND, CONVERSION
from quaver.insights.page.components import facts_list
from quaver.insights.page.runs import ViewContext
from quaver.types import PlainDict

# The size of a node in pixels, and the distances between nodes.
WIDTH, HEIGHT, COLUMN, LANE = 148, 42, 190, 74
# The height of the frame in pixels, and that of a graph whose ops are in one row.
FRAME_HEIGHT, MIN_FRAME_HEIGHT = 560, 300
# Judgement: columns that fit a screen at a legible size. A longer graph begins at its left end.
MAX_FITTED = 9
COLOURS = {"precision": "precision", "error": "error", "time": "time"}
# Colours from small to large values, which can be distinguished without seeing red and green.
_SCALE = ("#FDE8C8", "#FBC580", "#F28E3D", "#C9540F", "#7A2A05")
_UNKNOWN = "#D1D5DB"
# Colours that are dark enough for white text.
_DARK = frozenset({BY_KIND["int8"], "#C9540F", "#7A2A05"})
_STYLESHEET = [
    {"selector": "node", "style": {
        "background-color": "data(colour)", "label": "data(label)", "font-size": 12, "width": WIDTH, "height": HEIGHT,
        "shape": "data(shape)", "text-valign": "center", "text-halign": "center", "color": "data(ink)",
        "border-width": 1, "border-color": "#6B7280", "text-wrap": "wrap", "text-max-width": f"{WIDTH - 8}px",
        "min-zoomed-font-size": 6}},
    {"selector": "node:selected", "style": {"border-width": 4, "border-color": "#8B5CF6"}},
    {"selector": "edge", "style": {
        "width": 1.4, "line-color": "#C5CAD3", "target-arrow-color": "#C5CAD3", "target-arrow-shape": "triangle",
        "arrow-scale": 0.7, "curve-style": "bezier"}},
    {"selector": "edge[?skips]", "style": {
        "curve-style": "unbundled-bezier", "control-point-distances": [-70], "control-point-weights": [0.5]}},
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
                html.Button("zoom to fit", id={"part": "graph-fit"}, className="zoom"),
                html.Button("actual size", id={"part": "graph-actual"}, className="zoom"),
            ],
            className="bar",
        ),
        html.P([
            html.Span("■ int8  ", style={"color": "var(--accent)"}),
            html.Span("⬣ fp32  ", style={"color": BY_KIND["fp32"]}),
            html.Span("■ module with both  ", style={"color": BY_KIND["mixed"]}),
            html.Span("▬ conversion  ", style={"color": CONVERSION}),
            html.Span("Click a module to open it, or an op to see what it is. Scroll to zoom.", className="faint"),
        ]),
        cyto.Cytoscape(
            id={"part": "graph"}, elements=elements(ops, default, (), "precision"),
            layout=arrangement(ops, default), **view_of(ops, default),
            stylesheet=_STYLESHEET, className="graph-frame",
            style={"width": "100%", "height": f"{frame_height(ops, default)}px"},
            minZoom=0.02, maxZoom=3, responsive=True,
        ),
        html.Div(id={"part": "graph-node"}),
    ]  # fmt: skip


def arrangement(ops: Sequence[OpRow], depth: int | None) -> PlainDict:
    """Return the layout of cytoscape: the whole graph if it can be read then, else its beginning."""
    return {"name": "preset", "fit": _fits(ops, depth), "padding": 20}


def view_of(ops: Sequence[OpRow], depth: int | None) -> PlainDict:
    """Return the zoom and the place of a graph that is too long for the screen: its left end, in the middle."""
    if _fits(ops, depth):
        return {}
    lowest = min(node.lane for node in make_graph(ops, depth).nodes)
    return {"zoom": 0.8, "pan": {"x": 90, "y": frame_height(ops, depth) / 2 + 0.4 * LANE * lowest}}


def frame_height(ops: Sequence[OpRow], depth: int | None) -> int:
    """Return the height of the frame in pixels: less for a graph without branches."""
    lanes = [node.lane for node in make_graph(ops, depth).nodes]
    return min(FRAME_HEIGHT, MIN_FRAME_HEIGHT + round(LANE * (max(lanes, default=0) - min(lanes, default=0))))


def _fits(ops: Sequence[OpRow], depth: int | None) -> bool:
    return max((node.column for node in make_graph(ops, depth).nodes), default=0) < MAX_FITTED


def about_node(row: OpRow, place: int) -> list[Component]:
    """Return what an op is, where its values come from, and a button that opens it."""
    details = row.details
    facts = [
        Fact("type", name(row.op.kind)),
        Fact("runs as", name(str(row.choice), 120)),
        Fact("reads", listed(list(details.before), 8, 100) or "the inputs of the model"),
        *([Fact("through", listed(list(details.between), 8, 60))] if details.between else []),
        *([Fact("module", name(details.module, 200))] if details.module else []),
        Fact("time", f"{time_text(row.fp32_seconds)} in fp32, {time_text(row.int8_seconds)} in int8"),
        *([Fact("output in fp32", f"{details.low:.4g} to {details.high:.4g}")] if details.low == details.low else []),
        *([Fact("why", row.reason)] if row.reason else []),
    ]
    open_it = html.Button("open this op", id={"part": "graph-open", "place": place}, className="zoom")
    return [html.H3(name(row.op.name, 300)), facts_list(facts), open_it]


def elements(ops: Sequence[OpRow], depth: int | None, opened: Sequence[str], colour: str) -> list[PlainDict]:
    """Return nodes and edges for cytoscape, which draws labels as plain text."""
    graph = make_graph(ops, depth, frozenset(opened))
    places = {row.op.name: place for place, row in enumerate(ops)}
    shades = _shades(graph, colour)
    elements_list: list[PlainDict] = [
        {
            "data": {
                "id": node.key,
                "label": _label(node),
                "colour": shades[node.key],
                "ink": "#FFFFFF" if shades[node.key] in _DARK else "#111827",
                "shape": _SHAPES["module" if node.is_folded else node.precision],
                "place": -1 if node.is_folded else places[node.rows[0].op.name],
            },
            "position": {"x": COLUMN * node.column, "y": LANE * node.lane},
        }
        for node in graph.nodes
    ]
    for edge in graph.edges:
        ends = {"source": edge.source, "target": edge.target}
        elements_list.append({"data": {**ends, "border": edge.converts, "skips": edge.skips}})
    return elements_list


# Shapes distinguish ops without colours, too.
_SHAPES = {"module": "barrel", "int8": "round-rectangle", "fp32": "cut-rectangle"}


def _label(node: Node) -> str:
    """Return the type of an op above its name, or the name of a module above the number of its ops."""
    if node.is_folded:
        return f"{name(node.label, 22)}\n{plural(len(node.rows), 'op')}"
    return f"{name(node.rows[0].op.kind, 22)}\n{name(node.label, 22)}"


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
