"""`quaver report`: all views of a run in one file."""

from __future__ import annotations

import argparse
from typing import Any

from quaver import formatting
from quaver.command import sentences

DESCRIPTION = """\
Writes all views of a run into one HTML file that needs no server and no network. A run writes one by itself when it
ends: report.html in its workspace.

  quaver report quaver_workspace/2025-01-31_12-00-00 -o report.html
"""


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Describe the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "report", help="write a run as one HTML file", description=DESCRIPTION
    )
    parser.add_argument("history", metavar="RUN", help="a workspace, or the history.snapshot in it")
    parser.add_argument(
        "-o", "--output", metavar="OUT", help="where to write it (default: report.html in the workspace)"
    )
    return parser


def run(args: argparse.Namespace) -> int:
    """Write the report."""
    from quaver.insights.report.write import write_report

    path = write_report(args.history, args.output)
    print(f"the report is in {sentences.path(path.absolute())} ({formatting.file_size(path.stat().st_size)})")
    return 0
