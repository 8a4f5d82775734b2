"""The sections of the report, one for each view."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator, Sequence

from quaver.engine.timing.objective import axes
from quaver.formatting import MISSING, disturbed_parts, loss, plural, score
from quaver.insights.data import graph
from quaver.insights.data.best_model import profile_rows, uncovered
from quaver.insights.data.op_rows import OpRow, best_scores, largest_gain, most_sensitive, op_rows
from quaver.insights.data.run_reader import RunData
from quaver.insights.data.summary import cards_and_list, recover_command, state_phrase, verdict
from quaver.insights.data.text import duration, name, percent, precision, size
from quaver.insights.report.blocks import (
    Block,
    Cards,
    Code,
    CommandList,
    Details,
    FactList,
    Heading,
    Paragraph,
    Section,
    Table,
    figure_block,
)

# Judgement: the rows of each table, so that the report stays readable; the live page has all of them.
MAX_TRIALS, MAX_OPS, MAX_SENSITIVE_OPS, MAX_EDGES, MAX_KERNELS = 500, 3000, 30, 200, 200
# Judgement: ops whose weights and activations are drawn; each takes about 100 KB.
MAX_DRAWN_OPS = 16


def sections(data: RunData) -> Iterator[Section]:
    """Yield the sections of the report, without figures if plotly is not installed."""
    figures = importlib.util.find_spec("plotly") is not None
    rows = op_rows(data)
    yield Section("Summary", list(_summary(data, figures)))
    yield Section("Trials", list(_trials(data, figures)))
    yield Section("Trade-off", list(_tradeoff(data, figures)))
    yield Section("Sensitivity", list(_sensitivity(data, rows, figures)))
    yield Section("Ops", list(_ops(rows, figures)))
    yield Section("Graph", list(_graph(rows, figures)))
    yield Section("Profile", list(_profile(data, figures)))


def _summary(data: RunData, figures: bool) -> Iterator[Block]:
    result = verdict(data)
    yield Paragraph(result.headline, f"headline {result.kind.replace(' ', '-')}")
    for warning in result.warnings:
        yield Paragraph(warning, "warn")
    yield Paragraph(state_phrase(data), "faint")
    if data.snapshot.damage:
        yield Paragraph(f"The file is damaged: {data.snapshot.damage}. The report shows the undamaged part.", "warn")
    short, long = cards_and_list(result.facts)
    yield Cards(short)
    if long:
        yield FactList(long)
    yield Heading("Time by stage")
    if figures:
        from quaver.insights.figures.profile import costs_figure

        yield figure_block(costs_figure(result.costs))
    yield Table(("stage", "time"), [(stage, duration(seconds)) for stage, seconds in result.costs.items()], ("time",))
    yield Heading("Setup")
    yield FactList(result.about)
    yield Heading("Reproduce")
    yield CommandList(result.commands)


def _trials(data: RunData, figures: bool) -> Iterator[Block]:
    if figures:
        from quaver.insights.figures.trials import matrix_figure, trials_figure

        yield figure_block(trials_figure(data))
        yield Heading("Precision of each op in each trial")
        yield figure_block(matrix_figure(data))
    heads = ("trial", "score", "loss", "verdict", "latency", "size", "int8", "fp32", "from", "changes", "seconds")
    rows = data.rows[-MAX_TRIALS:]
    cells = [
        (
            f"{row.trial.number}{' ★' if data.best is not None and row.trial.number == data.best.number else ''}",
            score(row.trial.score),
            loss(row.trial.loss, data.criterion),
            row.verdict,
            MISSING if row.latency is None else f"{row.latency:.2f}",
            size(row.trial.model_size),
            row.bits,
            str(row.fp32),
            MISSING if row.origin is None else str(row.origin),
            row.error if row.trial.failed else row.changes,
            f"{row.trial.seconds:.2f}",
        )
        for row in rows
    ]
    yield Table(heads, cells, ("trial", "score", "loss", "latency", "size", "int8", "fp32", "from", "seconds"))
    more = len(data.rows) - len(rows)
    if more:
        yield Paragraph(f"… and {plural(more, 'earlier trial')}")


def _tradeoff(data: RunData, figures: bool) -> Iterator[Block]:
    if figures:
        from quaver.insights.figures.tradeoff import tradeoff_figure

        yield from (figure_block(tradeoff_figure(data, objective)) for objective in axes())
    cells = [
        (
            str(trial.number),
            loss(trial.loss, data.criterion),
            f"{trial.measured['latency']:.2f}" if "latency" in trial.measured else MISSING,
            size(trial.model_size),
            recover_command(data, trial.number),
        )
        for trial in data.judge.pareto()[:MAX_TRIALS]
    ]
    yield Heading("Trials on the Pareto front")
    heads = ("trial", "loss", "latency", "size", "command to rebuild the model")
    yield Table(heads, cells, heads[:4])


def _sensitivity(data: RunData, rows: list[OpRow], figures: bool) -> Iterator[Block]:
    steps, worst = best_scores(data), most_sensitive(rows)
    gain = largest_gain(steps)
    if gain:
        yield Paragraph(gain, "headline")
    if figures:
        from quaver.insights.figures.ops import ranking_figure, steps_figure

        yield figure_block(steps_figure(data, steps))
        yield Heading("The most sensitive ops")
        yield figure_block(ranking_figure(worst))
    cells = [
        (row.op.name, row.op.kind, precision(row.choice), f"{row.known_error:.3g}", row.reason)
        for row in worst[:MAX_SENSITIVE_OPS]
    ]
    yield Table(("op", "kind", "precision", "sensitivity", "reason"), _with_short_names(cells), ("sensitivity",))
    disturbed = [
        (name(row.op.name, 120), name(words, 300)) for row in worst if (words := disturbed_parts(row.details.parts))
    ]
    if disturbed:
        yield Heading("Parts of the outputs that these ops disturb, each alone in int8")
        yield Table(("op", "disturbs"), disturbed, ())


def _ops(rows: list[OpRow], figures: bool) -> Iterator[Block]:
    if figures:
        from quaver.insights.figures.distributions import weights_figure
        from quaver.insights.figures.ops import ops_figure

        yield figure_block(ops_figure(rows))
        yield Heading("The weights of all ops")
        yield figure_block(weights_figure(rows))
    numbers = ("sensitivity", "own error", "fp32 time", "int8 time")
    heads = ("op", "kind", "precision", *numbers, "range", "calibration", "reason")
    cells = [
        (
            row.op.name,
            row.op.kind,
            precision(row.choice),
            _error(row.sensitivity),
            _error(row.local_error),
            duration(row.fp32_seconds),
            duration(row.int8_seconds),
            MISSING if math.isnan(row.details.low) else f"{row.details.low:.3g} … {row.details.high:.3g}",
            row.choice.calibration or MISSING,
            row.reason,
        )
        for row in rows[:MAX_OPS]
    ]
    yield Table(heads, _with_short_names(cells), numbers)
    if figures:
        yield from _drawn_ops(rows)


def _with_short_names(cells: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return rows with a printable name and kind of bounded length."""
    return [(name(row[0], 120), name(row[1], 40), *row[2:]) for row in cells]


