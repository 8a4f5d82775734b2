"""`quaver show`: how a trial ran each op, how two trials differ, or where a saved model comes from."""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quaver import formatting
from quaver.command import sentences
from quaver.errors import HistoryError, SettingsError

if TYPE_CHECKING:
    from quaver.engine.scoring.judge import Judge
    from quaver.history import Snapshot
    from quaver.trial import Trial

BEST = "best"
DESCRIPTION = """\
Show the configuration of a trial op by op, and the traceback of a failed trial. Trial 0 is the fp32 baseline, `best`
the best trial. For two trials, show the ops that they run differently. For a saved model, show where it comes from:
versions, criterion, scores, fingerprints, and whether the file still holds the model that was scored.

  quaver show quaver_workspace/2025-01-31_12-00-00 best
  quaver show run/history.snapshot 3 --json
  quaver show run 3 --fp32                         only the ops that run in fp32
  quaver show run 3 5                              how trial 5 differs from trial 3
  quaver show model-int8.onnx                      where a saved model comes from (also .tflite and .params)
"""


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Describe the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "show", help="show how a trial ran each op, or where a saved model comes from", description=DESCRIPTION
    )
    parser.add_argument(
        "history", metavar="FILE", help="a history.snapshot, its workspace, or a model that quaver saved"
    )
    parser.add_argument(
        "number",
        metavar="N",
        type=_number,
        nargs="?",
        help=f"number of the trial, or `{BEST}`; leave it out for a saved model",
    )
    parser.add_argument(
        "other", metavar="M", type=_number, nargs="?", help="a second trial, to show how it differs from the first"
    )
    parser.add_argument("--fp32", action="store_true", help="only ops that run in fp32 (in either of two trials)")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the configuration, the difference, or where a saved model comes from."""
    from quaver.adapters.model import SUFFIXES
    from quaver.engine.scoring.judge import judge_snapshot
    from quaver.history import read_snapshot

    if args.number is None:
        if Path(args.history).suffix.lower() not in SUFFIXES:
            raise SettingsError(f"pass the number of a trial of {args.history}, or `{BEST}`")
        _show_provenance(args)
        return 0

    snapshot = read_snapshot(args.history)
    judged = judge_snapshot(snapshot)
    trial = _trial(args.number, snapshot, judged)
    if args.other is None:
        _show(trial, snapshot, judged, args)
    else:
        _compare(trial, _trial(args.other, snapshot, judged), snapshot, judged, args)
    return 0


def _show_provenance(args: argparse.Namespace) -> None:
    from quaver.api.provenance import provenance_lines, read_provenance
    from quaver.command import json_records

    provenance = read_provenance(args.history)
    if args.json:
        json_records.print_json({"path": args.history, **provenance.to_dict()})
        return
    for line in provenance_lines(provenance):
        print(formatting.printable(line))


def _number(text: str) -> int | str:
    if text == BEST:
        return BEST
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither the number of a trial nor `{BEST}`") from None


def _trial(number: int | str, snapshot: Snapshot, judged: Judge) -> Trial:
    """Return the trial of a number, judged."""
    if number == BEST:
        if judged.best is None:
            raise HistoryError(f"{snapshot.path} has no trial with a score yet")
        return judged.best
    recorded = snapshot.trial(int(number))
    return next((trial for trial in judged.trials if trial.number == number), recorded)


def _show(trial: Trial, snapshot: Snapshot, judged: Judge, args: argparse.Namespace) -> None:
    from quaver import formatting
    from quaver.api.display import tables
    from quaver.api.display.format import LATENCY, trial_phrases
    from quaver.api.display.html import WARNED
    from quaver.api.result_warnings import drift_phrase, run_warnings
    from quaver.command import json_records, op_table
    from quaver.engine.inspection.output_drift import drift_of

    ops = [op for op in snapshot.header.ops if not args.fp32 or not trial.config[op.name].quantized]
    is_best = judged.best is not None and trial.number == judged.best.number
    warnings = run_warnings(judged, snapshot.notes, snapshot.baseline) if is_best else ()
    drift = drift_of(snapshot.notes, trial)
    best_hash = "" if judged.best is None else judged.best.model_hash
    if args.json:
        rows = [op_table.op_to_dict(op, trial.config[op.name]) for op in ops]
        about = {**json_records.about_the_model(snapshot, best_hash), "output_drift": json_records.output_drift(drift)}
        about["warnings"] = list(warnings)
        json_records.print_json({**json_records.trial_to_dict(trial, judged.best), **about, "ops": rows})
        return
    tables.line(*_headline(trial, judged))
    for phrase in trial_phrases(trial, judged) if trial.number else ():
        print(formatting.printable(phrase))
    for text in warnings:
        tables.line(tables.cell(f"{WARNED}{text}", tables.NOT_MET))
    if drift is not None:
        tables.line(drift_phrase(drift))
    op_table.write(ops, trial.config)
    for fact in (*sentences.about_latency(trial, snapshot), *sentences.about_the_model(snapshot, best_hash)):
        tables.line(fact)
    for name, value in trial.measured.items():
        if name not in LATENCY:
            print(f"{formatting.printable(name)}: {value:.6g}")
    if trial.model_size:
        print(f"size: {formatting.file_size(trial.model_size)}\nsha256 {formatting.printable(trial.model_hash)}")
    if trial.error:
        print("\n".join(map(formatting.printable, trial.error.rstrip().splitlines())))
    _print_damage(snapshot)


def _compare(first: Trial, second: Trial, snapshot: Snapshot, judged: Judge, args: argparse.Namespace) -> None:
    from quaver.api.display import tables
    from quaver.command import json_records, op_table
    from quaver.ops import FP32
    from quaver.trial_lineage import difference

    changes = [
        change
        for change in difference(first.config, second.config)
        if not args.fp32 or FP32 in (pick.precision for pick in (change.before, change.now) if pick is not None)
    ]
    if args.json:
        both = {
            "first": json_records.trial_to_dict(first, judged.best),
            "second": json_records.trial_to_dict(second, judged.best),
        }
        json_records.print_json({**both, "changes": [json_records.change_to_dict(change) for change in changes]})
        return
    for trial in (first, second):
        tables.line(*_headline(trial, judged))
    if changes:
        kinds = {op.name: op.kind for op in snapshot.header.ops}
        names = [f"trial {trial.number}" if trial.number else "fp32" for trial in (first, second)]
        op_table.write_changes(changes, kinds, names)
    else:
        print(f"both trials run {'the same ops in fp32' if args.fp32 else 'every op in the same way'}")
    _print_damage(snapshot)


def _print_damage(snapshot: Snapshot) -> None:
    if snapshot.damage:
        print(f"DAMAGED: {formatting.printable(snapshot.damage)}")


def _headline(trial: Trial, judged: Judge) -> list[Any]:
    from quaver.api.display import tables

    counts = f"{formatting.op_counts(trial)} ops, {formatting.duration(trial.seconds)} in eval_func{_worker(trial)}"
    if trial.number == 0:
        score = "not evaluated" if trial.unscored else f"score {formatting.scores(trial)}"
        return [f"the fp32 baseline: {score}, {counts}"]
    if trial.unscored:
        return [f"trial {trial.number}: not evaluated, {formatting.op_counts(trial)} ops"]
    if trial.failed:
        return [f"trial {trial.number}: ", tables.cell("failed", tables.NOT_MET), f", {counts}"]
    loss = f"{formatting.loss_or_gain(trial.loss, judged.criterion)} (allowed: {formatting.allowed(judged.criterion)})"
    met = tables.cell(formatting.verdict(trial), tables.MET if trial.met else tables.NOT_MET)
    return [f"trial {trial.number}: score {formatting.scores(trial)}, {loss}, ", met, f", {counts}"]


def _worker(trial: Trial) -> str:
    """Return the worker that evaluated a trial and when it began; empty without workers."""
    if not trial.worker:
        return ""
    by = f", by {formatting.printable(trial.worker)}"
    try:
        began = datetime.fromtimestamp(trial.started).astimezone()
    except (OSError, OverflowError, ValueError):  # an impossible time in a damaged or hostile file
        return by
    return f"{by}, started {began:%Y-%m-%d %H:%M:%S}"
