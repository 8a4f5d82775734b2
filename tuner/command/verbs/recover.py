"""`quaver recover`: the model of any trial, rebuilt."""

from __future__ import annotations

import argparse
from typing import Any

from quaver import formatting
from quaver.command import flags
from quaver.errors import SettingsError

DESCRIPTION = """\
Rebuilds the model of a trial from the float model and the history alone, byte for byte; no calibration data is needed.
Trial 0 is the fp32 baseline.

  quaver recover model.onnx quaver_workspace/2025-01-31_12-00-00 3 -o trial3.onnx
"""


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Describe the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "recover",
        help="rebuild the model of a trial",
        description=DESCRIPTION,
        usage="quaver recover MODEL FILE N -o OUT",
    )
    parser.add_argument("model", metavar="MODEL", help="the float model the run started from")
    parser.add_argument("history", metavar="FILE", help="a history.snapshot, or the workspace it lies in")
    parser.add_argument("number", metavar="N", type=int, help="the number of the trial")
    parser.add_argument("-o", "--output", metavar="OUT", help="where to save it")
    return parser


def run(args: argparse.Namespace) -> int:
    """Rebuild, and save."""
    if args.output is None:
        raise SettingsError(f"-o is needed: where to save the model, such as -o trial{args.number}.onnx")
    output = flags.check_output(args.output, args.model)
    assert output is not None

    import quaver

    model = quaver.recover(args.model, args.history, args.number)
    path = model.save(output)
    without = " without its provenance" if model.provenance else ""
    print(f"trial {args.number} is in {path} ({formatting.file_size(model.size)}, sha256{without} {model.sha256})")
    return 0
