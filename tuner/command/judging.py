"""The trials of a snapshot as its latest run judged them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml

from quaver.api.workspace import SETTINGS
from quaver.command import wording
from quaver.criterion import Criterion
from quaver.engine.objective import OBJECTIVES, Objective, UserObjective, pick_best
from quaver.errors import SettingsError
from quaver.history import Snapshot
from quaver.rules import apply_rules
from quaver.space import TuningSpace
from quaver.trial import Trial


@dataclass(frozen=True, slots=True)
class Judged:
    """What the trials of a snapshot are worth.

    Attributes:
        trials: with loss and verdict by `criterion`.
        best: the winner among them.
        criterion: of the latest run.
        settings: of the latest run.
    """

    trials: tuple[Trial, ...]
    best: Trial | None
    criterion: Criterion
    settings: Mapping[str, Any]


def judge(snapshot: Snapshot) -> Judged:
    """Judge all trials by one criterion: the latest run's, which may differ from that of the first."""
    settings = _settings(snapshot)
    try:
        criterion = Criterion(
            settings.get("relative"), settings.get("absolute"), settings.get("higher_is_better", True) is not False
        )
    except SettingsError:
        criterion = Criterion()
    base = None if snapshot.baseline is None else snapshot.baseline.score
    trials = tuple(
        trial
        if trial.score is None or base is None or (base == 0 and criterion.absolute is None)
        else replace(trial, loss=criterion.loss(base, trial.score), met=criterion.met(base, trial.score))
        for trial in snapshot.trials
    )
    space = _space(snapshot, settings)
    eligible = [trial for trial in trials if space.allows(trial.config)]
    return Judged(trials, pick_best(eligible, _objective(settings, trials)), criterion, settings)


def plain(trial: Trial, best: Trial | None) -> dict[str, Any]:
    """A trial for JSON."""
    return {
        "number": trial.number,
        "state": str(trial.state),
        "score": trial.score,
        "loss": trial.loss,
        "met": trial.met,
        "best": best is not None and best.number == trial.number,
        "int8": len(trial.config.int8_ops),
        "fp32": len(trial.config.fp32_ops),
        "fp32_ops": list(trial.config.fp32_ops),
        "seconds": trial.seconds,
        "build_seconds": trial.build_seconds,
        "model_hash": trial.model_hash,
        "model_size": trial.model_size,
        "measured": dict(trial.measured),
        "error": trial.error,
    }


def print_json(data: Any) -> None:
    """Write plain data to stdout as JSON."""
    print(json.dumps(wording.finite(data), indent=2, allow_nan=False))


def _settings(snapshot: Snapshot) -> Mapping[str, Any]:
    """Those that the latest run left beside the snapshot, or those of the first run, which are in it."""
    try:
        loaded = yaml.safe_load((snapshot.path.parent / SETTINGS).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        loaded = None
    return loaded if isinstance(loaded, Mapping) else snapshot.run.settings


def _space(snapshot: Snapshot, settings: Mapping[str, Any]) -> TuningSpace:
    """What the rules of the latest run allow: trials of an earlier run that they forbid cannot win."""
    ops = snapshot.header.ops
    try:
        return TuningSpace(apply_rules(ops, settings.get("op_name_dict"), settings.get("op_type_dict")))
    except (SettingsError, AttributeError):  # a file that was edited
        return TuningSpace(ops)


def _objective(settings: Mapping[str, Any], trials: tuple[Trial, ...]) -> Objective:
    if any("user" in trial.measured for trial in trials):
        return UserObjective(lambda model: 0.0)  # its figures are in the trials
    name = settings.get("objective")
    return OBJECTIVES[name]() if isinstance(name, str) and name in OBJECTIVES else OBJECTIVES["latency"]()
