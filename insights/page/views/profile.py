"""The profile of the best model: its kernels next to those of fp32, with conversions in a separate colour."""

from __future__ import annotations

from dash import html
from dash.development.base_component import Component

from quaver.insights.data.best_model import profile_rows, uncovered
from quaver.insights.data.text import listed, name, percent
from quaver.insights.figures.profile import kernels_figure, totals_figure
from quaver.insights.page.components import grid, number_column, static_figure, text_column
from quaver.insights.page.runs import ViewContext

COLUMNS = [
    text_column("name", "op or kernel", flex=1, minWidth=300),
    text_column("kind", "kind", width=120),
    text_column("fp32_kernel", "fp32 kernel", width=170),
    number_column("fp32", "fp32 µs", ".4~g"),
    text_column("best_kernel", "best kernel", width=200),
    number_column("best", "best µs", ".4~g"),
]


def layout(context: ViewContext) -> list[Component]:
    """Return the view."""
    rows = profile_rows(context.data)
    if not rows:
        return [html.P("The best model is profiled when a run ends; this one has no profile yet.")]
    shares = [f"{kind.count} {kind.kind} ({percent(kind.share)} of the fp32 time)" for kind in uncovered(context.data)]
    missing = [html.P(f"Nodes without an int8 kernel: {listed(shares, 8, 80)}.")] if shares else []
    overhead = (
        "The runtime's profiler slows the kernels down, and it counts the time on the clock. "
        "The latency in the summary was measured without it, in processor time."
    )
    cells = [
        {
            "key": str(place),
            "name": name(row.kernel.name, 200),
            "kind": row.kind,
            "fp32_kernel": name(row.kernel.fp32_kernel),
            "fp32": 1e6 * row.kernel.fp32,
            "best_kernel": name(row.kernel.best_kernel),
            "best": 1e6 * row.kernel.best,
        }
        for place, row in enumerate(rows)
    ]
    return [
        html.P(f"{context.data.inspection.latency_phrase}. {overhead}"),
        *missing,
        static_figure(totals_figure(rows)),
        html.H3("The slowest kernels"),
        static_figure(kernels_figure(rows)),
        grid("profile", COLUMNS, cells, style={"height": 420}),
    ]
