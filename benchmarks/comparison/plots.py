"""Two pictures: evaluations to the first success, and accuracy against latency."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.comparison.rows import Row, limit

COLOURS = {
    "quaver": "#1b6ca8", "quaver for OpenVINO": "#2e9e8f", "quaver for LiteRT": "#7fb3d5",
    "OpenVINO bf16": "#6d4c9f", "NNCF quantize": "#e91e63", "NNCF quantize, mixed": "#f48fb1",
    "NNCF accuracy control": "#880e4f", "NC basic": "#e08e0b", "ORT static": "#b0b0b0",
    "ORT static, per channel": "#7a7a7a", "ORT dynamic": "#404040", "TFLite converter": "#c0b000",
}  # fmt: skip


def draw(rows: Sequence[Row], folder: Path) -> None:
    """Write both pictures as SVG, with each tool in its own runtime."""
    rows = [row for row in rows if row.own]
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "quaver"  # the same figures give the same file
    import matplotlib.pyplot as plt

    for name, picture in (("evaluations", _evaluations), ("latency", _latency)):
        figure = picture(rows, plt)
        figure.savefig(folder / f"comparison_{name}.svg", metadata={"Date": None}, bbox_inches="tight")
        plt.close(figure)


def _evaluations(rows: Sequence[Row], plt: Any) -> Any:
    """A line of dots for each model; hollow where the tool ended without success."""
    setups = list(dict.fromkeys(row.setup for row in rows))[::-1]
    figure, axes = plt.subplots(figsize=(8, 0.6 * len(setups) + 1.4))
    there = {row.tool for row in rows}
    once = ("ORT", "TFLite", "OpenVINO", "NNCF quantize")
    tuning = [tool for tool in COLOURS if tool in there and not tool.startswith(once)]
    for offset, tool in enumerate(tuning):
        for row in (row for row in rows if row.tool == tool):
            height = setups.index(row.setup) + (len(tuning) / 2 - offset) * 0.12
            count, met = row.first_success or row.evaluations, row.first_success is not None
            face = COLOURS[tool] if met else "none"
            axes.plot(max(count, 1), height, "o", color=COLOURS[tool], markerfacecolor=face, markersize=6)
    for tool in tuning:
        axes.plot([], [], "o", color=COLOURS[tool], label=tool)
    axes.set_xscale("log")
    axes.set_yticks(range(len(setups)), setups)
    axes.set_xlabel("calls of eval_func to the first success (hollow: ended without one)")
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _latency(rows: Sequence[Row], plt: Any) -> Any:
    """A small picture for each model: the score beside the time of one inference."""
    setups = list(dict.fromkeys(row.setup for row in rows))
    height = -(-len(setups) // 3)
    figure, grid = plt.subplots(height, 3, figsize=(11, 3 * height), squeeze=False)
    for axes, setup in zip(grid.flat, setups, strict=False):
        of_setup = [row for row in rows if row.setup == setup and row.latency and row.tool in COLOURS]
        for row in of_setup:
            assert row.latency is not None
            axes.plot(row.latency[1], row.score, "o", color=COLOURS[row.tool], markersize=7, alpha=0.85)
        known = next(row for row in rows if row.setup == setup)
        axes.plot(1, known.fp32_score, "k*", markersize=9)
        axes.axhline(limit(known.fp32_score), color="k", linewidth=0.7, linestyle="--")
        axes.set_title(setup, fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in list(grid.flat)[len(setups) :]:
        axes.axis("off")
    shown = [tool for tool in COLOURS if any(row.tool == tool for row in rows)]
    marks = [plt.Line2D([], [], color=COLOURS[tool], marker="o", linestyle="", label=tool) for tool in shown]
    marks.append(plt.Line2D([], [], color="k", marker="*", linestyle="", label="fp32"))
    figure.legend(handles=marks, loc="lower center", ncols=5, frameon=False, bbox_to_anchor=(0.5, -0.06))
    figure.supxlabel("latency as a fraction of fp32 in ONNX Runtime (one thread, batch 1)", fontsize=10)
    figure.supylabel("score; dashed: 1 % below fp32", fontsize=10)
    figure.tight_layout()
    return figure
