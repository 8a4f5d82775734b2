"""All trials: a figure, a table to sort and filter, and the differences between two."""

from __future__ import annotations

from dash import html
from dash.development.base_component import Component

from quaver.formatting import plural, score
from quaver.insights.data.run_reader import RunData, RunState
from quaver.insights.data.summary import Fact, recover_command
from quaver.insights.data.text import listed, name
from quaver.insights.figures.trials import matrix_figure, trials_figure
from quaver.insights.page.components import copyable, figure, grid, number_column, text_column
from quaver.insights.page.runs import ViewContext
from quaver.limit import loss_range
from quaver.types import PlainDict

_CLASSES = {"met": "params.value.startsWith('met')", "failed": "params.value == 'failed'"}
# The value stays a number, for sorting and filtering; only its text says "better".
_LOSS = {
    "function": "params.value == null ? '' : d3.format('.4~g')(Math.abs(params.value)) "
    "+ (params.value < 0 ? ' better' : '')"
}
COLUMNS = [
    number_column("number", "trial", "d", width=85),
    number_column("score", "score", ".6~g", width=88),
    number_column("loss", "loss", ".4~g", width=95, valueFormatter=_LOSS),
    text_column("verdict", "verdict", width=112, cellClassRules=_CLASSES),
    number_column("latency", "latency", ".3~f", headerTooltip="a multiple of the fp32 latency"),
    number_column("ms", "ms", ".4~g", width=85, headerTooltip="milliseconds of one inference"),
    number_column("size", "MB", ".4~g", width=85),
    number_column("int8", "int8", "d", width=75, headerTooltip="ops in int8"),
    number_column("fp32", "fp32", "d", width=75, headerTooltip="ops in fp32"),
    number_column("origin", "from", "d", width=75, headerTooltip="the trial that it was derived from"),
    text_column("changes", "changes", flex=1, minWidth=140),
    number_column("seconds", "s", ".3~g", width=80, headerTooltip="seconds in eval_func"),
]
# Judgement: ops of a trial that are listed; the view of ops has all of them.
MAX_LISTED = 200
# Judgement: a table of fewer trials takes only the height that it needs.
MAX_SHORT = 12


def layout(context: ViewContext) -> list[Component]:
    """Return the view."""
    data = context.data
    draws, is_short = has_figures(data), len(data.rows) < MAX_SHORT and data.state is not RunState.RUNNING
    return [
        *([figure("trials", trials_figure(data))] if draws else []),
        html.P("Select one trial to see how it runs its ops, or two to compare them.", className="faint"),
        grid(
            "trials",
            columns(data),
            rows(data),
            grid_options={
                "rowSelection": {"mode": "multiRow", "enableClickSelection": True, "headerCheckbox": False},
                "tooltipShowDelay": 400,
                **({"domLayout": "autoHeight"} if is_short else {}),
            },
            style={} if is_short else {"height": 420},
        ),
        html.Div(id={"part": "trial"}),
        *([html.H3("Precision of each op in each trial"), figure("matrix", matrix_figure(data))] if draws else []),
    ]


def has_figures(data: RunData) -> bool:
    """Return True if figures over the trials say anything: there are several trials, or more may come."""
    return len(data.rows) > 1 or data.state is RunState.RUNNING


def columns(data: RunData) -> list[PlainDict]:
    """Return the columns of every run, and those for metrics and samples if there are any."""
    more = []
    if any(row.trial.interval is not None for row in data.rows):
        tip = "confidence interval of the loss on such data"
        more.append(text_column("between", "loss between", width=120, headerTooltip=tip))
    if any(len(row.trial.metrics) > 1 for row in data.rows):
        more.append(text_column("metrics", "metrics", minWidth=160))
    return [*COLUMNS[:3], *more, *COLUMNS[3:]]


def rows(data: RunData) -> list[PlainDict]:
    """Return the rows of the table. A relative loss is in percent."""
    relative = data.criterion.is_relative
    factor = 100.0 if relative else 1.0
    best = None if data.best is None else data.best.number
    return [
        *_float_row(data),
        *(
            {
                "key": str(row.trial.number),
                "number": row.trial.number,
                "score": row.trial.score,
                "loss": None if row.trial.loss is None else factor * row.trial.loss,
                "between": "" if row.trial.interval is None else loss_range(*row.trial.interval, relative),
                "metrics": ", ".join(f"{metric} {value:.4g}" for metric, value in row.trial.metrics.items()),
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
        ),
    ]


def _float_row(data: RunData) -> list[PlainDict]:
    """Return the row of the float model, which is the first."""
    base = data.baseline
    if base is None:
        return []
    return [
        {
            "key": "fp32",
            "number": None,
            "score": base.score,
            "loss": None,
            "between": "",
            "metrics": ", ".join(f"{metric} {value:.4g}" for metric, value in base.metrics.items()),
            "verdict": "float model",
            "latency": 1.0 if base.measured.get("latency_ms") is not None else None,
            "ms": base.measured.get("latency_ms"),
            "size": base.model_size / 1e6 if base.model_size else None,
            "int8": 0,
            "fp32": len(data.ops),
            "origin": None,
            "changes": "",
            "seconds": base.seconds,
        }
    ]


def detail(data: RunData, numbers: list[int]) -> list[Component]:
    """Return the selected trial, or the difference of two."""
    existing = [number for number in numbers if data.row(number) is not None]
    if len(existing) >= 2:
        return _difference(data, *sorted(existing[-2:]))
    return _trial(data, existing[0]) if existing else []


def _difference(data: RunData, first: int, second: int) -> list[Component]:
    changes = data.difference(first, second)
    scores = [score(data.judge.judged(number).score) for number in (first, second)]
    body = [
        html.Tr([html.Td(name(change.op, 120)), html.Td(str(change.before)), html.Td(str(change.after))])
        for change in changes[:MAX_LISTED]
    ]
    head = html.Tr([html.Th("op"), html.Th(f"trial {first}"), html.Th(f"trial {second}")])
    more = len(changes) - len(body)
    return [
        html.H3(f"Trial {first} and trial {second}: {plural(len(changes), 'op')} run differently"),
        html.P(f"Scores: {scores[0]} and {scores[1]}.", className="faint"),
        html.Div(html.Table([html.Thead(head), html.Tbody(body)]), className="scroll"),
        *([html.P(f"… and {more} more")] if more > 0 else []),
    ]


def _trial(data: RunData, number: int) -> list[Component]:
    row = data.row(number)
    assert row is not None
    groups: dict[str, list[str]] = {}
    for op, choice in row.trial.config.items():
        groups.setdefault(str(choice), []).append(op)
    body = [
        html.Tr([html.Td(how), html.Td(str(len(names))), html.Td(listed(names, 12, 60))])
        for how, names in sorted(groups.items(), key=lambda item: not item[0].startswith("fp32"))
    ]
    head = html.Tr([html.Th("precision"), html.Th("count"), html.Th("ops")])
    error = [html.Pre(row.trial.error[-4000:])] if row.trial.error else []
    return [
        html.H3(f"Trial {number}: {row.verdict}, {row.bits} int8 and {row.fp32} fp32 ops"),
        html.Div(html.Table([html.Thead(head), html.Tbody(body)]), className="scroll"),
        *error,
        copyable(Fact("rebuild its model", recover_command(data, number))),
    ]
