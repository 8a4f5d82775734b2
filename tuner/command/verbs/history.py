"""`quaver history`: list the trials of a run, or repair its file."""

from __future__ import annotations

import argparse
import os
from typing import Any

from quaver import formatting
from quaver.command import sentences
from quaver.history import repair


def write_repaired(path: str | os.PathLike[str]) -> None:
    """Copy the intact records to a new file and print what was lost. The file itself does not change."""
    repaired = repair(path)
    for damage in repaired.lost:
        print(f"LOST: {formatting.printable(damage)}")
    if not repaired.lost:
        print("nothing is damaged")
    print(f"{repaired.trials} trial(s) are in {repaired.path}")
    print(f"resume it with `quaver tune --resume {repaired.path}`, or replace the old file with it")


DESCRIPTION = """\
List the trials of a run, the fp32 baseline first. The best trial is marked with *. `change` names the earlier trial
that a trial came from (the one that differs in the fewest ops) and the ops that changed.

  quaver history quaver_workspace/2025-01-31_12-00-00
  quaver history run/history.snapshot --json
  quaver history run --repair                      copy the intact part of a damaged file to a new one
"""


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Describe the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "history", help="list the trials of a run", description=DESCRIPTION
    )
    parser.add_argument("history", metavar="FILE", help="a history.snapshot, or its workspace")
    parser.add_argument("--json", action="store_true", help="print everything but the op configurations as JSON")
    parser.add_argument(
        "--repair", action="store_true", help="write the intact records to FILE.repaired, and list what is lost"
    )
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the table or the JSON."""
    from quaver import formatting
    from quaver.api.display import tables
    from quaver.api.display.format import trial_phrases
    from quaver.api.display.html import WARNED
    from quaver.api.result_warnings import drift_phrase, run_warnings
    from quaver.command import json_records, trial_table
    from quaver.engine.inspection.output_drift import drift_of
    from quaver.engine.scoring.judge import judge_snapshot
    from quaver.history import read_snapshot
    from quaver.trial_lineage import origins

    if args.repair:
        write_repaired(args.history)
        return 0
    snapshot = read_snapshot(args.history)
    judged = judge_snapshot(snapshot)
    base = snapshot.baseline
    best_hash = "" if judged.best is None else judged.best.model_hash
    if args.json:
        came_from = origins(judged.trials)
        json_records.print_json(
            {
                "path": str(snapshot.path),
                "created": snapshot.header.created,
                "adapter": snapshot.header.adapter,
                "versions": snapshot.run.versions,
                "settings": dict(snapshot.run.settings),
                "criterion": str(judged.criterion),
                "ops": len(snapshot.header.ops),
                **json_records.about_the_model(snapshot, best_hash),
                "damage": snapshot.damage,
                "best": None if judged.best is None else judged.best.number,
                "met": judged.met,
                "output_drift": json_records.output_drift(drift_of(snapshot.notes, judged.best)),
                "warnings": list(run_warnings(judged, snapshot.notes, base)),
                "trust": json_records.trust(
                    None if judged.best is None else judged.confidence(judged.best),
                    [] if judged.best is None else judged.losses(judged.best),
                    judged.confirmations,
                ),
                "baseline": None if base is None else json_records.trial_to_dict(base, None),
                "trials": [
                    {**json_records.trial_to_dict(trial, judged.best), **json_records.origin(came_from[trial.number])}
                    for trial in judged.trials
                ],
            }
        )
        return 0
    trial_table.write(judged, base)
    print(f"{len(judged.trials)} trial(s); {judged.criterion.called}: {judged.criterion}")
    if judged.best is not None:
        only = ", but it runs every op in fp32: nothing was quantized" if judged.best.config.is_fp32 else ""
        verdict = "was not evaluated" if judged.best.unscored else "is the best"
        within = "" if judged.met else ", but not confirmed on other data" if judged.best.met else ", but not within it"
        print(f"* trial {judged.best.number} {verdict}{'' if judged.best.unscored else within}{only}")
        for phrase in trial_phrases(judged.best, judged):
            print(formatting.printable(phrase))
        drift = drift_phrase(drift_of(snapshot.notes, judged.best))
        for fact in (*([drift] if drift else []), *sentences.about_latency(judged.best, snapshot)):
            tables.line(fact)
    for text in run_warnings(judged, snapshot.notes, base):
        tables.line(tables.cell(f"{WARNED}{text}", tables.NOT_MET))
    for fact in sentences.about_the_model(snapshot, best_hash):
        tables.line(fact)
    if snapshot.damage:
        print(f"DAMAGED: {formatting.printable(snapshot.damage)}; only readable records are listed")
    return 0
