"""The summary of a run: whether the criterion is met, what that cost, and how to reproduce it."""

from __future__ import annotations

from dash import html
from dash.development.base_component import Component

from quaver.insights.data.summary import verdict
from quaver.insights.figures.profile import costs_figure
from quaver.insights.figures.trials import trials_figure
from quaver.insights.page.components import cards, copyable, facts_list, figure
from quaver.insights.page.runs import ViewContext
from quaver.insights.page.views.trials import has_figures

# Judgement: ops that are listed; the view of ops has all of them.
MAX_LISTED = 8


def layout(context: ViewContext) -> list[Component]:
    """Return the view."""
    result = verdict(context.data)
    return [
        html.Div(headline(context), id={"text": "headline"}),
        *(
            [html.H3("Score of each trial"), figure("trials", trials_figure(context.data))]
            if has_figures(context.data)
            else []
        ),
        html.H3("Time by stage"),
        figure("costs", costs_figure(result.costs)),
        html.Div(
            [
                html.Div([html.H3("Setup"), facts_list(result.about)]),
                html.Div([html.H3("Reproduce"), *map(copyable, result.commands)]),
            ],
            className="columns",
        ),
    ]


def headline(context: ViewContext) -> list[Component]:
    """Return the part that changes while a run is running."""
    result = verdict(context.data)
    fp32_rows = [row for row in context.ops() if not row.choice.quantized]
    items = [
        html.Li([html.B(row.op.name[:120]), html.Span(f" {row.reason}", className="faint")])
        for row in fp32_rows[:MAX_LISTED]
    ]
    left = len(fp32_rows) - MAX_LISTED
    more = [html.Li(f"and {left} more: see Ops", className="faint")] if left > 0 else []
    return [
        html.P(result.headline, className=f"headline {result.kind.replace(' ', '-')}"),
        *(html.P(text, className="warn") for text in result.warnings),
        cards(result.facts),
        *([html.H3("Ops in fp32, and why"), html.Ul([*items, *more])] if fp32_rows and context.data.best else []),
    ]
