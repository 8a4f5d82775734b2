"""Run the tools, measure what they give, write the table."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks import result_files
from benchmarks.comparison import plots, table
from benchmarks.comparison.measuring import measure
from benchmarks.comparison.rows import Row, row
from benchmarks.comparison.runs import Run, all_runs
from benchmarks.comparison.setups import QUICK_SETUPS, QUICK_TOOLS, SETUPS
from benchmarks.models import load
from benchmarks.peers.job import FLOAT
from benchmarks.peers.launch import TOOLS

RESULTS = Path(__file__).parents[1] / "results"
README = Path(__file__).parents[2] / "README.md"
MARKS = ("<!-- comparison -->", "<!-- end of comparison -->")


def rows_of(runs: Sequence[Run], seconds: float) -> list[Row]:
    """Measure the models of one setup together."""
    bench = load(SETUPS[runs[0].setup].model)
    fp32 = bench.model_path
    if fp32.suffix != ".onnx":  # what quaver converted it to; no other tool keeps one
        fp32 = next(run.folder / f"{FLOAT}.tflite" for run in runs if run.tool.name.startswith("quaver"))
    made = [run for run in runs if run.ended.model is not None]
    files = [fp32, *(run.ended.model for run in made if run.ended.model is not None)]
    measured = measure(files, bench, seconds)
    by_tool = {run.tool.name: one for run, one in zip(made, measured[1:], strict=True)}
    return [row(run, measured[0], by_tool.get(run.tool.name)) for run in runs]


def write(rows: Sequence[Row], name: str) -> None:
    """JSON, Markdown and pictures, and README's table. Rows of other models and tools are kept as they were."""
    path, fresh = RESULTS / f"{name}.json", [asdict(one) for one in rows]
    if path.exists():
        old = result_files.rows_of(path)
        print("\n".join(table.changes(old, rows)) or "counts as before, latencies within a tenth")
        rows = merged([Row(**one) for one in old], rows)
    environments = {TOOLS[one.tool].environment for one in rows}
    versions = {environment.name: environment.versions() for environment in sorted(environments, key=str)}
    result_files.write(path, "Tools side by side", fresh, replaces=["setup", "tool"], versions=versions)
    (RESULTS / f"{name}.md").write_text(table.page(rows, result_files.machine(), versions), encoding="utf-8")
    print(table.summary(rows))
    if name == "comparison":
        plots.draw(rows, RESULTS)
        text = README.read_text(encoding="utf-8")
        if all(mark in text for mark in MARKS):
            before, after = text.split(MARKS[0])[0], text.split(MARKS[1])[1]
            README.write_text(f"{before}{MARKS[0]}\n{table.summary(rows)}\n{MARKS[1]}{after}", encoding="utf-8")


def merged(old: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """The rows of all models and tools, in their order; those that were measured now are the new ones."""
    fresh = {(row.setup, row.tool) for row in new}
    rows = [*(row for row in old if (row.setup, row.tool) not in fresh), *new]
    return sorted(rows, key=lambda row: (list(SETUPS).index(row.setup), list(TOOLS).index(row.tool)))


def main() -> None:
    """Do it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.comparison", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few models, quaver and ONNX Runtime")
    parser.add_argument("--setups", nargs="+", choices=SETUPS, help="which models; all by default")
    parser.add_argument("--tools", nargs="+", choices=TOOLS, help="which tools; the usual ones by default")
    parser.add_argument("--limit", type=float, default=600, help="seconds for each run (600)")
    parser.add_argument("--again", action="store_true", help="do not take answers of an earlier start")
    parser.add_argument("--runs-only", action="store_true", help="collect answers, measure nothing")
    given = parser.parse_args()
    setups = given.setups or (QUICK_SETUPS if given.quick else tuple(SETUPS))
    tools = given.tools or (QUICK_TOOLS if given.quick else tuple(name for name, tool in TOOLS.items() if tool.usual))
    rows: list[Row] = []
    for runs in all_runs(setups, tools, given.limit, again=given.again):
        if not given.runs_only:
            rows += rows_of(runs, 5 if given.quick else 20)
    if rows:
        write(rows, "comparison_part" if given.quick else "comparison")


if __name__ == "__main__":
    main()
