"""Which ops cost accuracy, and what sending them back brings."""

from __future__ import annotations

from typing import Any

from dash import html

from quaver.insights.data.culprits import in_words, ranking, steps
from quaver.insights.figures.ops import ranking_figure, steps_figure
from quaver.insights.page.components import figure
from quaver.insights.page.runs import ViewContext


def layout(shown: ViewContext) -> list[Any]:
    """The view."""
    path = steps(shown.data)
    said = in_words(path)
    return [
        *([html.P(said, className="headline")] if said else []),
        html.H3("The best score with so many ops in fp32"),
        figure("steps", steps_figure(shown.data, path)),
        html.H3("The ops that disturb the output most"),
        figure("ranking", ranking_figure(ranking(shown.ops()))),
    ]
