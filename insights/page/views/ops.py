"""A row per op: how it runs, what it costs, and why it runs in fp32."""

from __future__ import annotations

import math

from dash import dcc, html
from dash.development.base_component import Component

from quaver.insights.data.op_rows import OpRow, best_scores, largest_gain, most_sensitive
from quaver.insights.data.text import name
from quaver.insights.figures.distributions import weights_figure
from quaver.insights.figures.ops import ops_figure, ranking_figure, steps_figure
from quaver.insights.page.components import figure, grid, number_column, text_column, time_column
from quaver.insights.page.runs import ViewContext
from quaver.types import PlainDict

_CLASSES = {precision: f"params.value == '{precision}'" for precision in ("fp32", "int8")}
COLUMNS = [
    {"field": "place", "headerName": "#", "width": 75, "type": "rightAligned"},
    text_column("name", "op", minWidth=240, flex=1),
    text_column("kind", "type", width=110),
    text_column(
        "precision",
        "precision",
        width=110,
        headerTooltip="how it runs in the trial that is shown",
        cellClassRules=_CLASSES,
    ),
    number_column("alone", "sensitivity", ".1e", width=110, headerTooltip="output error with only this op in int8"),
    number_column("local", "own error", ".1e", width=100, headerTooltip="its error when its inputs are exact"),
    number_column(
        "running", "error in model", ".1e", width=120, headerTooltip="its error in the model, with those of earlier ops"
    ),
    time_column("fp32", "µs in fp32", "its time in fp32; fused: part of another op's kernel"),
    time_column("int8", "µs in int8", "its time in int8; fused: part of another op's kernel"),
    number_column("low", "minimum", ".3~g", width=95, headerTooltip="the smallest value of its output in fp32"),
    number_column("high", "maximum", ".3~g", width=95, headerTooltip="the largest value of its output in fp32"),
    text_column("mode", "mode", width=95),
    text_column("calibration", "calibration", width=115, headerTooltip="how the range of its input was chosen"),
    text_column("why", "reason", minWidth=300, flex=2),
]
FILTERS = {"all": "all ops", "fp32": "fp32 only", "slower": "not faster in int8", "causes": "with a cause"}


def layout(context: ViewContext) -> list[Component]:
    """Return the view."""
    ops = context.ops()
    kinds = sorted({row.op.kind for row in ops})
    return [
        figure("ops", ops_figure(ops)),
        html.Div(
            [
                dcc.RadioItems(FILTERS, "all", id={"part": "op-filter"}, inline=True, className="radio"),
                dcc.Dropdown(
                    [{"label": name(kind), "value": kind} for kind in kinds],
                    id={"part": "op-kind"},
                    placeholder="every kind",
                    className="small",
                ),
                dcc.Input(id={"part": "op-search"}, placeholder="search by name", debounce=0.3, style={"width": 240}),
            ],
            className="bar",
        ),
        grid(
            "ops",
            COLUMNS,
            rows(ops),
            grid_options={"tooltipShowDelay": 300, "quickFilterText": ""},
            style={"height": 460},
        ),
        html.P("Click an op to see its details.", className="faint"),
        html.H3("The weights of all ops"),
        html.P(
            "An op whose weights reach far beyond those of its median channel needs a scale per channel.",
            className="faint",
        ),
        figure("weights", weights_figure(ops)),
    ]


def rows(ops: list[OpRow], filter_name: str = "all", kind: str | None = None, text: str = "") -> list[PlainDict]:
    """Return the rows of the ops that pass the filters."""
    return [
        {
            "key": str(place),
            "place": place + 1,
            "name": name(row.op.name, 200),
            "kind": name(row.op.kind),
            "precision": str(row.choice.precision),
            "alone": _finite(row.sensitivity),
            "local": _finite(row.local_error),
            "running": _finite(row.running_error),
            "fp32": _finite(1e6 * row.fp32_seconds),
            "int8": _finite(1e6 * row.int8_seconds),
            "low": _finite(row.details.low),
            "high": _finite(row.details.high),
            "mode": row.choice.mode,
            "calibration": row.choice.calibration,
            "why": row.reason,
        }
        for place, row in enumerate(ops)
        if _passes(row, filter_name) and kind in (None, row.op.kind) and text.lower() in row.op.name.lower()
    ]


def _passes(row: OpRow, filter_name: str) -> bool:
    match filter_name:
        case "fp32":
            return not row.choice.quantized
        case "slower":
            return row.is_not_faster
        case "causes":
            return bool(row.causes)
    return True


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def sensitivity_layout(context: ViewContext) -> list[Component]:
    """Return the view of the most sensitive ops, and of the best score for each number of fp32 ops."""
    steps = best_scores(context.data)
    gain = largest_gain(steps)
    return [
        *([html.P(gain, className="headline")] if gain else []),
        html.H3("Best score for each number of fp32 ops"),
        figure("steps", steps_figure(context.data, steps)),
        html.H3("The most sensitive ops"),
        figure("ranking", ranking_figure(most_sensitive(context.ops()))),
    ]
