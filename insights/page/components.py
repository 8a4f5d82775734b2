"""Components that views consist of. Texts are plain: no component here interprets HTML or Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_ag_grid as dag
import plotly.graph_objects as go
from dash import dcc, html
from dash.development.base_component import Component

from quaver.insights.data.summary import Fact, card_columns, cards_and_list
from quaver.types import PlainDict, PlainMapping

# The buttons of a figure; none of them leads to another host.
_CONFIG: dcc.Graph.Config = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d"],
}


_GRID = {"animateRows": False, "enableCellTextSelection": True, "rowHeight": 32, "headerHeight": 36}


def figure(name: str, drawn: go.Figure) -> dcc.Graph:
    """Return a figure that is redrawn when the run changes."""
    return dcc.Graph(id={"live": name}, figure=drawn, config=_CONFIG, style=_height(drawn))


def static_figure(drawn: go.Figure) -> dcc.Graph:
    """Return a figure that is not redrawn."""
    return dcc.Graph(figure=drawn, config=_CONFIG, style=_height(drawn))


def _height(drawn: go.Figure) -> dict[str, int]:
    return {"height": int(drawn.layout.height)}


def cards(facts: Sequence[Fact]) -> html.Div:
    """Return facts, each in its own card; those with long texts follow in a list."""
    short, long = cards_and_list(facts)
    boxes = html.Div(
        [
            html.Div(
                [
                    html.Div(fact.label, className="label"),
                    html.Div(fact.value, className="value"),
                    html.Div(fact.note, className="faint"),
                ],
                className="card",
            )
            for fact in short
        ],
        className="cards",
        style={"--columns": card_columns(len(short))},
    )
    return html.Div([boxes, *([facts_list(long)] if long else [])])


def facts_list(facts: Sequence[Fact]) -> html.Dl:
    """Return facts in two columns."""
    children: list[Component] = []
    for fact in facts:
        note = [html.Span(f" {fact.note}", className="faint")] if fact.note else []
        children += [html.Dt(fact.label), html.Dd([fact.value, *note])]
    return html.Dl(children)


def copyable(fact: Fact) -> html.Div:
    """Return a line with a button that copies it."""
    return html.Div(
        [
            html.Span(fact.label, className="faint"),
            html.Div(
                [html.Code(fact.value), dcc.Clipboard(content=fact.value, className="clip", title="copy")],
                className="command",
            ),
        ]
    )


def grid(name: str, columns: Sequence[PlainMapping], rows: list[PlainDict], **options: Any) -> dag.AgGrid:
    """Return a table to sort and filter. The field `key` identifies a row when its data changes."""
    return dag.AgGrid(
        id={"grid": name},
        columnDefs=[dict(column) for column in columns],
        rowData=rows,
        getRowId="params.data.key",
        defaultColDef={"sortable": True, "resizable": True, "filter": True, "floatingFilter": False, "minWidth": 60},
        dashGridOptions={**_GRID, **options.pop("grid_options", {})},
        className="ag-theme-quartz grid",
        **options,
    )


def number_column(field: str, title: str, digits: str = ".4g", **options: object) -> PlainDict:
    """Return a column of numbers; unknown values stay empty."""
    shown = {"function": f"params.value == null ? '' : d3.format('{digits}')(params.value)"}
    return {
        "field": field, "headerName": title, "type": "rightAligned", "filter": "agNumberColumnFilter",
        "valueFormatter": shown, "width": 92, "suppressHeaderFilterButton": True, **options,
    }  # fmt: skip


def time_column(field: str, title: str, tooltip: str) -> PlainDict:
    """Return a column of times in microseconds. An op that takes no time of its own is part of another op's kernel."""
    shown = "params.value == null ? '' : params.value == 0 ? 'fused' : d3.format('.4~g')(params.value)"
    return number_column(field, title, valueFormatter={"function": shown}, headerTooltip=tooltip)


def text_column(field: str, title: str, **options: object) -> PlainDict:
    """Return a column of texts."""
    return {"field": field, "headerName": title, "filter": "agTextColumnFilter", "tooltipField": field, **options}
