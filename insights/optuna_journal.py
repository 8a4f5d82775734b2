"""Export a run as an Optuna journal, which optuna-dashboard opens.

The precision of each op is a parameter of a trial.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from quaver.engine.scoring.judge import Judge, judge_snapshot
from quaver.errors import MissingPackageError, SettingsError
from quaver.extras import install_command
from quaver.files.paths import expanded
from quaver.history import Snapshot
from quaver.trial import Trial
from quaver.types import PlainDict, PlainMapping


def export_optuna(snapshot: Snapshot, path: str | os.PathLike[str], study_name: str | None = None) -> int:
    """Write a run to a new journal file of Optuna.

    Numbers are the same as in the run: trial 0 is the fp32 model. The value of a trial is its score; its other figures
    are user attributes.

    Returns:
        The number of trials, including that of the fp32 model.
    """
    try:
        import optuna
    except ImportError as error:
        raise MissingPackageError(
            f"a journal of Optuna needs optuna, which is not installed: {install_command('optuna')}"
        ) from error
    place = Path(expanded(path))
    if place.exists():
        raise SettingsError(f"{str(place)!r} exists already; give the path of a new file")
    if not place.parent.is_dir():
        raise SettingsError(f"the folder {str(place.parent)!r} of the journal does not exist; create it first")
    judged = judge_snapshot(snapshot)
    study = _new_study(optuna, place, study_name or snapshot.path.absolute().parent.name, judged)
    for name, value in _about(snapshot, judged).items():
        study.set_user_attr(name, value)
    precisions = {op.name: {str(choice.precision) for choice in op.choices} for op in snapshot.header.ops}
    trials = (*([] if snapshot.baseline is None else [snapshot.baseline]), *judged.trials)
    for trial in trials:  # Optuna wants the same choices in every trial, including the baseline's fp32
        for name, pick in trial.config.items():
            precisions.setdefault(name, set()).add(str(pick.precision))
    choices = {name: optuna.distributions.CategoricalDistribution(sorted(names)) for name, names in precisions.items()}
    started = datetime.fromisoformat(snapshot.header.created).astimezone().replace(tzinfo=None)
    for trial in trials:
        ended = started + timedelta(seconds=trial.seconds + trial.build_seconds)
        study.add_trial(_frozen(optuna, trial, choices, started, ended))
        started = ended
    return len(trials)


def _new_study(optuna: Any, place: Path, name: str, judged: Judge) -> Any:
    """Create an empty study, without Optuna's log line about it."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study(
            storage=optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(place))),
            study_name=name,
            direction="maximize" if judged.criterion.first.higher_is_better else "minimize",
        )
    finally:
        optuna.logging.set_verbosity(verbosity)


def _frozen(optuna: Any, trial: Trial, choices: PlainMapping, started: datetime, ended: datetime) -> Any:
    state = optuna.trial.TrialState.FAIL if trial.failed else optuna.trial.TrialState.COMPLETE
    return optuna.trial.FrozenTrial(
        number=-1,  # the study numbers the trials in order
        trial_id=-1,
        state=state,
        value=trial.score,
        datetime_start=started,
        datetime_complete=ended,
        params={name: str(pick.precision) for name, pick in trial.config.items()},
        distributions={name: choices[name] for name in trial.config},
        user_attrs=_attributes(trial),
        system_attrs={},
        intermediate_values={},
    )


def _attributes(trial: Trial) -> PlainDict:
    attributes = {
        "trial": "fp32" if trial.number == 0 else trial.number,
        "loss": trial.loss,
        "met": None if trial.number == 0 or trial.failed else trial.met,
        "size": trial.model_size or None,
        "model_hash": trial.model_hash or None,
        "eval_seconds": trial.seconds,
        "error": trial.error,
        "stopped_after": trial.seen if trial.stopped else None,
        **{f"metric {name}": value for name, value in trial.metrics.items()},
        **{f"{precision}_ops": count for precision, count in trial.config.counts.items()},
        **trial.measured,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _about(snapshot: Snapshot, judged: Judge) -> PlainDict:
    return {
        "criterion": str(judged.criterion),
        "best": None if judged.best is None else judged.best.number,
        "strategy": str(snapshot.run.settings.get("strategy", "")),
        "history": str(snapshot.path),
    }
