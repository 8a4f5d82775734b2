"""The figures of `benchmarks.early_stop` as docs/early_stop.svg."""

from __future__ import annotations

from pathlib import Path
from typing import Any

PLOT = Path(__file__).parents[1] / "docs" / "early_stop.svg"
COLOURS = {
    "full evaluation": "#c8c8c8",
    "Hoeffding race": "#a0a0a0",
    "Bernstein race": "#777777",
    "early stop": "#1f5fa8",
    "peeking with a z-test": "#b8442f",
}


def draw(rows: list[dict[str, Any]]) -> None:
    """False stops on the border, and samples that each trial of the path costs."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "quaver", "font.family": "sans-serif", "font.size": 9})
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.6), layout="constrained")
    _border(left, [row for row in rows if "false stops" in row])
    _path(right, [row for row in rows if "rule" in row and row["scores"] == "few flips"])
    for axis in (left, right):
        axis.grid(axis="y", color="#e6e6e6", linewidth=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(PLOT, metadata={"Date": None, "Creator": None})


def _border(axis: Any, rows: list[dict[str, Any]]) -> None:
    places = range(len(rows))
    for name, rule in (("false stops", "early stop"), ("false stops of a z-test", "peeking with a z-test")):
        axis.plot(places, [row[name] for row in rows], "o", color=COLOURS[rule], markersize=4, label=rule)
    axis.axhline(rows[0]["allowed"], color="black", linewidth=1, linestyle="--")
    axis.annotate("delta", (len(rows) - 1, rows[0]["allowed"]), (0, 3), textcoords="offset points", ha="right")
    axis.set_xticks(places, [f"{row['N']}/{row['batch']}" for row in rows], rotation=90, fontsize=6)
    axis.set(
        title="Trials on the border that are stopped", xlabel="samples / batch, three kinds of scores", ylim=(0, None)
    )
    axis.legend(fontsize=8, frameon=False)


def _path(axis: Any, rows: list[dict[str, Any]]) -> None:
    losses = [name for name in rows[0] if name.startswith("loss")]
    order = sorted(rows, key=lambda row: list(COLOURS).index(row["rule"]))
    for place, row in enumerate(order):
        ticks = [index + (place - 2) * 0.16 for index in range(len(losses))]
        saved = f"{row['rule']}: {row['samples saved']:.0%} saved"
        axis.bar(ticks, [row[name] for name in losses], 0.15, color=COLOURS[row["rule"]], label=saved)
    axis.set_xticks(range(len(losses)), losses)
    axis.set(title="Samples that a trial costs, of 2,000 (allowed: 1 %)", ylim=(0, 1.45))
    axis.legend(fontsize=7, frameon=False, loc="upper left", ncols=2)
