"""Several runs on the same axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import dcc, html

from quaver.insights.data import text as wording
from quaver.insights.data.run_reader import RunData
from quaver.insights.figures.tradeoff import compare_tradeoff, compare_trials
from quaver.insights.page.components import still
from quaver.insights.page.runs import ViewContext

# So many are chosen at first.
AT_FIRST = 3


def layout(shown: ViewContext) -> list[Any]:
    """The view. What is chosen is drawn by a callback."""
    options = [{"label": wording.name(name), "value": key} for key, name in shown.others.items()]
    return [
        dcc.Dropdown(options, list(shown.others)[:AT_FIRST], multi=True, id={"part": "compared"}),
        html.Div(id={"part": "comparison"}),
    ]


def comparison(runs: Sequence[RunData]) -> list[Any]:
    """The runs that were chosen."""
    heads = ("run", "verdict", "score", "loss", "latency", "size", "int8", "fp32", "trials", "strategy")
    body = []
    for data in runs:
        best = data.best
        row = None if best is None else data.row(best.number)
        cells = (
            wording.name(data.name),
            "–" if best is None else "met" if data.judge.met else "not met",  # noqa: RUF001
            wording.score(None if best is None else best.score),
            wording.loss(None if best is None else best.loss, data.criterion),
            wording.UNKNOWN if row is None or row.latency is None else f"{row.latency:.2f}",
            wording.size(None if best is None else best.model_size),
            wording.UNKNOWN if row is None else row.bits,
            wording.UNKNOWN if row is None else str(row.fp32),
            str(len(data.rows)),
            wording.name(str(data.snapshot.run.settings.get("strategy", wording.UNKNOWN)), 40),
        )
        body.append(html.Tr([html.Td(cell) for cell in cells]))
    head = html.Tr([html.Th(one) for one in heads])
    return [
        html.Div(html.Table([html.Thead(head), html.Tbody(body)]), className="scroll"),
        html.H3("Smallest loss so far"),
        still(compare_trials(runs)),
        html.H3("Loss against latency"),
        still(compare_tradeoff(runs)),
    ]
