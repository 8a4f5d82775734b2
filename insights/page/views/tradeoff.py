"""Loss against latency or size."""

from __future__ import annotations

from itertools import chain
from typing import Any

from dash import html

from quaver.engine.timing.objective import axes
from quaver.insights.data.run_reader import RunData
from quaver.insights.data.summary import Fact, recover_command
from quaver.insights.figures.tradeoff import tradeoff_figure
from quaver.insights.page.components import copied, figure
from quaver.insights.page.runs import ViewContext


def layout(shown: ViewContext) -> list[Any]:
    """The view."""
    return [
        *chain.from_iterable(
            (html.H3(f"Loss against {name}"), figure(name, tradeoff_figure(shown.data, name))) for name in axes()
        ),
        html.P("Click a point to have its model.", className="faint"),
        html.Div(id={"part": "point"}),
    ]


def point(data: RunData, number: int) -> list[Any]:
    """What to do to have the model of a trial."""
    if data.row(number) is None:
        return []
    return [copied(Fact(f"the model of trial {number}", recover_command(data, number)))]
