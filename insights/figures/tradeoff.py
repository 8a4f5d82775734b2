"""Loss against latency or size, with the Pareto front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from quaver.engine.timing.objective import OBJECTIVES, Axis, axes
from quaver.engine.weight_probe import CONFIGS, recorded_table
from quaver.formatting import loss
from quaver.insights.data.run_reader import RunData
from quaver.insights.data.text import figure_text
from quaver.insights.data.trial_rows import TrialRow
from quaver.insights.figures.style import (
    FP32,
    INT8,
    MET,
    NOT_MET,
    SERIES,
    STOPPED,
    best_marker,
    empty,
    level,
    styled,
    whole_numbers,
)

# Judgement: with more trials, their numbers overlap in the figure.
MAX_NUMBERED = 40
# Sizes of the curve of a language model. Judgement: a smooth line.
MAX_SIZES = 65


def tradeoff_figure(data: RunData, by: str = "latency") -> go.Figure:
    """Draw the loss over the figure of an objective, with the criterion as a line and the Pareto front as steps."""
    axis = axes()[by]
    points = [
        _Point(row, position, _factor(data) * row.trial.loss)
        for row in data.rows
        if row.trial.loss is not None and (position := axis.position(row.trial)) is not None
    ]
    if not points:
        reason = f"{by.capitalize()} is measured for trials that meet the criterion; there is none yet."
        return empty(reason if OBJECTIVES[by].measured else "No trial has a score yet.")
    figure = go.Figure()
    _add_trials(figure, data, points, by)
    _add_front(figure, points)
    _add_best(figure, data, points)
    _add_float_model(figure, data, axis)
    _add_limit(figure, data, axis)
    unit = " %" if data.criterion.is_relative else ""
    return styled(figure, 440, x={"title": axis.title}, y={"title": f"loss{unit} (below 0: better than fp32)"})


def sizes_figure(data: RunData) -> go.Figure:
    """Draw the predicted divergence of the next token over the bytes of all weights, and of the models that were tried.

    Predictions leave out what kernels add by rounding activations, so models lie above the line.
    """
    notes = data.snapshot.notes
    table = recorded_table(notes)
    if table is None:
        return empty("Only runs of language models have this curve.")
    curve = [assignment for assignment in table.curve(MAX_SIZES) if assignment.divergence > 0]
    figure = go.Figure()
    x, y = [assignment.bytes / 1e6 for assignment in curve], [assignment.divergence for assignment in curve]
    figure.add_scatter(x=x, y=y, name="predicted", mode="lines+markers", line={"color": INT8})
    measured = notes.get(CONFIGS, {})
    tried = [row.trial for row in data.rows if row.trial.config.fingerprint in measured]
    if tried:
        figure.add_scatter(
            x=[trial.model_size / 1e6 for trial in tried],
            y=[measured[trial.config.fingerprint] for trial in tried],
            text=[f"trial {trial.number}" for trial in tried],
            name="measured, whole file",
            mode="markers",
            marker={"color": MET, "size": 10},
        )
    return styled(figure, x={"title": "size (MB)"}, y={"title": "divergence (nats a token)", "type": "log"})


class _Point(NamedTuple):
    """A trial with its place in the figure."""

    row: TrialRow
    x: float
    y: float


def _add_trials(figure: go.Figure, data: RunData, points: list[_Point], by: str) -> None:
    for kind, colour, symbol in (("met", MET, "circle"), ("not met", NOT_MET, "circle-open"), STOPPED):
        chosen = [point for point in points if point.row.kind == kind]
        if chosen:
            figure.add_scatter(
                x=[point.x for point in chosen],
                y=[point.y for point in chosen],
                customdata=[
                    [row.trial.number, row.quantized, row.fp32, loss(row.trial.loss, data.criterion)]
                    for row, _, _ in chosen
                ],
                mode="markers+text" if len(points) <= MAX_NUMBERED else "markers",
                text=[str(point.row.trial.number) for point in chosen],
                textposition="top center",
                textfont={"size": 10},
                name=kind,
                marker={"color": colour, "symbol": symbol, "size": 10, "line": {"width": 1.6, "color": colour}},
                hovertemplate=f"trial %{{customdata[0]}}: loss %{{customdata[3]}}, {by} %{{x:.3g}}<br>"
                "%{customdata[1]} int8, %{customdata[2]} fp32 ops<extra></extra>",
            )


def _add_front(figure: go.Figure, points: list[_Point]) -> None:
    """Draw the points that no other beats in both loss and the other figure."""
    front: list[_Point] = []
    for point in sorted(points, key=lambda point: (point.x, point.y)):
        if not front or point.y < front[-1].y:
            front.append(point)
    figure.add_scatter(
        x=[point.x for point in front],
        y=[point.y for point in front],
        mode="lines",
        line={"color": INT8, "shape": "hv", "width": 1.5},
        opacity=0.6,
        name="Pareto front",
        hoverinfo="skip",
    )


def _add_best(figure: go.Figure, data: RunData, points: list[_Point]) -> None:
    for point in points:
        if data.best is not None and point.row.trial.number == data.best.number:
            figure.add_scatter(
                x=[point.x],
                y=[point.y],
                mode="markers",
                name=f"best: trial {data.best.number}",
                marker=best_marker(),
                hoverinfo="skip",
            )


def _add_float_model(figure: go.Figure, data: RunData, axis: Axis) -> None:
    """Draw the float model, which loses nothing, so that a single trial has something to be compared with."""
    if data.baseline is None:
        return
    position = 1.0 if axis.title.endswith("relative to fp32") else axis.position(data.baseline)
    if position is not None:
        figure.add_scatter(
            x=[position], y=[0.0], mode="markers", name="fp32", hoverinfo="skip",
            marker={"color": FP32, "symbol": "diamond", "size": 10},
        )  # fmt: skip


def _add_limit(figure: go.Figure, data: RunData, axis: Axis) -> None:
    """Draw the allowed loss, or the target budget."""
    criterion = data.criterion
    if criterion.target_budget is None:
        unit = " %" if criterion.is_relative else ""
        limit = _factor(data) * criterion.allowed
        figure.add_hline(**level(limit, f"allowed {limit:.3g}{unit}", MET, "dash"))
        return
    allowed = axis.limit(criterion.target_budget, data.baseline)
    if allowed is not None:
        figure.add_vline(x=allowed, line={"color": MET, "dash": "dash", "width": 1})


def _factor(data: RunData) -> float:
    """Return the factor of losses in figures: relative losses are in percent."""
    return 100.0 if data.criterion.is_relative else 1.0


def compare_trials(runs: Sequence[RunData]) -> go.Figure:
    """Draw the smallest loss so far over the trials of each run."""
    figure = go.Figure()
    for colour, data in zip(_colours(len(runs)), runs, strict=True):
        best, xs, ys = None, [], []
        factor = _factor(data)
        for place, row in enumerate(data.rows, 1):
            if row.trial.loss is not None:
                best = row.trial.loss if best is None else min(best, row.trial.loss)
                xs.append(place)
                ys.append(factor * best)
        name = figure_text(data.name, 40)
        figure.add_scatter(x=xs, y=ys, mode="lines+markers", name=name, line={"color": colour, "shape": "hv"})
    if not runs:
        return empty("Choose two or more runs.")
    longest = max(len(data.rows) for data in runs)
    down = {"title": "smallest loss so far (% if relative)"}
    return styled(figure, x=whole_numbers("trial", longest), y=down)


def compare_tradeoff(runs: Sequence[RunData]) -> go.Figure:
    """Draw the loss over the latency of all measured trials; the best trial of each run is filled."""
    figure = go.Figure()
    for colour, data in zip(_colours(len(runs)), runs, strict=True):
        rows = [row for row in data.rows if row.latency is not None and row.trial.loss is not None]
        factor = _factor(data)
        best = None if data.best is None else data.best.number
        figure.add_scatter(
            x=[row.latency for row in rows],
            y=[factor * (row.trial.loss or 0.0) for row in rows],
            mode="markers",
            name=figure_text(data.name, 40),
            customdata=[[row.trial.number, loss(row.trial.loss, data.criterion)] for row in rows],
            marker={
                "color": colour,
                "size": [14 if row.trial.number == best else 8 for row in rows],
                "symbol": ["diamond" if row.trial.number == best else "circle-open" for row in rows],
                "line": {"width": 1.6, "color": colour},
            },
            hovertemplate="trial %{customdata[0]}: loss %{customdata[1]}, latency %{x:.3g}<extra></extra>",
        )
    if not runs:
        return empty("Choose two or more runs.")
    down = {"title": "loss (% if relative; below 0: better than fp32)"}
    return styled(figure, x={"title": axes()["latency"].title}, y=down)


def _colours(count: int) -> list[str]:
    return [SERIES[place % len(SERIES)] for place in range(count)]
