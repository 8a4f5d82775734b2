"""Run the tools, measure what they give, write the table."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks import result_files, tables
from benchmarks.comparison import plots, table
from benchmarks.comparison.measuring import Candidate, latencies, measure, session
from benchmarks.comparison.rows import Row, all_rows, runtimes_of
from benchmarks.comparison.runs import Run, all_runs, earlier_model
from benchmarks.comparison.setups import QUICK_SETUPS, QUICK_TOOLS, SETUPS, onnx_of
from benchmarks.peers.job import find_bench, fixed_shapes
from benchmarks.peers.launch import TOOLS

RESULTS = Path(__file__).parents[1] / "results"
KEYS = ("setup", "tool")  # a measurement of a tool replaces its rows in all runtimes


def rows_of(runs: Sequence[Run], seconds: float) -> list[Row]:
    """Measure the models of one setup together, with the float model in ONNX Runtime as the first."""
    bench = find_bench(runs[0].setup)
    is_onnx = bench.model_path.suffix == ".onnx"
    candidates = [Candidate(bench.model_path if is_onnx else onnx_of(runs[0].setup), "onnxruntime")]
    for run in runs:
        if run.ended.model is not None:
            candidates += [Candidate(file_for(run.ended.model, runtime), runtime) for runtime in runtimes_of(run)]
    return list(all_rows(runs, measure(candidates, bench, seconds)))


def time_again(setup: str, rows: Sequence[Row], seconds: float) -> list[Row]:
    """Measure the latencies of finished models again, all interleaved; their scores and sizes stay."""
    bench = find_bench(setup)
    is_onnx = bench.model_path.suffix == ".onnx"
    float_model = Candidate(bench.model_path if is_onnx else onnx_of(setup), "onnxruntime")
    own = [row for row in rows if row.setup == setup]
    timed = [row for row in own if row.latency]
    candidates = [Candidate(file_for(earlier_model(setup, row.tool), row.runtime), row.runtime) for row in timed]
    shapes = fixed_shapes(bench)
    sessions = [session(candidate, shapes) for candidate in (float_model, *candidates)]
    _, *times = latencies(sessions, dict(bench.calib[0]), seconds, time.process_time)
    again = [replace(row, latency=latency) for row, latency in zip(timed, times, strict=True)]
    return [*again, *(row for row in own if not row.latency)]


def file_for(model: Path, runtime: str) -> Path:
    """Return the file to measure: OpenVINO's own format if there is one beside the model."""
    exported = model.with_suffix(".xml")
    return exported if runtime.startswith("openvino") and exported.exists() else model


def write(rows: Sequence[Row], name: str) -> None:
    """Write the result file. Rows of other models and tools stay as they were."""
    fresh = [asdict(row) for row in rows]
    old = result_files.rows_of(name)
    print("\n".join(table.changes(old, rows)) or f"{rows[0].setup}: nothing changed by more than a tenth", flush=True)
    environments = {TOOLS[row.tool].environment for row in rows}
    versions = {environment.name: environment.versions() for environment in environments}
    versions = result_files.read(name).get("versions", {}) | versions
    notes = {"versions": dict(sorted(versions.items())), "earlier": result_files.read(name).get("earlier", [])}
    result_files.write(name, "Tools side by side", fresh, replaces=KEYS, packages=["openvino"], **notes)


def show(name: str) -> None:
    """Write the page and the pictures, and the tables of README and docs, from the result file."""
    rows, content = table.read(name), result_files.read(name)
    text = table.page(rows, content["measurements"][-1]["machine"], content["versions"])
    (RESULTS / f"{name}.md").write_text(text, encoding="utf-8")
    print(table.summary(rows))
    if name == "comparison":
        plots.draw(rows, RESULTS)
        tables.main()


def main() -> None:
    """Do it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.comparison", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few models, quaver and ONNX Runtime")
    parser.add_argument("--setups", nargs="+", choices=SETUPS, help="which models; all by default")
    parser.add_argument("--tools", nargs="+", choices=TOOLS, help="which tools; the usual ones by default")
    parser.add_argument("--limit", type=float, default=600, help="seconds of processor time for each run (600)")
    parser.add_argument("--seconds", type=float, default=15, help="of interleaved timing for each model (15)")
    parser.add_argument("--time-again", action="store_true", help="only measure latencies, of models that are there")
    parser.add_argument("--again", action="store_true", help="do not take answers of an earlier start")
    parser.add_argument("--runs-only", action="store_true", help="collect answers, measure nothing")
    options = parser.parse_args()
    setups = options.setups or (QUICK_SETUPS if options.quick else tuple(SETUPS))
    tools = options.tools or (
        QUICK_TOOLS if options.quick else tuple(name for name, tool in TOOLS.items() if tool.usual)
    )
    name = "comparison_part" if options.quick else "comparison"
    if options.time_again:
        rows = [row for row in table.read(name) if row.tool in tools]
        for setup in setups:
            write(time_again(setup, rows, options.seconds), name)
        show(name)
        return
    for runs in all_runs(setups, tools, options.limit, again=options.again):
        if not options.runs_only:
            write(rows_of(runs, options.seconds), name)
    if not options.runs_only:
        show(name)


if __name__ == "__main__":
    main()
