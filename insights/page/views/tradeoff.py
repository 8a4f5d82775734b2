"""Loss against latency or size: of the trials of one run, and of several runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from dash import dcc, html
from dash.development.base_component import Component

from quaver.engine.timing.objective import axes
from quaver.formatting import MISSING, loss, score
from quaver.insights.data.run_reader import RunData
from quaver.insights.data.summary import Fact, recover_command, strategy_name
from quaver.insights.data.text import name, size
from quaver.insights.figures.tradeoff import compare_tradeoff, compare_trials, tradeoff_figure
from quaver.insights.page.components import copyable, figure, static_figure
from quaver.insights.page.runs import ViewContext

# Judgement: runs that are compared before the user chooses some.
DEFAULT_RUNS = 3


def layout(context: ViewContext) -> list[Component]:
    """Return the view of one run."""
    return [
        *chain.from_iterable(
            (html.H3(f"Loss against {objective}"), figure(objective, tradeoff_figure(context.data, objective)))
            for objective in axes()
        ),
        html.P("Click a point to rebuild its model.", className="faint"),
        html.Div(id={"part": "point"}),
    ]


def point(data: RunData, number: int) -> list[Component]:
    """Return the command that rebuilds the model of a trial."""
    if data.row(number) is None:
        return []
    return [copyable(Fact(f"rebuild the model of trial {number}", recover_command(data, number)))]


def compare_layout(context: ViewContext) -> list[Component]:
    """Return the view of several runs. A callback draws the chosen ones."""
    options = [{"label": name(label), "value": key} for key, label in context.all_runs.items()]
    return [
        dcc.Dropdown(options, list(context.all_runs)[:DEFAULT_RUNS], multi=True, id={"part": "compared"}),
        html.Div(id={"part": "comparison"}),
    ]


def comparison(runs: Sequence[RunData]) -> list[Component]:
    """Return the best trials of some runs in one table, and their trials in the same figures."""
    heads = ("run", "verdict", "score", "loss", "latency", "size", "int8", "fp32", "trials", "strategy")
    return [
        html.Div(
            html.Table(
                [
                    html.Thead(html.Tr([html.Th(head) for head in heads])),
                    html.Tbody([html.Tr([html.Td(cell) for cell in _cells(data)]) for data in runs]),
                ]
            ),
            className="scroll",
        ),
        html.H3("Smallest loss so far"),
        static_figure(compare_trials(runs)),
        html.H3("Loss against latency"),
        static_figure(compare_tradeoff(runs)),
    ]


def _cells(data: RunData) -> tuple[str, ...]:
    best = data.best
    row = None if best is None else data.row(best.number)
    return (
        name(data.name),
        MISSING if best is None else "met" if data.judge.met else "not met",
        score(None if best is None else best.score),
        loss(None if best is None else best.loss, data.criterion),
        MISSING if row is None or row.latency is None else f"{row.latency:.2f}",
        size(None if best is None else best.model_size),
        MISSING if row is None else row.bits,
        MISSING if row is None else str(row.fp32),
        str(len(data.rows)),
        strategy_name(data) or MISSING,
    )
