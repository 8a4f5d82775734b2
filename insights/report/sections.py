"""The sections of the report, one for each view."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from quaver.insights.data import culprits, graph
from quaver.insights.data import text as wording
from quaver.insights.data.op_rows import OpRow, op_rows
from quaver.insights.data.profile import profile_rows, uncovered
from quaver.insights.data.run_reader import RunData
from quaver.insights.data.summary import Fact, recover_command, state_phrase, verdict
from quaver.insights.report.html import Html, element, table, text
from quaver.insights.report.plotly_embed import drawn

# Rows of a table, and ops that are looked at one by one: a report is to be read. The page has all.
MOST_TRIALS, MOST_OPS, MOST_DETAILS = 500, 3000, 16

Section = tuple[str, list[Html]]


def sections(data: RunData) -> Iterator[Section]:
    """Title and content of each."""
    figures = importlib.util.find_spec("plotly") is not None
    rows = op_rows(data)
    yield "Verdict", list(_verdict(data, figures))
    yield "Trials", list(_trials(data, figures))
    yield "Trade-off", list(_tradeoff(data, figures))
    yield "Culprits", list(_culprits(data, rows, figures))
    yield "Ops", list(_ops(data, rows, figures))
    yield "Graph", list(_graph(rows, figures))
    yield "Profile", list(_profile(data, figures))


def _draw(figures: bool, make: Callable[[], Any]) -> Iterator[Html]:
    if figures:
        yield drawn(make())


def facts_list(facts: Sequence[Fact], copied: bool = False) -> Html:
    """Facts in two columns; those to copy with a button."""
    parts: list[Html] = []
    for fact in facts:
        parts.append(element("dt", text(fact.label)))
        if copied:
            parts.append(element("dd", element("code", text(fact.value)), element("button", "copy", class_="copy")))
        else:
            note = [element("span", text(f" {fact.note}"), class_="faint")] if fact.note else []
            parts.append(element("dd", text(fact.value), *note))
    return element("dl", *parts)


def _verdict(data: RunData, figures: bool) -> Iterator[Html]:
    said = verdict(data)
    yield element("p", text(said.headline), class_=f"headline {said.kind.replace(' ', '-')}")
    for warning in said.warnings:
        yield element("p", text(warning), class_="warn")
    yield element("p", text(state_phrase(data)), class_="faint")
    if data.snapshot.damage:
        yield element("p", text(f"The file is damaged: {data.snapshot.damage}. Shown is what is whole."), class_="warn")
    cards = [
        element(
            "div",
            element("div", text(fact.label), class_="label"),
            element("div", text(fact.value), class_="value"),
            element("div", text(fact.note), class_="faint"),
            class_="card",
        )
        for fact in said.facts
    ]
    yield element("div", *cards, class_="cards")
    yield element("h3", "Where the time went")
    if figures:
        from quaver.insights.figures.profile import costs_figure

        yield drawn(costs_figure(said.costs))
    yield table(("what", "time"), [(name, wording.duration(one)) for name, one in said.costs.items()], right=("time",))
    yield element("h3", "How it was made")
    yield facts_list(said.about)
    yield element("h3", "Have it again")
    yield facts_list(said.commands, copied=True)


def _trials(data: RunData, figures: bool) -> Iterator[Html]:
    if figures:
        from quaver.insights.figures.trials import matrix_figure, trials_figure

        yield drawn(trials_figure(data))
        yield element("h3", "Which trial runs which op in int8")
        yield drawn(matrix_figure(data))
    yield trial_table(data)


def trial_table(data: RunData) -> Html:
    """All trials."""
    heads = ("trial", "score", "loss", "verdict", "latency", "size", "int8", "fp32", "from", "what changed", "seconds")
    shown = data.rows[-MOST_TRIALS:]
    rows = [
        (
            f"{row.trial.number}{' ★' if data.best is not None and row.trial.number == data.best.number else ''}",
            wording.score(row.trial.score),
            wording.loss(row.trial.loss, data.criterion),
            row.verdict,
            wording.UNKNOWN if row.latency is None else f"{row.latency:.2f}",
            wording.size(row.trial.model_size),
            row.bits,
            str(row.fp32),
            wording.UNKNOWN if row.origin is None else str(row.origin),
            row.error if row.trial.failed else row.changes,
            f"{row.trial.seconds:.2f}",
        )
        for row in shown
    ]
    made = table(heads, rows, right=("trial", "score", "loss", "latency", "size", "int8", "fp32", "from", "seconds"))
    more = len(data.rows) - len(shown)
    return element("div", made, *([element("p", f"… and {more} earlier trials")] if more else []))


def _tradeoff(data: RunData, figures: bool) -> Iterator[Html]:
    if figures:
        from quaver.engine.timing.objective import axes
        from quaver.insights.figures.tradeoff import tradeoff_figure

        yield from (drawn(tradeoff_figure(data, objective)) for objective in axes())
    front = data.judge.pareto()[:MOST_TRIALS]
    rows = [
        (
            str(trial.number),
            wording.loss(trial.loss, data.criterion),
            f"{trial.measured['latency']:.2f}" if "latency" in trial.measured else wording.UNKNOWN,
            wording.size(trial.model_size),
            recover_command(data, trial.number),
        )
        for trial in front
    ]
    yield element("h3", "Trials that no other beats")
    heads = ("trial", "loss", "latency", "size", "to have its model")
    yield table(heads, rows, right=heads[:4])


def _culprits(data: RunData, rows: list[OpRow], figures: bool) -> Iterator[Html]:
    path, worst = culprits.steps(data), culprits.ranking(rows)
    said = culprits.in_words(path)
    if said:
        yield element("p", text(said), class_="headline")
    if figures:
        from quaver.insights.figures.ops import ranking_figure, steps_figure

        yield drawn(steps_figure(data, path))
        yield element("h3", "The ops that disturb the output most")
        yield drawn(ranking_figure(worst))
    cells = [
        (row.op.name, row.op.kind, wording.precision(row.pick), f"{row.shown_error:.3g}", row.why) for row in worst[:30]
    ]
    yield table(("op", "kind", "runs in", "error alone", "why"), _named(cells), right=("error alone",))


def _ops(data: RunData, rows: list[OpRow], figures: bool) -> Iterator[Html]:
    if figures:
        from quaver.insights.figures.distributions import weights_figure
        from quaver.insights.figures.ops import ops_figure

        yield drawn(ops_figure(rows))
        yield element("h3", "The weights of all ops")
        yield drawn(weights_figure(rows))
    heads = ("op", "kind", "precision", "error alone", "own error", "in fp32", "in int8", "range", "calibration", "why")
    cells = [
        (
            row.op.name,
            row.op.kind,
            wording.precision(row.pick),
            _number(row.alone),
            _number(row.local),
            wording.duration(row.fp32),
            wording.duration(row.quantized),
            wording.UNKNOWN if math.isnan(row.inside.low) else f"{row.inside.low:.3g} … {row.inside.high:.3g}",
            row.pick.calibration or wording.UNKNOWN,
            row.why,
        )
        for row in rows[:MOST_OPS]
    ]
    yield table(heads, _named(cells), right=("error alone", "own error", "in fp32", "in int8"))
    if figures:
        yield from _details(data, rows)


def _named(cells: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The same rows, the first cell of bounded length."""
    return [(wording.name(row[0], 120), wording.name(row[1], 40), *row[2:]) for row in cells]


