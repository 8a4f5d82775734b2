"""`quaver check`: judge an existing quantized model, as a gate in CI."""

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


def write_junit(result: CheckResult, path: Path, name: str) -> None:
    """Write a test suite with a case for each limit, the speed and the other processor; all but "met" fail."""
    cases = [(f"loss of {limit.name}", limit.verdict, str(limit)) for limit in result.limits]
    if result.speed is not None:
        cases.append(("speed", result.speed.verdict, str(result.speed)))
    if result.processor is not None:
        cases.append((f"answers on {result.processor.cpu}", result.processor.verdict, str(result.processor)))
    failed = sum(verdict is not Verdict.MET for _, verdict, _ in cases)
    counts = {"tests": str(len(cases)), "failures": str(failed), "errors": "0"}
    suite = ET.Element("testsuite", {"name": f"quaver check {name}", **counts})
    for title, verdict, message in cases:
        case = ET.SubElement(suite, "testcase", classname="quaver.check", name=title)
        if verdict is not Verdict.MET:
            ET.SubElement(case, "failure", type=str(verdict), message=message).text = message
        ET.SubElement(case, "system-out").text = message
    tree = ET.ElementTree(suite)
    ET.indent(tree)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        tree.write(path, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise SettingsError(f"--junit {str(path)!r} cannot be written: {error.strerror}") from error


DESCRIPTION = """\
Judge a quantized model against its float model. Any tool may have made it: ONNX Runtime's, TensorFlow's converter,
quaver. Both models run unmodified.

  quaver check model.onnx model-int8.onnx --eval my_eval.py:accuracy --relative 0.01
  quaver check model.onnx model-int8.onnx --metric top1 --data test.npz --labels y.npy --faster-than 1.5
  quaver check model.onnx model-int8.onnx --metric top1 --data test.npz --labels y.npy --cpu haswell
  quaver check --manifest publish/manifest.json        are these the published files?
  quaver check model.tflite model-int8.tflite --metric agreement --data test.npy --absolute 0.02 --junit check.xml

With a score for each sample (a metric, or an --eval that returns or yields arrays) the loss has a confidence interval.
If the limit lies inside it, the samples do not suffice: the verdict is inconclusive.
"""


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Describe the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "check",
        help="judge an existing quantized model: a gate for CI",
        description=DESCRIPTION,
        usage="quaver check MODEL QUANTIZED (--eval FILE.py:FUNCTION | --metric NAME --data DATA) [options]",
        epilog="exit codes: 0 met, 3 not met or too slow, 4 inconclusive, 2 wrong usage or an error that quaver names.",
    )
    parser.add_argument("model", metavar="MODEL", nargs="?", help="the float model")
    parser.add_argument("quantized", metavar="QUANTIZED", nargs="?", help="the quantized model")
    parser.add_argument(
        "--manifest", metavar="FILE", help="verify the files of a manifest that `quaver card` wrote, and nothing else"
    )
    metric.add(parser, "those of --calib if not given")
    goal = parser.add_argument_group("what to keep")
    flags.add_criterion(goal)
    goal.add_argument(
        "--confidence",
        metavar="LEVEL",
        type=float,
        default=0.95,
        help="confidence that a verdict needs, if per-sample scores are known; 0 lets the scores alone decide "
        "(default: 0.95)",
    )
    goal.add_argument(
        "--faster-than",
        metavar="TIMES",
        type=float,
        help="required speed-up over the float model, such as 1.0; not measured if not set",
    )
    parser.add_argument(
        "--calib",
        metavar="DATA",
        help="inputs to time the models with (default: those of --metric, or random inputs)",
    )
    parser.add_argument(
        "--cpu",
        metavar="NAME",
        help="also run the quantized model on an emulated x86 processor: haswell has AVX2 but no VNNI; needs qemu-user",
    )
    parser.add_argument(
        "--cpu-samples",
        metavar="N",
        type=int,
        default=64,
        help="samples to run on --cpu, which is about 50 times slower; 0 runs and scores all (default: 64)",
    )
    parser.add_argument("--threads", metavar="N", type=int, default=0, help="threads of one inference")
    parser.add_argument("--runtime", metavar="NAME", help="run both models in this runtime, such as openvino")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON (docs/check.schema.json)")
    parser.add_argument("--junit", metavar="FILE", help="also write the verdict as JUnit XML")
    return parser


def _check_manifest(args: argparse.Namespace) -> int:
    """Verify a manifest and print the result."""
    from quaver.api.manifest import check_manifest

    if args.model is not None:
        raise SettingsError("--manifest verifies the files that it names: leave the models out")
    result = check_manifest(args.manifest)
    if args.json:
        print_json({"manifest": args.manifest, **result.to_dict()})
    else:
        print(result)
    return 0 if result.met else 3


class ProgressLine:
    """Print to stderr how many samples have run on an emulated processor, at most once per `INTERVAL` seconds."""

    INTERVAL = 5.0

    def __init__(self, cpu: str) -> None:
        self._cpu, self._written = cpu, time.monotonic()

    def __call__(self, samples: int) -> None:
        if time.monotonic() - self._written >= self.INTERVAL:
            self._written = time.monotonic()
            print(f"{samples} samples on {self._cpu}, emulated", file=sys.stderr, flush=True)


def run(args: argparse.Namespace) -> int:
    """Check the model and print the verdict."""
    if args.manifest is not None:
        return _check_manifest(args)
    if args.model is None or args.quantized is None:
        raise SettingsError("pass the float model and the quantized model, or --manifest FILE")
    if args.junit is not None and Path(expanded(args.junit)).is_dir():
        raise SettingsError(f"--junit takes a file to write, but {args.junit!r} is a folder")
    eval_func = metric.eval_func(args, args.calib)

    import quaver
    from quaver.command.output import warnings_shown

    with warnings_shown():
        result = quaver.check(
            args.model,
            args.quantized,
            eval_func,
            confidence=args.confidence or None,
            faster_than=args.faster_than,
            data=None if args.calib is None else user_files.calibration(args.calib),
            threads=args.threads,
            runtime=args.runtime,
            cpu=args.cpu,
            cpu_samples=args.cpu_samples or None,
            progress=None if args.cpu is None else ProgressLine(args.cpu),
            **flags.criterion(args),
            **metric.direction(args, eval_func),
        )
    if args.junit is not None:
        write_junit(result, Path(expanded(args.junit)), Path(args.quantized).name)
    if args.json:
        print_json({"model": args.model, "quantized": args.quantized, **result.to_dict(), "quaver": quaver.__version__})
    else:
        print(result)
    return {quaver.Verdict.MET: 0, quaver.Verdict.NOT_MET: 3, quaver.Verdict.INCONCLUSIVE: 4}[result.verdict]
