"""A run as an Optuna journal, which optuna-dashboard opens: the precision of each op is a parameter of a trial."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from quaver.engine.scoring.judge import Judge, judge_snapshot
from quaver.errors import MissingPackageError, SettingsError
from quaver.files.paths import expanded
from quaver.history import Snapshot
from quaver.trial import Trial
from quaver.types import PlainDict, PlainMapping


def export_optuna(snapshot: Snapshot, path: str | os.PathLike[str], study_name: str | None = None) -> int:
    """Write a run to a new journal file of Optuna; how many trials there are, the fp32 model's included.

    Numbers are the same as in the run: trial 0 is the fp32 model. The value is the score, and what else is known of a
    trial is among its user attributes.
    """
    try:
        import optuna
    except ImportError as error:
        raise MissingPackageError(
            "a journal of Optuna needs optuna, which is not installed: pip install 'quaver[optuna]'"
        ) from error
    place = Path(expanded(path))
    if place.exists():
        raise SettingsError(f"{str(place)!r} is there already; a journal is written to a new file")
    if not place.parent.is_dir():
        raise SettingsError(f"there is no folder {str(place.parent)!r} to write the journal into")
    judged = judge_snapshot(snapshot)
    study = _new_study(optuna, place, study_name or snapshot.path.absolute().parent.name, judged)
    for name, value in _about(snapshot, judged).items():
        study.set_user_attr(name, value)
    given = {op.name: {str(choice.precision) for choice in op.choices} for op in snapshot.header.ops}
    trials = (*([] if snapshot.baseline is None else [snapshot.baseline]), *judged.trials)
    for trial in trials:  # every trial must know the same choices, the baseline's fp32 too
        for name, pick in trial.config.items():
            given.setdefault(name, set()).add(str(pick.precision))
    choices = {name: optuna.distributions.CategoricalDistribution(sorted(known)) for name, known in given.items()}
    begun = datetime.fromisoformat(snapshot.header.created).astimezone().replace(tzinfo=None)
    for trial in trials:
        ended = begun + timedelta(seconds=trial.seconds + trial.build_seconds)
        study.add_trial(_frozen(optuna, trial, choices, begun, ended))
        begun = ended
    return len(trials)


def _new_study(optuna: Any, place: Path, name: str, judged: Judge) -> Any:
    """An empty study, without Optuna's word about it on stderr."""
    said = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study(
            storage=optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(place))),
            study_name=name,
            direction="maximize" if judged.criterion.first.higher_is_better else "minimize",
        )
    finally:
        optuna.logging.set_verbosity(said)


def _frozen(optuna: Any, trial: Trial, choices: PlainMapping, begun: datetime, ended: datetime) -> Any:
    state = optuna.trial.TrialState.FAIL if trial.failed else optuna.trial.TrialState.COMPLETE
    return optuna.trial.FrozenTrial(
        number=-1,  # given by the study, in order
        trial_id=-1,
        state=state,
        value=trial.score,
        datetime_start=begun,
        datetime_complete=ended,
        params={name: str(pick.precision) for name, pick in trial.config.items()},
        distributions={name: choices[name] for name in trial.config},
        user_attrs=_attributes(trial),
        system_attrs={},
        intermediate_values={},
    )


def _attributes(trial: Trial) -> PlainDict:
    known = {
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
    return {name: value for name, value in known.items() if value is not None}


def _about(snapshot: Snapshot, judged: Judge) -> PlainDict:
    return {
        "criterion": str(judged.criterion),
        "best": None if judged.best is None else judged.best.number,
        "strategy": str(snapshot.run.settings.get("strategy", "")),
        "history": str(snapshot.path),
    }
