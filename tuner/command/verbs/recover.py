"""`quaver recover`: rebuild the model of a trial."""

from __future__ import annotations

import argparse
from typing import Any

from quaver import formatting
from quaver.command import flags
from quaver.errors import SettingsError

DESCRIPTION = """\
Rebuild the model of a trial byte for byte from the float model and the history; no calibration data is needed.
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
    parser.add_argument("model", metavar="MODEL", help="the float model of the run")
    parser.add_argument("history", metavar="FILE", help="a history.snapshot, or its workspace")
    parser.add_argument("number", metavar="N", type=int, help="number of the trial")
    parser.add_argument("-o", "--output", metavar="OUT", help="path of the model")
    return parser


def run(args: argparse.Namespace) -> int:
    """Rebuild the model and save it."""
    if args.output is None:
        raise SettingsError(f"pass the path to save the model to, such as -o trial{args.number}.onnx")
    output = flags.check_output(args.output, args.model)
    assert output is not None

    import quaver

    model = quaver.recover(args.model, args.history, args.number)
    path = model.save(output)
    without = " without its provenance" if model.provenance else ""
    print(f"trial {args.number} is in {path} ({formatting.file_size(model.size)}, sha256{without} {model.sha256})")
    return 0
