"""`quaver demo`: tune a small network."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from pathlib import Path
from typing import Any

from quaver.files.paths import expanded

DESCRIPTION = """\
Tune a small depthwise CNN for handwritten digits, which loses accuracy with one weight scale per layer, and show which
ops cause it. It takes less than a minute.

  quaver demo
  quaver demo --keep digits
"""


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Describe the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "demo", help="tune a small network", description=DESCRIPTION
    )
    parser.add_argument("--keep", metavar="FOLDER", help="write the files there instead of into a temporary folder")
    parser.add_argument(
        "--strategy", metavar="NAME", default="auto", help="strategy (default: auto); try basic to compare"
    )
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the demo."""
    from quaver.demo.run import run as run_demo

    folder = Path(expanded(args.keep)) if args.keep else Path(tempfile.mkdtemp(prefix="quaver-demo-"))
    try:
        result = run_demo(folder, args.strategy)
    except BaseException:
        with contextlib.suppress(OSError):  # removes the folder only if it is empty
            folder.rmdir()
        raise
    if result.best is None:
        return 130
    return 0 if result.met else 3
