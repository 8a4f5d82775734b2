"""`quaver show`: how a trial ran each op."""

from __future__ import annotations

import argparse
from typing import Any

from quaver.command import wording
from quaver.ops import DETAILS

DESCRIPTION = """\
Shows the configuration of a trial, op by op; of a failed trial the traceback, too. Trial 0 is the fp32 baseline.

  quaver show quaver_workspace/2025-01-31_12-00-00 3
  quaver show run/history.snapshot 3 --json
"""


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Describe the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "show", help="show how a trial ran each op", description=DESCRIPTION
    )
    parser.add_argument("history", metavar="FILE", help="a history.snapshot, or the workspace it lies in")
    parser.add_argument("number", metavar="N", type=int, help="the number of the trial")
    parser.add_argument("--json", action="store_true", help="write everything as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the configuration."""
    from quaver.api.phrases import LATENCY
    from quaver.command import as_json, facts, tables
    from quaver.engine.judge import judge_snapshot
    from quaver.history import read_snapshot

    snapshot = read_snapshot(args.history)
    judged = judge_snapshot(snapshot)
    recorded = snapshot.trial(args.number)
    trial = next((trial for trial in judged.trials if trial.number == args.number), recorded)
    rows = [
        (op.name, op.kind, str(pick.precision), *(getattr(pick, field) for field in DETAILS), " ".join(pick.repairs))
        for op in snapshot.header.ops
        for pick in [trial.config[op.name]]
    ]
    headings = ("op", "kind", "precision", *DETAILS, "repairs")
    if args.json:
        ops = [dict(zip(headings, row, strict=True)) for row in rows]
        as_json.print_json({**as_json.plain(trial, judged.best), **as_json.about_the_model(snapshot), "ops": ops})
        return 0
    print(_headline(trial, judged.criterion))
    tables.write(headings, [tuple(cell or "-" for cell in row) for row in rows])
    for fact in (*facts.about_latency(trial, snapshot), *facts.about_the_model(snapshot)):
        print(fact)
    for what, value in trial.measured.items():
        if what not in LATENCY:
            print(f"{wording.name(what)}: {value:.6g}")
    if trial.model_size:
        print(f"size: {wording.size(trial.model_size)}, sha256 {wording.name(trial.model_hash)}")
    if trial.error:
        print("\n".join(map(wording.name, trial.error.rstrip().splitlines())))
    if snapshot.damage:
        print(f"DAMAGED: {wording.name(snapshot.damage)}")
    return 0


def _headline(trial: Any, criterion: Any) -> str:
    counts = f"{wording.counts(trial)} ops, {wording.seconds(trial.seconds)} in eval_func"
    if trial.number == 0:
        return f"the fp32 baseline: score {wording.score(trial.score)}, {counts}"
    if trial.failed:
        return f"trial {trial.number}: failed, {counts}"
    loss = f"loss {wording.loss(trial.loss, criterion)} (allowed: {wording.allowed(criterion)})"
    return f"trial {trial.number}: score {wording.score(trial.score)}, {loss}, {wording.verdict(trial)}, {counts}"
