"""`quaver diagnose`: which ops of a quantized model lose accuracy, and why."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quaver.command import flags, output, sentences, user_files
from quaver.errors import SettingsError
from quaver.types import PlainDict

DESCRIPTION = """\
Report which ops of a quantized model lose accuracy, how much, and why, with a rule to paste. No labels are needed.

  quaver diagnose model.onnx --calib calib.npz                         all ops in int8
  quaver diagnose model.onnx --calib calib.npz --op-type Conv=fp32     all but these
  quaver diagnose model.onnx --calib calib.npz --history RUN --trial 3
  quaver diagnose model.onnx model-int8.onnx --calib calib.npz         a quantized file, made by any tool
  quaver diagnose --alone model-int8.onnx --calib calib.npz            a quantized file without its float model
  quaver diagnose model.onnx --calib calib.npz -o tables               writes all tables into a folder
"""


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Describe the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "diagnose",
        help="explain which ops of a quantized model lose accuracy",
        description=DESCRIPTION,
        usage="quaver diagnose MODEL [QUANTIZED] --calib DATA [--history RUN [--trial N]] [-o FOLDER] [options]",
    )
    parser.add_argument("model", metavar="MODEL", help="the float model; with --alone a quantized model")
    parser.add_argument("quantized", metavar="QUANTIZED", nargs="?", help="an already quantized model")
    parser.add_argument("--alone", action="store_true", help="MODEL is quantized, and its float model is missing")
    parser.add_argument("--calib", metavar="DATA", help="calibration data without labels, as for `quaver tune`")
    parser.add_argument("--history", metavar="RUN", help="the run of --trial: its workspace or history.snapshot")
    parser.add_argument("--trial", metavar="N", type=int, help="number of the trial (default: the best)")
    parser.add_argument("--samples", metavar="N", type=int, help="number of samples to run (default: 128)")
    parser.add_argument("--calibration-sampling-size", type=int, metavar="N", help="calibration samples (default: all)")
    parser.add_argument("--rows", metavar="N", type=int, default=10, help="rows of each table; 0 is all (default: 10)")
    parser.add_argument("--no-timing", action="store_true", help="do not time the ops")
    parser.add_argument("--threads", metavar="N", type=int, default=0, help="threads of one inference")
    parser.add_argument("--runtime", metavar="NAME", help="time the ops in this runtime, such as openvino")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument(
        "-o", "--output", metavar="FOLDER", help="write tables, causes, rules and histograms into a folder"
    )
    flags.add_rules(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Diagnose the model and print the result."""
    if args.rows < 0:
        raise SettingsError(f"--rows takes a number of rows, or 0 for all, not {args.rows}")
    if args.calib is None:
        raise SettingsError("pass calibration data without labels, such as --calib data.npz")
    if args.alone and (args.quantized or args.history or args.op_name_dict or args.op_type_dict):
        raise SettingsError("--alone takes one quantized model: leave out the second model, --history and rules")
    if args.trial is not None and args.history is None:
        raise SettingsError(f"--trial {args.trial} needs --history RUN, the run of the trial")
    if args.quantized is not None and args.history is not None:
        raise SettingsError("pass a quantized model or --history, not both")
    if args.output is not None and Path(args.output).is_file():
        raise SettingsError(f"-o takes a folder for the tables, but {args.output!r} is a file")

    import quaver
    from quaver.api.display import diagnosis as diagnosis_display
    from quaver.command.output import warnings_shown
    from quaver.engine.inspection.diagnose import SAMPLES

    samples = SAMPLES if args.samples is None else args.samples
    if args.alone:
        data = user_files.calibration(args.calib)
        with warnings_shown():
            statistics = quaver.diagnose_quantized(
                args.model, data, samples=samples, workspace=args.output, threads=args.threads
            )
        return _print(args, statistics.to_dict(), lambda: diagnosis_display.write_alone(statistics, args.rows))
    with warnings_shown():
        diagnosis = quaver.diagnose(
            args.model,
            args.quantized if args.history is None else _trial(args),
            user_files.calibration(args.calib),
            history=args.history,
            samples=samples,
            timing=not args.no_timing,
            workspace=args.output,
            calibration_sampling_size=args.calibration_sampling_size,
            op_name_dict=dict(args.op_name_dict) if args.op_name_dict else None,
            op_type_dict=dict(args.op_type_dict) if args.op_type_dict else None,
            threads=args.threads,
            runtime=args.runtime,
        )
    return _print(args, diagnosis.to_dict(), lambda: diagnosis_display.write(diagnosis, args.rows))


def _print(args: argparse.Namespace, plain: PlainDict, write: Callable[[], None]) -> int:
    """Print the diagnosis as JSON or as tables."""
    from quaver.diagnosis.export import as_json

    if args.json:
        output.write_json(as_json(plain))
        return 0
    write()
    if args.output is not None:
        print(f"\nThe tables are in {sentences.path(Path(args.output))}.")
    return 0


def _trial(args: argparse.Namespace) -> Any:
    """Return the number of --trial, or the best trial."""
    from quaver.engine.scoring.judge import judge_snapshot
    from quaver.history import read_snapshot

    if args.trial is not None:
        return args.trial
    best = judge_snapshot(read_snapshot(args.history)).best
    if best is None:
        raise SettingsError(f"{args.history} has no trial with a score yet")
    return best
