"""The score of each trial, and the precision of each op in each trial."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from quaver.insights.data.run_reader import RunData
from quaver.insights.data.summary import allowed_score
from quaver.insights.data.text import figure_text
from quaver.insights.figures.style import (
    FAILED,
    FAINT,
    FP32,
    INT8,
    MET,
    NOT_MET,
    STOPPED,
    best_marker,
    empty,
    level,
    styled,
    whole_numbers,
)


def trials_figure(data: RunData) -> go.Figure:
    """Draw every trial, the best score so far, fp32's score and the allowed score."""
    rows = data.rows
    if not rows:
        return empty("No trial yet.")
    scored = [row for row in rows if row.trial.score is not None]
    figure = go.Figure()
    for name, colour, symbol in (("met", MET, "circle"), ("not met", NOT_MET, "circle-open"), STOPPED):
        chosen = [row for row in scored if row.kind == name]
        if chosen:
            figure.add_scatter(
                x=[row.trial.number for row in chosen],
                y=[row.trial.score for row in chosen],
                customdata=[
                    [row.quantized, row.fp32, figure_text(row.changes, 120) or "the first trial"] for row in chosen
                ],
                mode="markers",
                name=name,
                marker={"color": colour, "symbol": symbol, "size": 9, "line": {"width": 1.6, "color": colour}},
                hovertemplate="trial %{x}: %{y:.6g}<br>%{customdata[0]} int8, %{customdata[1]} fp32 ops<br>"
                "%{customdata[2]}<extra></extra>",
            )
    _add_best_so_far(figure, data)
    _add_lines(figure, data)
    failed = [row for row in rows if row.trial.failed]
    if failed:
        lowest = min((row.trial.score for row in scored if row.trial.score is not None), default=0.0)
        figure.add_scatter(
            x=[row.trial.number for row in failed],
            y=[lowest] * len(failed),
            customdata=[figure_text(row.error, 120) for row in failed],
            mode="markers",
            name="failed (no score)",
            marker={"color": FAILED, "symbol": "x", "size": 10},
            hovertemplate="trial %{x} failed<br>%{customdata}<extra></extra>",
        )
    best = data.best
    if best is not None:
        figure.add_scatter(
            x=[best.number],
            y=[best.score],
            mode="markers",
            name=f"best: trial {best.number}",
            marker=best_marker(),
            hoverinfo="skip",
        )
    return styled(figure, x=whole_numbers("trial", len(rows)), y={"title": "score"})


def _add_best_so_far(figure: go.Figure, data: RunData) -> None:
    higher = data.criterion.first.higher_is_better
    best: float | None = None
    xs, ys = [], []
    for row in data.rows:
        score = row.trial.score
        if score is not None and (best is None or (score > best if higher else score < best)):
            best = score
        if best is not None:
            xs.append(row.trial.number)
            ys.append(best)
    line = {"color": INT8, "width": 1.5, "shape": "hv"}
    figure.add_scatter(x=xs, y=ys, mode="lines", name="best score so far", line=line, hoverinfo="skip", opacity=0.5)


def _add_lines(figure: go.Figure, data: RunData) -> None:
    base, criterion = data.baseline, data.criterion
    if base is None or base.score is None:
        return
    allowed = allowed_score(base.score, criterion.first)
    higher = criterion.first.higher_is_better
    figure.add_hline(**level(base.score, f"fp32 {base.score:.4g}", FAINT, "dot", above=higher))
    figure.add_hline(**level(allowed, f"allowed {allowed:.4g}", MET, "dash", above=not higher))


# Judgement: more rows or columns cannot be distinguished on a screen.
MAX_OPS, MAX_TRIALS = 150, 300


def matrix_figure(data: RunData) -> go.Figure:
    """Draw a row per op and a column per trial, without ops that every trial runs in the same precision."""
    picks = data.picks
    if not picks.rows:
        return empty("No trial yet.")
    columns = _columns(data)
    codes = np.stack([picks.rows[place] for place in columns])
    table = picks.quantized[codes]
    varied = np.flatnonzero(table.any(axis=0) & ~table.all(axis=0))
    if not varied.size:
        precision = "int8" if table.all() else "the same precision"
        return empty(f"All trials run every op in {precision}.")
    if len(varied) > MAX_OPS:  # the ops that ran in fp32 most often
        fp32_counts = (~table[:, varied]).sum(axis=0)
        varied = np.sort(varied[np.argsort(-fp32_counts, kind="stable")[:MAX_OPS]])
    matrix = table[:, varied].T.astype(np.uint8)
    figure = go.Figure(
        go.Heatmap(
            z=matrix,
            x=[str(data.rows[place].trial.number) for place in columns],
            y=[_label(picks.ops[place]) for place in varied],
            customdata=np.array([str(choice.precision) for choice in picks.choices])[codes[:, varied].T],
            colorscale=[[0, FP32], [0.5, FP32], [0.5, INT8], [1, INT8]],
            zmin=0,
            zmax=1,
            showscale=False,
            xgap=1 if len(columns) < 80 else 0,
            ygap=1 if len(varied) < 80 else 0,
            hovertemplate="trial %{x}<br>%{y}<br>%{customdata}<extra></extra>",
        )
    )
    for name, colour in (("int8", INT8), ("fp32", FP32)):
        marker = {"color": colour, "symbol": "square", "size": 10}
        figure.add_scatter(x=[None], y=[None], mode="markers", name=name, marker=marker)
    return styled(
        figure,
        max(220, min(900, 110 + 18 * len(varied))),
        x={"title": "trial", "type": "category", "showgrid": False},
        y={"autorange": "reversed", "showgrid": False, "automargin": True, "type": "category"},
    )


def _label(name: str) -> str:
    return figure_text(name, 44)


def _columns(data: RunData) -> list[int]:
    """Return the trials to show: all, or evenly spread ones with the best among them."""
    count = len(data.rows)
    if count <= MAX_TRIALS:
        return list(range(count))
    chosen = {int(place) for place in np.linspace(0, count - 1, MAX_TRIALS)}
    if data.best is not None:
        chosen.add(next(place for place, row in enumerate(data.rows) if row.trial.number == data.best.number))
    return sorted(chosen)
