"""`quaver export`: a run in the form of another tool."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from quaver import formatting
from quaver.command import sentences
from quaver.errors import SettingsError

DESCRIPTION = """\
Writes a run in the form of another tool. optuna-dashboard and optuna itself open an Optuna journal: each trial has the
precision of each op as a parameter and the score as its value; trial 0 is the fp32 baseline.

  quaver export quaver_workspace/2025-01-31_12-00-00 --optuna journal.log
  optuna-dashboard journal.log
"""


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Describe the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "export", help="write a run in the form of another tool", description=DESCRIPTION
    )
    parser.add_argument("history", metavar="FILE", help="a history.snapshot, or the workspace it lies in")
    parser.add_argument("--optuna", metavar="JOURNAL", help="a new file, for an Optuna journal (extra [optuna])")
    parser.add_argument("--study-name", metavar="NAME", help="the name of the study (default: that of the workspace)")
    return parser


def run(args: argparse.Namespace) -> int:
    """Write it."""
    if args.optuna is None:
        raise SettingsError("--optuna is needed: where to write the journal, such as --optuna journal.log")

    from quaver.history import read_snapshot
    from quaver.insights.optuna_journal import export_optuna

    snapshot = read_snapshot(args.history)
    count = export_optuna(snapshot, args.optuna, args.study_name)
    print(f"{count} trial(s), the fp32 model's included, are in {sentences.path(Path(args.optuna))}")
    if snapshot.damage:
        print(f"DAMAGED: {formatting.printable(snapshot.damage)}; what is exported is what could be read")
    return 0
