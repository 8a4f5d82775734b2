"""All ops of a model: the error and the time of each, the most sensitive ones, and the graph."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from quaver.insights.data.graph import Graph
from quaver.insights.data.op_rows import BestScore, OpRow
from quaver.insights.data.run_reader import RunData
from quaver.insights.data.summary import allowed_score
from quaver.insights.data.text import duration, figure_text
from quaver.insights.figures.style import (
    BY_KIND,
    CONVERSION,
    FAINT,
    FP32,
    GRID,
    INT8,
    MAX_SINGLE_TICKS,
    MET,
    REST,
    empty,
    level,
    styled,
)

# Judgement: smaller errors are drawn at this value, because a logarithmic axis has no zero.
MIN_ERROR = 1e-9


def ops_figure(rows: Sequence[OpRow]) -> go.Figure:
    """Draw the error of each op in graph order, and below it the times in fp32 and in int8."""
    if not rows:
        return empty("No trial yet.")
    has_times = any(not math.isnan(row.fp32_seconds) for row in rows)
    figure = make_subplots(
        rows=2 if has_times else 1,
        cols=1,
        shared_xaxes=True,
        vertical_spacing=0.08,
        row_heights=[0.6, 0.4] if has_times else [1.0],
    )
    for name, colour, quantized in (("runs in int8", INT8, True), ("runs in fp32", FP32, False)):
        chosen = [(place, row) for place, row in enumerate(rows) if row.choice.quantized == quantized]
        measured = [(place, row) for place, row in chosen if not math.isnan(row.known_error)]
        figure.add_scatter(
            x=[place + 1 for place, _ in measured],
            y=[max(row.known_error, MIN_ERROR) for _, row in measured],
            customdata=[[figure_text(row.op.name), figure_text(row.op.kind)] for _, row in measured],
            mode="markers",
            name=name,
            marker={"color": colour, "size": 8, "symbol": "circle" if quantized else "diamond"},
            hovertemplate="%{customdata[0]}<br>%{customdata[1]}<br>error %{y:.3g}<extra></extra>",
            row=1,
            col=1,
        )
    figure.update_yaxes(type="log", title="error in int8", exponentformat="power", row=1, col=1)
    if has_times:
        _add_times(figure, rows)
    styled(figure, 460 if has_times else 320)
    figure.update_xaxes(gridcolor=GRID, tickformat="d", zeroline=False)
    figure.update_yaxes(gridcolor=GRID, title_font={"size": 12, "color": FAINT})
    title = {"text": "op, in graph order", "font": {"size": 12, "color": FAINT}}
    figure.update_xaxes(title=title, row=2 if has_times else 1, col=1)
    return figure


def _add_times(figure: go.Figure, rows: Sequence[OpRow]) -> None:
    longest = max((row.fp32_seconds for row in rows if not math.isnan(row.fp32_seconds)), default=0.0)
    factor, unit = (1e3, "ms") if longest > 1e-3 else (1e6, "µs")
    for name, colour, values in (
        ("time in fp32", FP32, [row.fp32_seconds for row in rows]),
        ("time in int8", INT8, [row.int8_seconds for row in rows]),
    ):
        figure.add_bar(
            x=list(range(1, len(rows) + 1)),
            y=[None if math.isnan(value) else factor * value for value in values],
            customdata=[[figure_text(row.op.name), duration(value)] for row, value in zip(rows, values, strict=True)],
            name=name,
            marker={"color": colour, "line": {"width": 0}},
            opacity=0.75,
            hovertemplate=f"%{{customdata[0]}}<br>{name}: %{{customdata[1]}}<extra></extra>",
            row=2,
            col=1,
        )
    figure.update_layout(barmode="group", bargap=0.15)
    figure.update_yaxes(title=unit, row=2, col=1)


def ranking_figure(rows: Sequence[OpRow]) -> go.Figure:
    """Draw the most sensitive ops."""
    if not rows:
        return empty("No op was measured alone: this strategy does not need it.")
    figure = go.Figure()
    for name, colour, quantized in (("runs in int8", INT8, True), ("runs in fp32", FP32, False)):
        chosen = [row for row in rows if row.choice.quantized == quantized]
        figure.add_bar(
            y=[_label(row) for row in chosen],
            x=[max(row.known_error, MIN_ERROR) for row in chosen],
            orientation="h",
            name=name,
            marker={"color": colour, "line": {"width": 0}},
            customdata=[figure_text(row.op.kind) for row in chosen],
            hovertemplate="%{y} (%{customdata})<br>error %{x:.3g}<extra></extra>",
        )
    return styled(
        figure,
        110 + 22 * len(rows),
        x={"type": "log", "title": "sensitivity: squared error / squared signal with only this op in int8", "dtick": 1,
           "exponentformat": "power"},
        y={"type": "category", "automargin": True, "autorange": "reversed", "categoryorder": "array",
           "categoryarray": [_label(row) for row in rows]},
        barmode="overlay",
        bargap=0.25,
    )  # fmt: skip


def _label(row: OpRow) -> str:
    return figure_text(row.op.name, 48)


def steps_figure(data: RunData, path: Sequence[BestScore]) -> go.Figure:
    """Draw the best score for each number of fp32 ops."""
    if not path:
        return empty("No trial has a score yet.")
    figure = go.Figure(
        go.Scatter(
            x=[step.fp32 for step in path],
            y=[step.score for step in path],
            customdata=[step.number for step in path],
            mode="lines+markers",
            line={"shape": "hv", "color": FP32, "width": 2},
            marker={"size": 9, "color": FP32},
            hovertemplate="%{x} fp32 ops: %{y:.6g} (trial %{customdata})<extra></extra>",
        )
    )
    base, criterion = data.baseline, data.criterion
    if base is not None and base.score is not None:
        allowed = allowed_score(base.score, criterion.first)
        figure.add_hline(**level(allowed, f"allowed {allowed:.4g}", MET, "dash"))
    counts = [step.fp32 for step in path]
    whole = {"dtick": 1} if max(counts) - min(counts) < MAX_SINGLE_TICKS else {}
    across = {"title": "ops in fp32", "tickformat": "d", **whole}
    return styled(figure, 340, legend=False, x=across, y={"title": "best score"})


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