def _number(value: float) -> str:
    return wording.UNKNOWN if math.isnan(value) else f"{value:.3g}"


def _details(data: RunData, rows: list[OpRow]) -> Iterator[Html]:
    from quaver.insights.figures.distributions import activation_figure, channels_figure, weight_figure

    seen = [row for row in rows if row.inside.weight is not None or row.inside.activation is not None]
    worst = sorted(seen, key=lambda row: (row.pick.quantized, not row.causes, -_or_zero(row.shown_error)))[
        :MOST_DETAILS
    ]
    if worst:
        yield element("h3", "Weights and activations of the ops that matter most")
    for row in worst:
        parts = [element("p", text(row.why))] if row.why else []
        for cause in row.causes:
            parts.append(element("p", text(f"{cause.sentence} {cause.advice}")))
            if cause.paste:
                code = element("code", text(cause.paste))
                parts.append(element("p", code, element("button", "copy", class_="copy")))
        if row.inside.weight is not None:
            parts += [element("h4", "Weights"), drawn(weight_figure(row.inside))]
            if row.inside.weight.channel_low.size > 1:
                parts.append(drawn(channels_figure(row.inside.weight, "weight")))
        if row.inside.activation is not None:
            parts += [element("h4", "Activations"), drawn(activation_figure(row.inside))]
        title = f"{wording.name(row.op.name, 120)} ({wording.name(row.op.kind)}, {wording.precision(row.pick)})"
        yield element("details", element("summary", text(title)), *parts)


def _or_zero(value: float) -> float:
    return 0.0 if math.isnan(value) else value


def _graph(rows: list[OpRow], figures: bool) -> Iterator[Html]:
    made = graph.make_graph(rows, graph.usual_depth(rows))
    if figures:
        from quaver.insights.figures.graph import graph_figure

        yield drawn(graph_figure(made))
    borders = [edge for edge in made.edges if edge.border]
    label = {node.key: wording.name(node.label) for node in made.nodes}
    if borders:
        yield element("p", text(f"{wording.count(len(borders), 'border')} between int8 and fp32:"))
        yield table(("from", "to"), [(label[edge.source], label[edge.target]) for edge in borders[:200]])


def _profile(data: RunData, figures: bool) -> Iterator[Html]:
    rows = profile_rows(data)
    if data.inside.profile:
        fp32, best = data.inside.latency("fp32"), data.inside.latency("best")
        said = (
            f"Trial {data.inside.profile.get('trial')}: {wording.duration(best.get('p50'))} in the median instead of "
            f"{wording.duration(fp32.get('p50'))} in fp32, {wording.count(int(fp32.get('threads', 1)), 'thread')}."
        )
        yield element("p", text(said))
    if figures:
        from quaver.insights.figures.profile import kernels_figure, totals_figure

        yield drawn(totals_figure(rows))
        yield drawn(kernels_figure(rows))
    cells = [
        (
            row.kernel.name,
            row.kind,
            row.kernel.fp32_kernel or wording.UNKNOWN,
            wording.duration(row.kernel.fp32),
            row.kernel.best_kernel or wording.UNKNOWN,
            wording.duration(row.kernel.best),
        )
        for row in rows[:200]
    ]
    if cells:
        heads = ("op or kernel", "kind", "fp32 kernel", "fp32", "best kernel", "best")
        yield table(heads, [tuple(wording.name(cell, 100) for cell in row) for row in cells], right=("fp32", "best"))
    left = uncovered(data)
    if left:
        yield element("p", "What no int8 kernel covers:")
        cells3 = [(wording.name(one.kind), str(one.count), wording.percent(one.share)) for one in left]
        yield table(("kind", "nodes", "share of the fp32 time"), cells3, right=("nodes", "share of the fp32 time"))
