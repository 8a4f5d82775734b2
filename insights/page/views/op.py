"""One op: its weights and activations with the int8 range, its causes, and the rule to paste."""

from __future__ import annotations

from dash import dcc, html
from dash.development.base_component import Component

from quaver.formatting import MISSING, disturbed_parts
from quaver.insights.data.op_rows import OpRow
from quaver.insights.data.summary import Fact
from quaver.insights.data.text import listed, name, time_text
from quaver.insights.figures.distributions import activation_figure, channels_figure, rows_figure, weight_figure
from quaver.insights.page.components import cards, copyable, static_figure
from quaver.insights.page.runs import ViewContext


def layout(context: ViewContext) -> list[Component]:
    """Return the view."""
    ops = context.ops()
    if not ops:
        return [html.P("No trial yet.")]
    place = context.op if context.op is not None and 0 <= context.op < len(ops) else _worst(ops)
    options = [
        {"label": f"{number + 1}  {name(row.op.name, 100)} ({row.choice.precision})", "value": number}
        for number, row in enumerate(ops)
    ]
    return [
        dcc.Dropdown(options, place, id={"part": "op-choice"}, clearable=False, optionHeight=26),
        *_about(ops[place]),
        *_distributions(ops[place]),
    ]


def _worst(ops: list[OpRow]) -> int:
    """Return the op to show at first: one with a cause, in fp32, with a large error."""
    order = [(not row.causes, row.choice.quantized, -row.known_error if row.known_error > 0 else 0.0) for row in ops]
    return order.index(min(order))


def _about(row: OpRow) -> list[Component]:
    details = row.details
    facts = [
        Fact("precision", str(row.choice.precision), f"{name(row.op.kind)}; {_how(row)}".removesuffix("; ")),
        Fact("sensitivity", _number(row.sensitivity), "output error with only this op in int8"),
        Fact("own error", _number(row.local_error), "from float inputs"),
        Fact("error in the model", _number(row.running_error), "with the errors of earlier ops"),
        Fact("time", time_text(row.int8_seconds), f"in int8; {time_text(row.fp32_seconds)} in fp32"),
        Fact(
            "output",
            f"{details.low:.3g} … {details.high:.3g}" if details.low == details.low else MISSING,
            "in fp32",
        ),
    ]
    causes: list[Component] = [
        html.P([html.B(cause.kind.replace("_", " ")), f": {cause.sentence} {cause.advice}"]) for cause in row.causes
    ]
    is_told = any(cause.sentence in row.reason for cause in row.causes)
    reason = [html.P(row.reason, className="why")] if row.reason and not is_told else []
    reason += [html.P(sentence) for sentence in parts_sentences(row)]
    rules = dict.fromkeys(cause.paste for cause in row.causes if cause.paste)
    causes += [copyable(Fact("rule for fit", rule)) for rule in rules]
    keep = f"op_name_dict={{{row.op.name[:400]!r}: 'fp32'}}"
    if (not row.choice.quantized or row.causes) and keep.replace("'", '"') not in rules:
        causes.append(copyable(Fact("rule to keep it in fp32", keep)))
    before = listed(list(details.before), 6, 80)
    inputs = [html.P(f"Inputs: {before}." + (f" Module: {name(details.module)}." if details.module else ""),
                    className="faint")] if before or details.module else []  # fmt: skip
    return [html.H3(name(row.op.name, 300)), cards(facts), *reason, *causes, *inputs]


def parts_sentences(row: OpRow) -> list[str]:
    """Return which parts of the model's outputs an op disturbs, with the error of each; empty if that is not known."""
    parts = row.details.parts
    if not parts:
        return []
    disturbed = disturbed_parts(parts)
    errors = "; ".join(f"{name(part, 100)}: {error:.2g}" for part, error in parts.items())
    return [*([f"Alone in int8 it disturbs {name(disturbed, 300)}."] if disturbed else []), f"Error by part: {errors}."]


def _distributions(row: OpRow) -> list[Component]:
    details = row.details
    if details.weight is None and details.activation is None:
        return [
            html.P(
                "The values of this op were not recorded. A run inspects its best trial when it ends.",
                className="faint",
            )
        ]
    left: list[Component] = []
    right: list[Component] = []
    if details.weight is not None:
        left += [html.H3("Weights"), static_figure(weight_figure(details))]
        if details.weight.channel_low.size > 1:
            left.append(static_figure(channels_figure(details.weight, "weight")))
        if len(details.weight.rows) > 1:
            left.append(static_figure(rows_figure(details.weight, "weight")))
    if details.activation is not None:
        right += [html.H3("Activations (output)"), static_figure(activation_figure(details))]
        if details.activation.channel_low.size > 1:
            right.append(static_figure(channels_figure(details.activation, "activation")))
    columns = [html.Div(part) for part in (left, right) if part]
    return [html.Div(columns, className="columns" if len(columns) == 2 else "")]


def _how(row: OpRow) -> str:
    """Return how an op is quantized: all of its choice but the precision."""
    return str(row.choice).removeprefix(str(row.choice.precision)).strip()


def _number(value: float) -> str:
    return MISSING if value != value else f"{value:.3g}"
