"""A row an op: how it runs, what it costs, and why it had to go back."""

from __future__ import annotations

import math
from typing import Any

from dash import dcc, html

from quaver.insights.data import text as wording
from quaver.insights.data.op_rows import OpRow
from quaver.insights.figures.distributions import weights_figure
from quaver.insights.figures.ops import ops_figure
from quaver.insights.page.components import figure, grid, number_column, text_column
from quaver.insights.page.runs import ViewContext
from quaver.types import PlainDict

_STYLE = {
    "styleConditions": [
        {"condition": "params.value == 'fp32'", "style": {"color": "#8A5A00", "fontWeight": 600}},
        {"condition": "params.value == 'int8'", "style": {"color": "#005A8C", "fontWeight": 600}},
    ]
}
COLUMNS = [
    {"field": "place", "headerName": "#", "width": 75, "type": "rightAligned"},
    text_column("name", "op", minWidth=240, flex=1),
    text_column("kind", "kind", width=90),
    text_column("precision", "in", width=80, cellStyle=_STYLE),
    number_column("alone", "alone", ".1e", width=95, headerTooltip="error with this op alone in int8"),
    number_column("local", "own", ".1e", width=90, headerTooltip="its own error"),
    number_column("running", "model", ".1e", width=95, headerTooltip="its error in the running model"),
    number_column("fp32", "fp32 µs", ".4~g", width=105),
    number_column("int8", "int8 µs", ".4~g", width=105),
    number_column("low", "low", ".3~g", width=75),
    number_column("high", "high", ".3~g", width=75),
    text_column("mode", "mode", width=95),
    text_column("calibration", "calib.", width=95),
    text_column("why", "why", minWidth=300, flex=2),
]
FILTERS = {"all": "all ops", "fp32": "fp32 only", "slower": "not faster in int8", "causes": "with a cause"}


def layout(shown: ViewContext) -> list[Any]:
    """The view."""
    ops = shown.ops()
    kinds = sorted({row.op.kind for row in ops})
    return [
        figure("ops", ops_figure(ops)),
        html.Div(
            [
                dcc.RadioItems(FILTERS, "all", id={"part": "op-filter"}, inline=True, className="radio"),
                dcc.Dropdown(
                    [{"label": wording.name(kind), "value": kind} for kind in kinds],
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
        html.P("Click an op to look into it.", className="faint"),
        html.H3("The weights of all ops"),
        html.P(
            "An op whose weights reach far beyond those of its median channel suffers from one scale for all.",
            className="faint",
        ),
        figure("weights", weights_figure(ops)),
    ]


def rows(ops: list[OpRow], wanted: str = "all", kind: str | None = None, text: str = "") -> list[PlainDict]:
    """The table, as far as it is wanted."""
    return [
        {
            "key": str(place),
            "place": place + 1,
            "name": wording.name(row.op.name, 200),
            "kind": wording.name(row.op.kind),
            "precision": str(row.pick.precision),
            "alone": _known(row.alone),
            "local": _known(row.local),
            "running": _known(row.running),
            "fp32": _known(1e6 * row.fp32),
            "int8": _known(1e6 * row.quantized),
            "low": _known(row.inside.low),
            "high": _known(row.inside.high),
            "mode": row.pick.mode,
            "calibration": row.pick.calibration,
            "why": row.why,
        }
        for place, row in enumerate(ops)
        if _wanted(row, wanted) and kind in (None, row.op.kind) and text.lower() in row.op.name.lower()
    ]


def _wanted(row: OpRow, wanted: str) -> bool:
    match wanted:
        case "fp32":
            return not row.pick.quantized
        case "slower":
            return row.slower
        case "causes":
            return bool(row.causes)
    return True


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
