"""`quaver demo`: see it at work on a small network."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from pathlib import Path
from typing import Any

from quaver.files.paths import expanded

DESCRIPTION = """\
Tunes a small depthwise CNN for handwritten digits, which loses accuracy when each layer has one weight scale, and tells
which ops are to blame. Takes less than a minute.

  quaver demo
  quaver demo --keep digits
"""


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Describe the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser("demo", help="see it at work", description=DESCRIPTION)
    parser.add_argument("--keep", metavar="FOLDER", help="put the files there, not in a temporary folder")
    parser.add_argument(
        "--strategy", metavar="NAME", default="auto", help="who proposes (default: auto); try basic to compare"
    )
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the demo."""
    from quaver.demo.run import run as run_demo

    folder = Path(expanded(args.keep)) if args.keep else Path(tempfile.mkdtemp(prefix="quaver-demo-"))
    try:
        result = run_demo(folder, args.strategy)
    except BaseException:
        with contextlib.suppress(OSError):  # a temporary folder in which nothing was left
            folder.rmdir()
        raise
    if result.best is None:
        return 130
    return 0 if result.met else 3
