"""Where the time goes: fp32 kernels beside int8 ones, conversions in a colour of their own."""

from __future__ import annotations

from typing import Any

from dash import html

from quaver.insights.data import text as wording
from quaver.insights.data.profile import profile_rows, uncovered
from quaver.insights.figures.profile import kernels_figure, totals_figure
from quaver.insights.page.components import grid, number_column, still, text_column
from quaver.insights.page.runs import ViewContext

COLUMNS = [
    text_column("name", "op or kernel", flex=1, minWidth=300),
    text_column("kind", "kind", width=120),
    text_column("fp32_kernel", "fp32 kernel", width=170),
    number_column("fp32", "fp32 µs", ".4~g"),
    text_column("best_kernel", "best kernel", width=200),
    number_column("best", "best µs", ".4~g"),
]


def layout(shown: ViewContext) -> list[Any]:
    """The view."""
    rows = profile_rows(shown.data)
    if not rows:
        return [html.P("The best model is profiled when a run ends; this one has no profile yet.")]
    left = uncovered(shown.data)
    shares = [f"{one.count} {one.kind} ({wording.percent(one.share)} of the fp32 time)" for one in left]
    named = [html.P(f"No int8 kernel covers {wording.listed(shares, 8, 80)}.")] if shares else []
    inside = shown.data.inside
    fp32, best = inside.latency("fp32"), inside.latency("best")
    said = (
        f"Trial {inside.profile.get('trial')}: {wording.duration(best.get('p50'))} in the median instead of "
        f"{wording.duration(fp32.get('p50'))} in fp32, {wording.count(int(fp32.get('threads', 1)), 'thread')}. "
        "Kernels are timed with the runtime's profiler, which has a price of its own."
    )
    cells = [
        {
            "key": str(place),
            "name": wording.name(row.kernel.name, 200),
            "kind": row.kind,
            "fp32_kernel": wording.name(row.kernel.fp32_kernel),
            "fp32": 1e6 * row.kernel.fp32,
            "best_kernel": wording.name(row.kernel.best_kernel),
            "best": 1e6 * row.kernel.best,
        }
        for place, row in enumerate(rows)
    ]
    return [
        html.P(said),
        *named,
        still(totals_figure(rows)),
        html.H3("The kernels that take most"),
        still(kernels_figure(rows)),
        grid("profile", COLUMNS, cells, style={"height": 420}),
    ]
