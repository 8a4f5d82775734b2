"""Pieces that views are put together from. Texts are texts: no component here reads HTML or Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_ag_grid as dag
from dash import dcc, html

from quaver.insights.data.summary import Fact
from quaver.types import PlainDict, PlainMapping

# What a figure may be told by its reader; no button leads to another host.
_CONFIG: Any = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d"],
}


_GRID = {"animateRows": False, "enableCellTextSelection": True, "rowHeight": 32, "headerHeight": 36}


def figure(name: str, drawn: Any) -> dcc.Graph:
    """A figure that is drawn again when the run has changed."""
    return dcc.Graph(id={"live": name}, figure=drawn, config=_CONFIG, style=_height(drawn))


def still(drawn: Any, **options: Any) -> dcc.Graph:
    """A figure that stays as it is."""
    return dcc.Graph(figure=drawn, config=_CONFIG, style=_height(drawn), **options)


def _height(drawn: Any) -> dict[str, int]:
    return {"height": int(drawn.layout.height)}


def cards(facts: Sequence[Fact]) -> html.Div:
    """Figures, each in a card of its own."""
    return html.Div(
        [
            html.Div(
                [
                    html.Div(fact.label, className="label"),
                    html.Div(fact.value, className="value"),
                    html.Div(fact.note, className="faint"),
                ],
                className="card",
            )
            for fact in facts
        ],
        className="cards",
    )


def facts_list(facts: Sequence[Fact]) -> html.Dl:
    """Facts in two columns."""
    children: list[Any] = []
    for fact in facts:
        note = [html.Span(f" {fact.note}", className="faint")] if fact.note else []
        children += [html.Dt(fact.label), html.Dd([fact.value, *note])]
    return html.Dl(children)


def copied(fact: Fact) -> html.Div:
    """A line with a button that copies it."""
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
    """A table to sort and filter. Each row has a field `key`, by which it is known when it comes again."""
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


def number_column(field: str, title: str, digits: str = ".4g", **options: Any) -> PlainDict:
    """A column of numbers; what is not known stays empty."""
    shown = {"function": f"params.value == null ? '' : d3.format('{digits}')(params.value)"}
    return {
        "field": field, "headerName": title, "type": "rightAligned", "filter": "agNumberColumnFilter",
        "valueFormatter": shown, "width": 95, **options,
    }  # fmt: skip


def text_column(field: str, title: str, **options: Any) -> PlainDict:
    """A column of texts."""
    return {"field": field, "headerName": title, "filter": "agTextColumnFilter", "tooltipField": field, **options}
