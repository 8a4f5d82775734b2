"""`quaver export`: write a run in the format of another tool."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from quaver import formatting
from quaver.command import sentences
from quaver.errors import SettingsError

DESCRIPTION = """\
Write a run in the format of another tool. Optuna and optuna-dashboard open an Optuna journal: each trial has the
precision of each op as a parameter and the score as its value; trial 0 is the fp32 baseline.

  quaver export quaver_workspace/2025-01-31_12-00-00 --optuna journal.log
  optuna-dashboard journal.log
"""


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Describe the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "export", help="write a run in the format of another tool", description=DESCRIPTION
    )
    parser.add_argument("history", metavar="FILE", help="a history.snapshot, or its workspace")
    parser.add_argument("--optuna", metavar="JOURNAL", help="write an Optuna journal to this new file (extra [optuna])")
    parser.add_argument("--study-name", metavar="NAME", help="name of the study (default: name of the workspace)")
    return parser


def run(args: argparse.Namespace) -> int:
    """Write the file."""
    if args.optuna is None:
        raise SettingsError("pass the journal to write, such as --optuna journal.log")

    from quaver.history import read_snapshot
    from quaver.insights.optuna_journal import export_optuna

    snapshot = read_snapshot(args.history)
    count = export_optuna(snapshot, args.optuna, args.study_name)
    print(f"{count} trial(s), including the fp32 baseline, are in {sentences.path(Path(args.optuna))}")
    if snapshot.damage:
        print(f"DAMAGED: {formatting.printable(snapshot.damage)}; only readable records are exported")
    return 0
