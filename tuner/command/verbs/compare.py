"""`quaver compare`: runs side by side: what they reached, with which settings, and how their best trials differ."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from quaver.errors import SettingsError

if TYPE_CHECKING:
    from quaver.engine.scoring.judge import Judge
    from quaver.history import Snapshot

DESCRIPTION = """\
Compare runs: verdict, score, loss, latency, size and cost of the best trial of each, the settings that differ, and for
two runs on the same ops, the ops that their best trials run differently.

  quaver compare quaver_workspace/2025-01-31_12-00-00 quaver_workspace/2025-02-01_09-30-00
  quaver compare quaver_workspace/*                compare all runs
  quaver compare run_a run_b --json
"""
# Runs in one table: three names and their figures fit into 80 columns.
RUNS_PER_TABLE = 3
# Settings that every run has of its own.
_OWN = ("workspace", "resume")


class ComparedRun(NamedTuple):
    """A run with its judged trials."""

    name: str
    snapshot: Snapshot
    judge: Judge


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Describe the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "compare", help="compare runs side by side", description=DESCRIPTION
    )
    parser.add_argument("runs", metavar="RUN", nargs="+", help="workspaces, or their history.snapshot")
    parser.add_argument("--json", action="store_true", help="print the figures of each run as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the tables or the JSON."""
    from quaver.api.display import tables
    from quaver.command import json_records, op_table
    from quaver.trial_lineage import difference

    if len(args.runs) < 2:
        raise SettingsError(f"pass two runs or more to compare, not only {args.runs[0]!r}")
    runs = _read(args.runs)
    figures = [_figures(item) for item in runs]
    settings = list(_differing_settings(runs))
    if args.json:
        json_records.print_json(
            {
                "runs": [
                    {"path": str(item.snapshot.path), **json_records.compared_to_dict(item.judge, item.snapshot)}
                    for item in runs
                ],
                "settings": {name: list(values) for name, *values in settings},
            }
        )
        return 0
    for start in range(0, len(runs), RUNS_PER_TABLE):
        part = range(len(runs))[start : start + RUNS_PER_TABLE]
        rows = [(label, *(figures[at][label] for at in part)) for label in figures[0]]
        rows += [(name, *(values[at] for at in part)) for name, *values in settings]
        tables.write(("figure", *(runs[at].name for at in part)), rows, pipe_width=tables.PIPE_WIDTH)
        print()
    first, second = runs[0].judge.best, runs[1].judge.best
    if len(runs) == 2 and first is not None and second is not None and list(first.config) == list(second.config):
        changes = list(difference(first.config, second.config))
        kinds = {op.name: op.kind for op in runs[0].snapshot.header.ops}
        if changes:
            op_table.write_changes(changes, kinds, [item.name for item in runs])
        else:
            print("both best trials run every op in the same way")
    return 0


def _read(paths: Sequence[str]) -> list[ComparedRun]:
    """Read the runs. Each is called after its folder; folders of one name get their parents in front."""
    from quaver.engine.scoring.judge import judge_snapshot
    from quaver.history import read_snapshot

    snapshots = [read_snapshot(path) for path in paths]
    folders = [snapshot.path.resolve().parent for snapshot in snapshots]
    names = [folder.name for folder in folders]
    if len(set(names)) < len(names):
        names = [str(Path(*folder.parts[-2:])) for folder in folders]
    runs = zip(names, snapshots, strict=True)
    return [ComparedRun(name, snapshot, judge_snapshot(snapshot)) for name, snapshot in runs]


def _figures(item: ComparedRun) -> dict[str, str]:
    """Return what a run reached, as texts by their labels."""
    from quaver import formatting
    from quaver.engine.run.finish import ENDING_NOTE
    from quaver.formatting import MISSING

    judge, best, base = item.judge, item.judge.best, item.snapshot.baseline
    ending = item.snapshot.notes.get(ENDING_NOTE)
    ending = ending if isinstance(ending, dict) else {}
    measured = {} if best is None else best.measured
    ratio = measured.get("latency")
    seconds = ending.get("seconds")
    return {
        "model": Path(str(ending.get("model") or MISSING)).name,
        "strategy": str(item.snapshot.run.settings.get("strategy", MISSING)),
        "criterion": str(judge.criterion),
        "verdict": _verdict(judge),
        "fp32 score": formatting.score(None if base is None else base.score),
        "score": formatting.score(None if best is None else best.score),
        "loss": MISSING if best is None else formatting.loss(best.loss, judge.criterion),
        "ops": MISSING if best is None else formatting.op_counts(best),
        "latency": MISSING if ratio is None else formatting.latency_ratio(ratio),
        "size": formatting.file_size(best.model_size) if best is not None and best.model_size else MISSING,
        "evaluations": str(judge.evaluated + (base is not None and not base.unscored)),
        "time": formatting.duration(seconds) if isinstance(seconds, float) else MISSING,
        "ended": str(ending.get("reason") or "not yet, or killed"),
    }


def _verdict(judge: Judge) -> str:
    from quaver import formatting
    from quaver.engine.scoring.benefit import benefit

    best = judge.best
    if best is None:
        return "no result"
    if best.unscored:
        return "not evaluated"
    compared = benefit(best, judge.objective, None)
    if judge.met and compared is not None and compared.is_loss:
        return "met, but slower"
    return "met" if judge.met else formatting.verdict(best)


def _differing_settings(runs: Sequence[ComparedRun]) -> Iterator[tuple[str, ...]]:
    """Yield the settings that are not the same in all runs, with their values."""
    settings = [item.snapshot.run.settings for item in runs]
    for name in dict.fromkeys(name for one in settings for name in one):
        values = [str(one.get(name, "-")) for one in settings]
        if name not in (*_OWN, "strategy") and len(set(values)) > 1:
            yield (name, *values)
