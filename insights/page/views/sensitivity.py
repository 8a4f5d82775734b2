"""Which ops are sensitive to quantization, and what the score gains when ops return to fp32."""

from __future__ import annotations

from dash import html
from dash.development.base_component import Component

from quaver.insights.data.sensitivity import best_scores, largest_gain, most_sensitive
from quaver.insights.figures.ops import ranking_figure, steps_figure
from quaver.insights.page.components import figure
from quaver.insights.page.runs import ViewContext


def layout(context: ViewContext) -> list[Component]:
    """Return the view."""
    steps = best_scores(context.data)
    gain = largest_gain(steps)
    return [
        *([html.P(gain, className="headline")] if gain else []),
        html.H3("Best score for each number of fp32 ops"),
        figure("steps", steps_figure(context.data, steps)),
        html.H3("The most sensitive ops"),
        figure("ranking", ranking_figure(most_sensitive(context.ops()))),
    ]
