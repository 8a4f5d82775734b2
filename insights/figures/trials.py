"""The score over the number of the trial."""

from __future__ import annotations

import plotly.graph_objects as go

from quaver.insights.data.followed import RunData
from quaver.insights.data.verdict import allowed_score
from quaver.insights.data.wording import figure_text
from quaver.insights.figures.style import FAILED, FAINT, INT8, MET, NOT_MET, STOPPED, best_marker, empty, level, styled


def trials_figure(data: RunData) -> go.Figure:
    """Every trial, the best so far, what fp32 scores and what is allowed."""
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
                    [row.reduced, row.fp32, figure_text(row.changes, 120) or "the first trial"] for row in chosen
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
    across = {"title": "trial", "tickformat": "d", "rangemode": "tozero"} | ({"dtick": 1} if len(rows) < 16 else {})
    return styled(figure, x=across, y={"title": "score"})


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
