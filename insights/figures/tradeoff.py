"""Loss against latency or size, with the trials that none beats in both."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import plotly.graph_objects as go

from quaver.engine.timing.objective import OBJECTIVES, axes
from quaver.insights.data import text as wording
from quaver.insights.data.run_reader import RunData
from quaver.insights.data.text import figure_text, loss
from quaver.insights.data.trial_rows import TrialRow
from quaver.insights.figures.style import INT8, MET, NOT_MET, SERIES, STOPPED, best_marker, empty, level, styled


def tradeoff_figure(data: RunData, by: str = "latency") -> go.Figure:
    """Loss over latency or size; the criterion is a line, and the Pareto front a stair."""
    axis = axes()[by]

    def value(row: TrialRow) -> float | None:
        return axis.position(row.trial)

    rows = [row for row in data.rows if row.trial.loss is not None and value(row) is not None]
    if not rows:
        why = f"{by.capitalize()} is measured of trials that meet the criterion; there is none yet."
        return empty(why if OBJECTIVES[by].measured else "No trial has a score yet.")
    criterion = data.criterion
    factor, unit = (100.0, " %") if criterion.is_relative else (1.0, "")
    figure = go.Figure()
    for name, colour, symbol in (("met", MET, "circle"), ("not met", NOT_MET, "circle-open"), STOPPED):
        chosen = [row for row in rows if row.kind == name]
        if chosen:
            figure.add_scatter(
                x=[value(row) for row in chosen],
                y=[factor * (row.trial.loss or 0.0) for row in chosen],
                customdata=[
                    [row.trial.number, row.quantized, row.fp32, wording.loss(row.trial.loss, criterion)]
                    for row in chosen
                ],
                mode="markers+text" if len(rows) <= 40 else "markers",
                text=[str(row.trial.number) for row in chosen],
                textposition="top center",
                textfont={"size": 10},
                name=name,
                marker={"color": colour, "symbol": symbol, "size": 10, "line": {"width": 1.6, "color": colour}},
                hovertemplate=f"trial %{{customdata[0]}}: loss %{{customdata[3]}}, {by} %{{x:.3g}}<br>"
                "%{customdata[1]} int8, %{customdata[2]} fp32 ops<extra></extra>",
            )
    front = _front(rows, value)
    figure.add_scatter(
        x=[value(row) for row in front],
        y=[factor * (row.trial.loss or 0.0) for row in front],
        mode="lines",
        line={"color": INT8, "shape": "hv", "width": 1.5},
        opacity=0.6,
        name="Pareto front",
        hoverinfo="skip",
    )
    best = None if data.best is None else data.row(data.best.number)
    if best is not None and value(best) is not None:
        figure.add_scatter(
            x=[value(best)],
            y=[factor * (best.trial.loss or 0.0)],
            mode="markers",
            name=f"best: trial {best.trial.number}",
            marker=best_marker(),
            hoverinfo="skip",
        )
    if criterion.target_budget is not None:
        most = axis.limit(criterion.target_budget, data.baseline)
        if most is not None:
            figure.add_vline(x=most, line={"color": MET, "dash": "dash", "width": 1})
        return styled(figure, 440, x={"title": axis.title}, y={"title": f"loss{unit} (below 0: better than fp32)"})
    limit = factor * criterion.allowed
    figure.add_hline(**level(limit, f"allowed {limit:.3g}{unit}", MET, "dash"))
    return styled(figure, 440, x={"title": axis.title}, y={"title": f"loss{unit} (below 0: better than fp32)"})


def _front(rows: list[TrialRow], value: Callable[[TrialRow], float | None]) -> list[TrialRow]:
    front: list[TrialRow] = []
    for row in sorted(rows, key=lambda row: (value(row) or 0.0, row.trial.loss or 0.0)):
        if not front or (row.trial.loss or 0.0) < (front[-1].trial.loss or 0.0):
            front.append(row)
    return front


def compare_trials(runs: Sequence[RunData]) -> go.Figure:
    """The best loss so far over the number of evaluations."""
    figure = go.Figure()
    for colour, data in zip(_colours(len(runs)), runs, strict=True):
        best, xs, ys = None, [], []
        factor = 100.0 if data.criterion.is_relative else 1.0
        for place, row in enumerate(data.rows, 1):
            if row.trial.loss is not None:
                best = row.trial.loss if best is None else min(best, row.trial.loss)
                xs.append(place)
                ys.append(factor * best)
        name = figure_text(data.name, 40)
        figure.add_scatter(x=xs, y=ys, mode="lines+markers", name=name, line={"color": colour, "shape": "hv"})
    if not runs:
        return empty("Choose two or more runs.")
    down = {"title": "smallest loss so far (%, where it is relative)"}
    return styled(figure, x={"title": "trial", "tickformat": "d"}, y=down)


def compare_tradeoff(runs: Sequence[RunData]) -> go.Figure:
    """Loss over latency of all trials that were measured; the best of each run is filled."""
    figure = go.Figure()
    for colour, data in zip(_colours(len(runs)), runs, strict=True):
        rows = [row for row in data.rows if row.latency is not None and row.trial.loss is not None]
        factor = 100.0 if data.criterion.is_relative else 1.0
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
    down = {"title": "loss (%, where it is relative; below 0: better than fp32)"}
    return styled(figure, x={"title": "latency, as a part of fp32's"}, y=down)


def _colours(count: int) -> list[str]:
    return [SERIES[place % len(SERIES)] for place in range(count)]
