"""Met or not, what it cost, and how to have it again."""

from __future__ import annotations

from typing import Any

from dash import html

from quaver.insights.data.summary import verdict
from quaver.insights.figures.profile import costs_figure
from quaver.insights.figures.trials import trials_figure
from quaver.insights.page.components import cards, copied, facts_list, figure
from quaver.insights.page.runs import ViewContext


def layout(shown: ViewContext) -> list[Any]:
    """The view."""
    said = verdict(shown.data)
    return [
        html.Div(headline(shown), id={"text": "headline"}),
        html.H3("Score of each trial"),
        figure("trials", trials_figure(shown.data)),
        html.H3("Where the time went"),
        figure("costs", costs_figure(said.costs)),
        html.Div(
            [
                html.Div([html.H3("How it was made"), facts_list(said.about)]),
                html.Div([html.H3("Have it again"), *map(copied, said.commands)]),
            ],
            className="columns",
        ),
    ]


def headline(shown: ViewContext) -> list[Any]:
    """What changes while a run goes on."""
    said = verdict(shown.data)
    worst = [row for row in shown.ops() if not row.pick.quantized]
    listed = [html.Li([html.B(row.op.name[:120]), html.Span(f" {row.why}", className="faint")]) for row in worst[:8]]
    more = [html.Li(f"and {len(worst) - 8} more: see Ops", className="faint")] if len(worst) > 8 else []
    return [
        html.P(said.headline, className=f"headline {said.kind.replace(' ', '-')}"),
        *(html.P(text, className="warn") for text in said.warnings),
        cards(said.facts),
        *([html.H3("What runs in fp32, and why"), html.Ul([*listed, *more])] if worst and shown.data.best else []),
    ]
