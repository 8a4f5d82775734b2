"""One op: its weights and activations with the int8 range over them, why it is bad, and the rule to paste."""

from __future__ import annotations

from typing import Any

from dash import dcc, html

from quaver.insights.data import text as wording
from quaver.insights.data.op_rows import OpRow
from quaver.insights.data.summary import Fact
from quaver.insights.figures.distributions import activation_figure, channels_figure, rows_figure, weight_figure
from quaver.insights.page.components import cards, copied, still
from quaver.insights.page.runs import ViewContext


def layout(shown: ViewContext) -> list[Any]:
    """The view."""
    ops = shown.ops()
    if not ops:
        return [html.P("No trial yet.")]
    place = shown.op if shown.op is not None and 0 <= shown.op < len(ops) else _worst(ops)
    options = [
        {"label": f"{number + 1}  {wording.name(row.op.name, 100)} ({row.pick.precision})", "value": number}
        for number, row in enumerate(ops)
    ]
    return [
        dcc.Dropdown(options, place, id={"part": "op-choice"}, clearable=False, optionHeight=26),
        *_about(ops[place]),
        *_pictures(ops[place]),
    ]


def _worst(ops: list[OpRow]) -> int:
    """The op to look at first: one with a cause, in fp32, that disturbs most."""
    order = [(not row.causes, row.pick.quantized, -row.shown_error if row.shown_error > 0 else 0.0) for row in ops]
    return order.index(min(order))


def _about(row: OpRow) -> list[Any]:
    inside = row.inside
    facts = [
        Fact("runs in", str(row.pick), wording.name(row.op.kind)),
        Fact("error alone", _number(row.alone), "at the output of the model"),
        Fact("own error", _number(row.local), "of what it computes"),
        Fact("in the model", _number(row.running), "with all that came before"),
        Fact("time", wording.duration(row.quantized), f"int8; {wording.duration(row.fp32)} in fp32"),
        Fact(
            "output",
            f"{inside.low:.3g} … {inside.high:.3g}" if inside.low == inside.low else wording.UNKNOWN,
            "in fp32",
        ),
    ]
    causes: list[Any] = []
    for cause in row.causes:
        causes.append(html.P([html.B(cause.kind), f": {cause.sentence} {cause.advice}"]))
        if cause.paste:
            causes.append(copied(Fact("the rule for fit", cause.paste)))
    why = [html.P(row.why, className="why")] if row.why else []
    if not row.pick.quantized or row.causes:
        rule = Fact("to keep it in fp32", f"op_name_dict={{{row.op.name[:400]!r}: 'fp32'}}")
        causes.append(copied(rule))
    before = wording.listed(list(inside.before), 6, 80)
    where = [html.P(f"It reads from {before}." + (f" Module: {wording.name(inside.module)}." if inside.module else ""),
                    className="faint")] if before or inside.module else []  # fmt: skip
    return [html.H3(wording.name(row.op.name, 300)), cards(facts), *why, *causes, *where]


def _pictures(row: OpRow) -> list[Any]:
    inside = row.inside
    if inside.weight is None and inside.activation is None:
        return [
            html.P("Its values were not looked into. A run looks at its best trial when it ends.", className="faint")
        ]
    left: list[Any] = []
    right: list[Any] = []
    if inside.weight is not None:
        left += [html.H3("Weights"), still(weight_figure(inside))]
        if inside.weight.channel_low.size > 1:
            left.append(still(channels_figure(inside.weight, "weight")))
        if len(inside.weight.rows) > 1:
            left.append(still(rows_figure(inside.weight, "weight")))
    if inside.activation is not None:
        right += [html.H3("Activations (its output)"), still(activation_figure(inside))]
        if inside.activation.channel_low.size > 1:
            right.append(still(channels_figure(inside.activation, "activation")))
    columns = [html.Div(part) for part in (left, right) if part]
    return [html.Div(columns, className="columns" if len(columns) == 2 else "")]


def _number(value: float) -> str:
    return wording.UNKNOWN if value != value else f"{value:.3g}"
