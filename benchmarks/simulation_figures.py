"""The sweep of `benchmarks.simulation` as tables for docs/strategies.md and as docs/strategies.svg."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.simulation import BLIND, CULPRITS, MOST_TRIALS, NOISE, RANKED, SIZES, Case, Row, strategy_of
from quaver.testing.simulated import RANKINGS

DOCS = Path(__file__).parents[1] / "docs"
GREY, BLUE, LIGHT, PALE, RED = "#777777", "#1f5fa8", "#6f9fd8", "#b3cdec", "#b8442f"


def tables(rows: Sequence[Row]) -> str:
    """All tables, with words between them."""
    found = {(row.strategy, row.case): row for row in rows}
    parts = [
        "### `auto` against the two yardsticks",
        _table(
            ["n", "d", "bound", "bisection", *(f"auto, ranking {ranking}" for ranking in RANKINGS)],
            [_line(found, Case(ops, culprits)) for ops in SIZES for culprits in CULPRITS],
        ),
        f"### Pairs that must fall back together, and scores with a noise of {NOISE} where 0.008 may be lost",
        _table(
            ["n", "d", "bound", "bisection", *(f"auto, ranking {ranking}" for ranking in RANKINGS)],
            [_line(found, case) for case in _hard(rows)],
        ),
        "### Every strategy, three culprits",
        _table(["strategy", "ranking", *(f"n = {ops}" for ops in SIZES)], list(_all(found))),
        "### The most evaluations a strategy can ask for",
        _table(["strategy", *(f"n = {ops}" for ops in SIZES)], list(_worst())),
    ]
    return "\n\n".join(parts)


def _line(found: dict[tuple[str, Case], Row], case: Case) -> list[str]:
    words = [str(case.guilty)]
    if case.pairs:
        words.append(f"{case.pairs} pairs" if case.pairs > 1 else "a pair")
    if case.noise:
        words.append("noise")
    asked = [Case(case.ops, case.culprits, case.pairs, ranking, case.noise) for ranking in RANKINGS]
    cells = [_cell(found.get(("bisection", case))), *(_cell(found.get(("auto", other))) for other in asked)]
    return [str(case.ops), ", ".join(words), f"{case.bound:.1f}", *cells]


def _hard(rows: Sequence[Row]) -> list[Case]:
    return [row.case for row in rows if row.strategy == "bisection" and (row.case.pairs or row.case.noise)]


def _all(found: dict[tuple[str, Case], Row]) -> Iterator[list[str]]:
    for name in RANKED:
        for ranking in RANKINGS:
            cells = [_cell(found.get((name, Case(ops, 3, ranking=ranking)))) for ops in SIZES]
            yield [f"`{name}`", ranking, *cells]
    for name in BLIND:
        cells = [_cell(found.get((name, Case(ops, 3)))) for ops in SIZES]
        if any(cells):
            yield [f"`{name}`" if name != "bisection" else "bisection", "not asked for", *cells]


def _worst() -> Iterator[list[str]]:
    for name in (*RANKED, *BLIND):
        if name == "bisection":
            continue
        most = [strategy_of(name).worst_case(Case(ops, 1).model(0).space) for ops in SIZES]
        yield [f"`{name}`", *("no end of its own" if worst is None else _short(worst + 1) for worst in most)]


def _short(number: int) -> str:
    return str(number) if number < 10**6 else f"10^{len(str(number)) - 1}"


def _cell(row: Row | None) -> str:
    """First success / whole search (fp32 ops then and in the end)."""
    if row is None:
        return ""
    if row.first is None or row.whole is None:
        return f"none in {MOST_TRIALS.get(row.strategy, 0)}"
    whole = f"{row.whole:.0f}" if row.strategy not in MOST_TRIALS else f"({row.whole:.0f})"
    share = "" if row.found == row.seeds else f", {row.found} of {row.seeds}"
    return f"{row.first:.1f} / {whole} [{row.first_fp32:.0f} → {row.whole_fp32:.0f}]{share}"


def _table(head: list[str], lines: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *lines))


def draw(rows: Sequence[Row], path: Path = DOCS / "strategies.svg") -> None:
    """Evaluations against the number of ops, for three culprits."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "quaver", "font.family": "sans-serif", "font.size": 9})
    import matplotlib.pyplot as plt

    found = {(row.strategy, row.case): row for row in rows}
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.6), sharey=True, layout="constrained")
    for axis, field, title in zip(
        axes, ("first", "whole"), ("to the first success", "until the search ends"), strict=True
    ):
        _lines(axis, found, field)
        axis.set(
            xscale="log", yscale="log", title=f"Evaluations {title}", xlabel="ops in the model, 3 of them culprits"
        )
        axis.set_xticks(SIZES, [str(size) for size in SIZES])
        axis.set_yticks([3, 10, 30, 100, 300, 1000], ["3", "10", "30", "100", "300", "1000"])
        axis.minorticks_off()
        axis.set_ylim(3, 2500)
        axis.grid(color="#e6e6e6", linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(fontsize=8, frameon=False, loc="upper left")
    figure.savefig(path, metadata={"Date": None, "Creator": None})


def _lines(axis: Any, found: dict[tuple[str, Case], Row], field: str) -> None:
    def line(name: str, ranking: str, label: str, **style: Any) -> None:
        taken = [found[name, Case(ops, 3, ranking=ranking)] for ops in SIZES]
        axis.plot(SIZES, [getattr(row, field) for row in taken], marker="o", markersize=3, label=label, **style)

    line("basic", "right", "basic", color=RED)
    line("mse", "useless", "mse, ranking useless", color=RED, linestyle=":")
    line("mse", "right", "mse, ranking right", color=RED, linestyle="--")
    line("bisection", "right", "bisection in graph order", color=GREY)
    line("auto", "useless", "auto, ranking useless", color=PALE, linewidth=2)
    line("auto", "weak", "auto, ranking weak", color=LIGHT, linewidth=2)
    line("auto", "right", "auto, ranking right", color=BLUE, linewidth=2)
    if field == "whole":
        bounds = [Case(ops, 3).bound for ops in SIZES]
        axis.plot(SIZES, bounds, color="black", linewidth=1, linestyle="--")
        axis.annotate("log2 C(n, 3)", (SIZES[-1], bounds[-1]), (0, -20), textcoords="offset points", ha="right")
