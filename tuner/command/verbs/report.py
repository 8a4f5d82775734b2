"""`quaver report`: write a run as one HTML file."""

from __future__ import annotations

import argparse
from typing import Any

from quaver import formatting
from quaver.command import sentences

DESCRIPTION = """\
Write all views of a run into one HTML file that needs no server and no network. Each run writes report.html into its
workspace when it ends.

  quaver report quaver_workspace/2025-01-31_12-00-00 -o report.html
"""


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Describe the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "report", help="write a run as one HTML file", description=DESCRIPTION
    )
    parser.add_argument("history", metavar="RUN", help="a workspace, or its history.snapshot")
    parser.add_argument(
        "-o", "--output", metavar="OUT", help="path of the report (default: report.html in the workspace)"
    )
    return parser


def run(args: argparse.Namespace) -> int:
    """Write the report."""
    from quaver.insights.report.write import write_report

    path = write_report(args.history, args.output)
    print(f"the report is in {sentences.path(path.absolute())} ({formatting.file_size(path.stat().st_size)})")
    return 0