def _error(value: float) -> str:
    return MISSING if math.isnan(value) else f"{value:.3g}"


def _drawn_ops(rows: list[OpRow]) -> Iterator[Block]:
    """Yield the distributions of the ops that matter most: in fp32, with a cause, with a large error."""
    drawn = [row for row in rows if row.details.weight is not None or row.details.activation is not None]
    drawn.sort(
        key=lambda row: (
            row.choice.quantized,
            not row.causes,
            0.0 if math.isnan(row.known_error) else -row.known_error,
        )
    )
    if drawn:
        yield Heading("Weights and activations of the ops that matter most")
    for row in drawn[:MAX_DRAWN_OPS]:
        title = f"{name(row.op.name, 120)} ({name(row.op.kind)}, {precision(row.choice)})"
        yield Details(title, list(_drawn_op(row)))


def _drawn_op(row: OpRow) -> Iterator[Block]:
    from quaver.insights.figures.distributions import activation_figure, channels_figure, weight_figure

    if row.reason:
        yield Paragraph(row.reason)
    for cause in row.causes:
        yield Paragraph(f"{cause.sentence} {cause.advice}")
        if cause.paste:
            yield Code(cause.paste)
    if row.details.weight is not None:
        yield Heading("Weights", 4)
        yield figure_block(weight_figure(row.details))
        if row.details.weight.channel_low.size > 1:
            yield figure_block(channels_figure(row.details.weight, "weight"))
    if row.details.activation is not None:
        yield Heading("Activations", 4)
        yield figure_block(activation_figure(row.details))


def _graph(rows: list[OpRow], figures: bool) -> Iterator[Block]:
    drawn_graph = graph.make_graph(rows, graph.default_depth(rows))
    if figures:
        from quaver.insights.figures.ops import graph_figure

        yield figure_block(graph_figure(drawn_graph))
    conversions = [edge for edge in drawn_graph.edges if edge.converts]
    labels = {node.key: name(node.label) for node in drawn_graph.nodes}
    if conversions:
        yield Paragraph(f"{plural(len(conversions), 'conversion')} between int8 and fp32:")
        yield Table(("from", "to"), [(labels[edge.source], labels[edge.target]) for edge in conversions[:MAX_EDGES]])


def _profile(data: RunData, figures: bool) -> Iterator[Block]:
    rows = profile_rows(data)
    if data.inspection.profile:
        yield Paragraph(f"{data.inspection.latency_phrase}.")
    if figures:
        from quaver.insights.figures.profile import kernels_figure, totals_figure

        yield figure_block(totals_figure(rows))
        yield figure_block(kernels_figure(rows))
    cells = [
        (
            row.kernel.name,
            row.kind,
            row.kernel.fp32_kernel or MISSING,
            duration(row.kernel.fp32),
            row.kernel.best_kernel or MISSING,
            duration(row.kernel.best),
        )
        for row in rows[:MAX_KERNELS]
    ]
    if cells:
        heads = ("op or kernel", "kind", "fp32 kernel", "fp32", "best kernel", "best")
        yield Table(heads, [tuple(name(cell, 100) for cell in row) for row in cells], ("fp32", "best"))
    kinds = uncovered(data)
    if kinds:
        yield Paragraph("Kinds of nodes without an int8 kernel:")
        shares = [(name(kind.kind), str(kind.count), percent(kind.share)) for kind in kinds]
        yield Table(("kind", "nodes", "share of the fp32 time"), shares, ("nodes", "share of the fp32 time"))
