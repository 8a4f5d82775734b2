"""Every trial: a figure, a table to sort and filter, and what differs between two."""

from __future__ import annotations

from typing import Any

from dash import html

from quaver.insights.data import text as wording
from quaver.insights.data.run_reader import RunData
from quaver.insights.data.summary import Fact, recover_command
from quaver.insights.figures.trials import matrix_figure, trials_figure
from quaver.insights.page.components import copied, figure, grid, number_column, text_column
from quaver.insights.page.runs import ViewContext
from quaver.limit import loss_range
from quaver.types import PlainDict

_STYLE = {
    "styleConditions": [
        {"condition": "params.value.startsWith('met')", "style": {"color": "#00734F", "fontWeight": 600}},
        {"condition": "params.value == 'failed'", "style": {"color": "#B3450B", "fontWeight": 600}},
    ]
}
# The number stays one, to be sorted and filtered by; only its text says "better".
_LOSS = {
    "function": "params.value == null ? '' : d3.format('.4~g')(Math.abs(params.value)) "
    "+ (params.value < 0 ? ' better' : '')"
}
COLUMNS = [
    number_column("number", "trial", "d"),
    number_column("score", "score", ".6~g"),
    number_column("loss", "loss", ".4~g", width=95, valueFormatter=_LOSS),
    text_column("verdict", "verdict", width=100, cellStyle=_STYLE),
    number_column("latency", "latency", ".3~f", headerTooltip="as a part of fp32's"),
    number_column("ms", "ms", ".4~g", width=85),
    number_column("size", "MB", ".4~g", width=85),
    number_column("int8", "int8", "d", width=80),
    number_column("fp32", "fp32", "d", width=80),
    number_column("origin", "from", "d", width=80, headerTooltip="the trial that it came from"),
    text_column("changes", "what changed", flex=1, minWidth=260),
    number_column("seconds", "s", ".3~g", width=80, headerTooltip="in eval_func"),
]
# Ops of a trial that are listed; the table of ops has all.
LISTED = 200


def layout(shown: ViewContext) -> list[Any]:
    """The view."""
    return [
        figure("trials", trials_figure(shown.data)),
        html.P("Tick a trial to see how it runs its ops, or two to see in what they differ.", className="faint"),
        grid(
            "trials",
            columns(shown.data),
            rows(shown.data),
            grid_options={
                "rowSelection": {"mode": "multiRow", "enableClickSelection": True, "headerCheckbox": False},
                "tooltipShowDelay": 400,
            },
            style={"height": 420},
        ),
        html.Div(id={"part": "trial"}),
        html.H3("Which trial runs which op in int8"),
        figure("matrix", matrix_figure(shown.data)),
    ]


def columns(data: RunData) -> list[PlainDict]:
    """Those that every run has, and those of scores that tell more."""
    more = []
    if any(row.trial.interval is not None for row in data.rows):
        tip = "between what the loss on such data lies"
        more.append(text_column("between", "loss between", width=120, headerTooltip=tip))
    if any(len(row.trial.metrics) > 1 for row in data.rows):
        more.append(text_column("metrics", "metrics", minWidth=160))
    return [*COLUMNS[:3], *more, *COLUMNS[3:]]


def rows(data: RunData) -> list[PlainDict]:
    """The table. A loss is in percent where it is relative."""
    relative = data.criterion.is_relative
    factor = 100.0 if relative else 1.0
    best = None if data.best is None else data.best.number
    return [
        {
            "key": str(row.trial.number),
            "number": row.trial.number,
            "score": row.trial.score,
            "loss": None if row.trial.loss is None else factor * row.trial.loss,
            "between": "" if row.trial.interval is None else loss_range(*row.trial.interval, relative),
            "metrics": ", ".join(f"{name} {value:.4g}" for name, value in row.trial.metrics.items()),
            "verdict": row.verdict + (" ★" if row.trial.number == best else ""),
            "latency": row.latency,
            "ms": row.milliseconds,
            "size": row.trial.model_size / 1e6 if row.trial.model_size else None,
            "int8": row.quantized,
            "fp32": row.fp32,
            "origin": row.origin,
            "changes": row.error if row.trial.failed else row.changes,
            "seconds": row.trial.seconds,
        }
        for row in data.rows
    ]


def detail(data: RunData, numbers: list[int]) -> list[Any]:
    """What was ticked: one trial, or the difference of two."""
    known = [number for number in numbers if data.row(number) is not None]
    if len(known) >= 2:
        return _difference(data, *sorted(known[-2:]))
    return _one(data, known[0]) if known else []


def _difference(data: RunData, one: int, other: int) -> list[Any]:
    changes = data.difference(one, other)
    scores = [
        data.config(number) is not None and wording.score(data.judge.judged(number).score) for number in (one, other)
    ]
    body = [
        html.Tr([html.Td(wording.name(change.op, 120)), html.Td(str(change.before)), html.Td(str(change.after))])
        for change in changes[:LISTED]
    ]
    head = html.Tr([html.Th("op"), html.Th(f"trial {one}"), html.Th(f"trial {other}")])
    more = len(changes) - len(body)
    return [
        html.H3(f"Trial {one} and trial {other}: {wording.count(len(changes), 'op')} run in another way"),
        html.P(f"They score {scores[0]} and {scores[1]}.", className="faint"),
        html.Div(html.Table([html.Thead(head), html.Tbody(body)]), className="scroll"),
        *([html.P(f"… and {more} more")] if more > 0 else []),
    ]


def _one(data: RunData, number: int) -> list[Any]:
    row = data.row(number)
    assert row is not None
    groups: dict[str, list[str]] = {}
    for name, pick in row.trial.config.items():
        groups.setdefault(str(pick), []).append(name)
    body = [
        html.Tr([html.Td(how), html.Td(str(len(names))), html.Td(wording.listed(names, 12, 60))])
        for how, names in sorted(groups.items(), key=lambda item: not item[0].startswith("fp32"))
    ]
    head = html.Tr([html.Th("how"), html.Th("ops"), html.Th("which")])
    error = [html.Pre(row.trial.error[-4000:])] if row.trial.error else []
    return [
        html.H3(f"Trial {number}: {row.verdict}, {row.bits} int8 and {row.fp32} fp32 ops"),
        html.Div(html.Table([html.Thead(head), html.Tbody(body)]), className="scroll"),
        *error,
        copied(Fact("to have its model", recover_command(data, number))),
    ]
