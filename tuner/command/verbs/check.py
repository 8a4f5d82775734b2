"""`quaver check`: a gate for CI. Does a quantized model, whoever made it, keep what was asked for?"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET  # nosec B405 - written, never read

from quaver.api.check_result import CheckResult, Verdict
from quaver.command import flags, metric, user_files
from quaver.command.json_records import print_json
from quaver.errors import SettingsError
from quaver.files.paths import expanded


def write(found: CheckResult, path: Path, name: str) -> None:
    """Write a suite with a case for each limit, the speed and the other processor. All but "met" has failed."""
    cases = [(f"loss of {one.name}", one.verdict, str(one)) for one in found.limits]
    if found.speed is not None:
        cases.append(("speed", found.speed.verdict, str(found.speed)))
    if found.processor is not None:
        cases.append((f"answers on {found.processor.cpu}", found.processor.verdict, str(found.processor)))
    failed = sum(verdict is not Verdict.MET for _, verdict, _ in cases)
    counts = {"tests": str(len(cases)), "failures": str(failed), "errors": "0"}
    suite = ET.Element("testsuite", {"name": f"quaver check {name}", **counts})
    for title, verdict, said in cases:
        case = ET.SubElement(suite, "testcase", classname="quaver.check", name=title)
        if verdict is not Verdict.MET:
            ET.SubElement(case, "failure", type=str(verdict), message=said).text = said
        ET.SubElement(case, "system-out").text = said
    tree = ET.ElementTree(suite)
    ET.indent(tree)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        tree.write(path, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise SettingsError(f"--junit {str(path)!r} cannot be written: {error.strerror}") from error


DESCRIPTION = """\
Judges a quantized model beside the float model it was made from. Any maker will do: ONNX Runtime's tool, TensorFlow's
converter, quaver. Both are run just as they are.

  quaver check model.onnx model-int8.onnx --eval my_eval.py:accuracy --relative 0.01
  quaver check model.onnx model-int8.onnx --metric top1 --data test.npz --labels y.npy --faster-than 1.5
  quaver check model.onnx model-int8.onnx --metric top1 --data test.npz --labels y.npy --cpu haswell
  quaver check model.tflite model-int8.tflite --metric agreement --data test.npy --absolute 0.02 --junit check.xml

Where the score of each sample is known (a metric, or an --eval that returns or yields arrays), the loss on all such
data lies within an interval. If the limit lies within it, these samples cannot tell: the verdict is inconclusive.
"""


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Describe the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "check",
        help="judge a quantized model that exists: a gate for CI",
        description=DESCRIPTION,
        usage="quaver check MODEL QUANTIZED (--eval FILE.py:FUNCTION | --metric NAME --data DATA) [options]",
        epilog="exit codes: 0 met, 3 not met or too slow, 4 inconclusive, 2 wrong usage or an error that quaver names.",
    )
    parser.add_argument("model", metavar="MODEL", help="the float model")
    parser.add_argument("quantized", metavar="QUANTIZED", help="the quantized model")
    metric.add(parser, "those of --calib if not given")
    goal = parser.add_argument_group("what to keep")
    flags.add_criterion(goal)
    goal.add_argument(
        "--confidence",
        metavar="LEVEL",
        type=float,
        default=0.95,
        help="how sure a verdict must be, where scores of samples are known; 0 lets the scores alone decide "
        "(default: 0.95)",
    )
    goal.add_argument(
        "--faster-than",
        metavar="TIMES",
        type=float,
        help="how many times as fast as the float model it must be, such as 1.0; not measured if not given",
    )
    parser.add_argument(
        "--calib",
        metavar="DATA",
        help="typical inputs to measure the time on; those of --metric, or made up, if not given",
    )
    parser.add_argument(
        "--cpu",
        metavar="NAME",
        help="run the quantized model on an emulated x86 processor, too: haswell has AVX2 and no VNNI; needs qemu-user",
    )
    parser.add_argument(
        "--cpu-samples",
        metavar="N",
        type=int,
        default=64,
        help="samples to run on --cpu, which is about 50 times slower; 0 runs all and scores them there (default: 64)",
    )
    parser.add_argument("--threads", metavar="N", type=int, default=0, help="threads of one inference")
    parser.add_argument("--json", action="store_true", help="write the verdict as JSON (docs/check.schema.json)")
    parser.add_argument("--junit", metavar="FILE", help="write the verdict as JUnit XML, too")
    return parser


class ProgressLine:
    """Writes to stderr how many samples have run on an emulated processor, at most once every few seconds."""

    SECONDS = 5.0

    def __init__(self, cpu: str) -> None:
        self._cpu, self._written = cpu, time.monotonic()

    def __call__(self, samples: int) -> None:
        if time.monotonic() - self._written >= self.SECONDS:
            self._written = time.monotonic()
            print(f"{samples} samples on {self._cpu}, emulated", file=sys.stderr, flush=True)


def run(args: argparse.Namespace) -> int:
    """Check, and print the verdict."""
    if args.junit is not None and Path(expanded(args.junit)).is_dir():
        raise SettingsError(f"--junit takes a file to write, and {args.junit!r} is a folder")
    eval_func = metric.eval_func(args, args.calib)

    import quaver
    from quaver.command.output import warnings_shown

    with warnings_shown():
        found = quaver.check(
            args.model,
            args.quantized,
            eval_func,
            confidence=args.confidence or None,
            faster_than=args.faster_than,
            data=None if args.calib is None else user_files.calibration(args.calib),
            threads=args.threads,
            cpu=args.cpu,
            cpu_samples=args.cpu_samples or None,
            progress=None if args.cpu is None else ProgressLine(args.cpu),
            **flags.criterion(args),
            **metric.direction(args, eval_func),
        )
    if args.junit is not None:
        write(found, Path(expanded(args.junit)), Path(args.quantized).name)
    if args.json:
        print_json({"model": args.model, "quantized": args.quantized, **found.to_dict(), "quaver": quaver.__version__})
    else:
        print(found)
    return {quaver.Verdict.MET: 0, quaver.Verdict.NOT_MET: 3, quaver.Verdict.INCONCLUSIVE: 4}[found.verdict]
