"""The kernels of the fp32 model next to those of the best model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from quaver.insights.data.best_model import ProfileRow, totals
from quaver.insights.data.text import duration, figure_text
from quaver.insights.figures.style import BY_KIND, FAINT, GRID, INT8, REST, empty, styled


def costs_figure(costs: Mapping[str, float]) -> go.Figure:
    """Draw a bar for each stage, the longest first."""
    if not costs:
        return empty("Nothing was measured yet.")
    figure = go.Figure(
        go.Bar(
            y=[figure_text(name) for name in costs],
            x=list(costs.values()),
            orientation="h",
            marker={"color": [INT8 if name == "eval_func" else REST for name in costs], "line": {"width": 0}},
            text=[duration(value) for value in costs.values()],
            textposition="outside",
            cliponaxis=False,
            hoverinfo="skip",
        )
    )
    down = {"type": "category", "automargin": True, "autorange": "reversed"}
    room = {"l": 70, "r": 90, "t": 20, "b": 50}
    return styled(figure, 90 + 28 * len(costs), legend=False, x={"title": "seconds"}, y=down, bargap=0.35, margin=room)


# Judgement: kernels in the figure; the table has all of them.
MAX_KERNELS = 30
LABELS = {
    "int8": "int8 kernels",
    "fp32": "ops in fp32",
    "conversion": "conversions",
    "rest": "other kernels, which have no int8 version",
}


def totals_figure(rows: Sequence[ProfileRow]) -> go.Figure:
    """Draw two bars: the time of each model by kind of kernel."""
    if not rows:
        return empty("The best model was not profiled.")
    figure = go.Figure()
    best, fp32 = totals(list(rows), True), totals(list(rows), False)
    before = {"fp32": fp32["int8"] + fp32["fp32"], "rest": fp32["rest"] + fp32["conversion"]}
    for kind, label in LABELS.items():
        values = [best[kind], before.get(kind, 0.0)]
        figure.add_bar(
            y=["best model", "fp32 model"],
            x=[1e3 * value for value in values],
            orientation="h",
            name=label,
            marker={"color": BY_KIND[kind], "line": {"width": 0}},
            customdata=[duration(value) for value in values],
            hovertemplate=f"%{{y}}: {label} %{{customdata}}<extra></extra>",
        )
    across, down = {"title": "ms per inference, all kernels"}, {"type": "category", "automargin": True}
    return styled(figure, 220, x=across, y=down, barmode="stack", bargap=0.35)


def kernels_figure(rows: Sequence[ProfileRow]) -> go.Figure:
    """Draw the slowest kernels, in fp32 (outlined) and in the best model (filled)."""
    if not rows:
        return empty("The best model was not profiled.")
    chosen = sorted(rows, key=lambda row: -max(row.kernel.fp32, row.kernel.best))[:MAX_KERNELS]
    labels = [figure_text(f"{row.kernel.name}{' ⇄' if row.kernel.converts else ''}", 44) for row in chosen]
    longest = max(max(row.kernel.fp32, row.kernel.best) for row in chosen)
    factor, unit = (1e3, "ms") if longest > 1e-3 else (1e6, "µs")
    figure = go.Figure()
    figure.add_bar(
        y=labels,
        x=[factor * row.kernel.fp32 for row in chosen],
        orientation="h",
        name="fp32 model",
        marker={"color": GRID, "line": {"width": 1, "color": FAINT}},
        customdata=[[duration(row.kernel.fp32), figure_text(row.kernel.fp32_kernel)] for row in chosen],
        hovertemplate="%{y}<br>fp32: %{customdata[0]}, %{customdata[1]}<extra></extra>",
        offsetgroup="fp32",
    )
    for kind, kind_label in LABELS.items():
        members = [(label, row) for label, row in zip(labels, chosen, strict=True) if row.kind == kind]
        if members:
            figure.add_bar(
                y=[label for label, _ in members],
                x=[factor * row.kernel.best for _, row in members],
                orientation="h",
                name=f"best model: {kind_label}",
                marker={"color": BY_KIND[kind], "line": {"width": 0}},
                customdata=[[duration(row.kernel.best), figure_text(row.kernel.best_kernel)] for _, row in members],
                hovertemplate="%{y}<br>best: %{customdata[0]}, %{customdata[1]}<extra></extra>",
                offsetgroup="best",
            )
    down = {"type": "category", "automargin": True, "autorange": "reversed"}
    down |= {"categoryorder": "array", "categoryarray": labels}
    return styled(figure, 130 + 26 * len(chosen), x={"title": unit}, y=down, barmode="group", bargap=0.25)
