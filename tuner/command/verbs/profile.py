"""`quaver profile`: time a model and its ops."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quaver import formatting
from quaver.command import output, sentences, user_files
from quaver.errors import SettingsError
from quaver.formatting import milliseconds

if TYPE_CHECKING:
    from quaver.diagnosis import Profile

DESCRIPTION = """\
Time a model end to end and op by op, and optionally a second model beside it.

  quaver profile model.onnx
  quaver profile model.onnx --against model-int8.onnx --calib calib.npz --batch 8 --threads 1
  quaver profile model.onnx --history RUN --trial 3 -o profile.csv
  quaver profile model.onnx --calib calib.npz --save cost.json
  quaver profile model.onnx --calib calib.npz --board board.pyz

--save writes the time of each op on this machine in fp32 and in int8, so that `quaver tune --cost-model cost.json` on
another machine can tune for this one. --board writes one file that does the same on a machine that has onnxruntime and
numpy but not quaver: `python3 board.pyz > cost.json`.
"""


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Describe the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "profile",
        help="time a model and its ops",
        description=DESCRIPTION,
        usage="quaver profile MODEL [--against QUANTIZED | --history RUN --trial N] [options]",
    )
    parser.add_argument("model", metavar="MODEL", help="any model, float or quantized")
    parser.add_argument("--against", metavar="QUANTIZED", help="a quantized model to compare with")
    parser.add_argument("--history", metavar="RUN", help="the run of --trial: its workspace or history.snapshot")
    parser.add_argument("--trial", metavar="N", type=int, help="number of the trial to compare with")
    parser.add_argument("--calib", metavar="DATA", help="inputs to run (default: random inputs)")
    parser.add_argument("--batch", metavar="N", type=int, default=1, help="samples per inference (default: 1)")
    parser.add_argument("--threads", metavar="N", type=int, default=0, help="0 lets the runtime decide (default)")
    parser.add_argument("--runtime", metavar="NAME", help="time in this runtime, such as openvino")
    parser.add_argument(
        "--warmup", metavar="N", type=int, default=5, help="untimed inferences at the start (default: 5)"
    )
    parser.add_argument("--runs", metavar="N", type=int, default=50, help="timed inferences (default: 50)")
    parser.add_argument("--rows", metavar="N", type=int, default=20, help="ops to show; 0 is all (default: 20)")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("-o", "--output", metavar="FILE", help="write all ops to a .csv, or everything to a .json")
    parser.add_argument("--save", metavar="COST.json", help="write op times for `quaver tune --cost-model` elsewhere")
    parser.add_argument(
        "--board", metavar="FILE.pyz", help="write a file that times the model on a machine without quaver"
    )
    parser.add_argument("--target", metavar="NAME", help="with --save: name of this machine")
    return parser


def run(args: argparse.Namespace) -> int:
    """Time the model and print the table, or write a cost model."""
    if args.save is not None or args.board is not None:
        return _save(args)
    _check_arguments(args)

    import quaver

    profile = quaver.profile(
        args.model,
        args.against if args.trial is None else args.trial,
        None if args.calib is None else user_files.calibration(args.calib),
        history=args.history,
        batch=args.batch,
        threads=args.threads,
        runtime=args.runtime,
        warmup=args.warmup,
        runs=args.runs,
    )
    if args.output is not None:
        profile.save(args.output)
    if args.json:
        output.write_json(profile.to_json())
        return 0
    _print_table(profile, args.rows)
    print()
    _print_totals(profile)
    if args.output is not None:
        print(f"the full profile is in {sentences.path(Path(args.output))}")
    return 0


def _check_arguments(args: argparse.Namespace) -> None:
    if args.target is not None:
        raise SettingsError("--target needs --save: it names the machine in the cost model")
    if args.rows < 0:
        raise SettingsError(f"--rows takes a number of ops, or 0 for all, not {args.rows}")
    if (args.history is None) != (args.trial is None):
        raise SettingsError("pass --history and --trial together: a run and the number of a trial")
    if args.against is not None and args.history is not None:
        raise SettingsError("pass --against or --history, not both")
    if args.output is not None and Path(args.output).suffix.lower() not in (".csv", ".json"):
        raise SettingsError(f"-o takes a file that ends in .csv or .json, not {args.output!r}")
    if args.output is not None and not Path(args.output).parent.is_dir():
        raise SettingsError(f"the folder {str(Path(args.output).parent)!r} of -o does not exist")


def _print_table(profile: Profile, max_rows: int) -> None:
    """Print the slowest ops; 0 prints all."""
    from quaver.api.display import tables

    heads, rows = profile.table
    printed = rows[:max_rows] if max_rows else rows
    unit, factor = _unit(printed)
    headings, cells = [head.replace("seconds", unit) for head in heads], [_cells(row, factor) for row in printed]
    if sys.stdout.isatty():
        headings, cells = _narrow(headings, cells)
    tables.write(headings, cells, right=headings[2:])
    if len(printed) < len(rows):
        print(f"... and {len(rows) - len(printed)} more")


def _print_totals(profile: Profile) -> None:
    """Print the latency of each model, and their ratio."""
    from quaver.api.display import tables
    from quaver.api.display.diagnosis import folded

    for label, latency in (("first", profile.latency), ("against", profile.against)):
        if latency is not None:
            print(folded(_sentence(label if profile.against is not None else "latency", latency), indent=""))
    if profile.against is not None:
        ratio = profile.against.p50 / profile.latency.p50
        tables.line("against / first: ", _ratio(ratio), " (slower)" if ratio > formatting.EVEN_LATENCY else "")
    if profile.how:
        print(folded(profile.how, indent=""))


def _save(args: argparse.Namespace) -> int:
    import quaver

    if args.against is not None or args.history is not None:
        raise SettingsError("--save and --board time the float model: leave out --against and --history")
    if args.save is not None and args.board is not None:
        raise SettingsError("pass --save to time the model here, or --board to time it elsewhere, not both")
    if args.calib is None:
        raise SettingsError("--save and --board need --calib: inputs to calibrate and to time the model with")
    if args.board is not None:
        path = quaver.save_board_kit(args.model, args.board, user_files.calibration(args.calib), batch=args.batch)
        print(f"run this on the board: python3 {path.name} > cost.json (it needs onnxruntime and numpy)")
        return 0
    data = user_files.calibration(args.calib)
    path = quaver.save_cost_model(args.model, args.save, data, target=args.target, batch=args.batch)
    print(f"the cost model is in {sentences.path(path)}; tune with --cost-model {sentences.path(path)}")
    return 0


def _unit(rows: Sequence[Sequence[Any]]) -> tuple[str, float]:
    """Return the unit and its factor: milliseconds, or microseconds if most entries would be 0 in milliseconds."""
    times = [seconds for row in rows for seconds in (row[3], *row[7:8]) if seconds > 0]
    return ("µs", 1e6) if times and min(times) < 1e-4 and max(times) < 0.1 else ("ms", 1e3)


def _cells(row: Sequence[Any], factor: float) -> list[Any]:
    def time(seconds: float) -> str:
        return f"{seconds * factor:.3f}" if factor == 1e3 else f"{seconds * factor:,.1f}"

    name, kernel, count, seconds, share, *beside = row
    cells: list[Any] = [name, kernel, str(count), time(seconds), f"{share:.1%}"]
    if beside:
        kernel, count, seconds, ratio = beside
        runs = bool(kernel)
        cells += [kernel or "-", str(count) if runs else "-", time(seconds) if runs else "-"]
        cells += [_ratio(ratio)]
    return cells


def _ratio(ratio: float) -> Any:
    """Return the ratio of an op's times, red where the second model is slower."""
    from quaver.api.display import tables

    text = f"{ratio:.2f}" if ratio == ratio else "-"
    return tables.cell(text, tables.SLOWER if ratio > formatting.EVEN_LATENCY else "")


def _narrow(headings: list[str], rows: list[list[Any]]) -> tuple[list[str], list[list[Any]]]:
    """Narrow the table for a terminal: name the slowest kernel of each op and the number of others."""
    columns = [at for at, heading in enumerate(headings) if not heading.endswith("count")]
    kernels = [at for at in columns if headings[at].endswith("kernel")]
    for row in rows:
        for at in kernels:
            first, *more = row[at].split(", ")
            row[at] = f"{first} +{len(more)}" if more else first
    return [headings[at].replace("against / first", "ratio") for at in columns], [
        [row[at] for at in columns] for row in rows
    ]


def _sentence(label: str, latency: Any) -> str:
    p50, p90, p99, ops = (milliseconds(part * 1e3) for part in (latency.p50, latency.p90, latency.p99, latency.ops))
    return (
        f"{label}: p50 {p50}, p90 {p90}, p99 {p99}, "
        f"{latency.throughput:.1f} samples/s; ops take {ops} ({latency.runs} inferences of "
        f"{latency.samples} sample(s), {'runtime default' if latency.threads == 0 else latency.threads} thread(s))"
    )
