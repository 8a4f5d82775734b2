"""The provenance of a trial's model, from what the history recorded alone, so that every saved copy says the same."""

from __future__ import annotations

from quaver.adapters import Model
from quaver.history import History, Snapshot
from quaver.provenance import Provenance
from quaver.trial import Trial
from quaver.types import PlainDict, PlainMapping

# The settings that make up a criterion or a target budget. Slices are left out: they name every sample.
_CRITERION = (
    "relative",
    "absolute",
    "higher_is_better",
    "slice_limit",
    "confidence",
    "max_latency",
    "max_size",
    "max_bits",
)


def add_provenance(model: Model, history: History | Snapshot, trial: Trial) -> None:
    """Have a trial's model say where it comes from when it is saved, unless its run has `provenance=False`.

    The latest run decides, because its criterion is the one that the trial is judged by. A history of a version that
    knew no such setting gives the bytes that it recorded.
    """
    if history.run.settings.get("provenance") is True:
        model.add_provenance(provenance_of(history, trial).to_properties())


def provenance_of(history: History | Snapshot, trial: Trial) -> Provenance:
    """Return where the model of a recorded trial comes from."""
    header, run, baseline = history.header, history.run_of(trial.number), history.baseline
    assert header is not None
    portable = run.settings.get("portable")
    return Provenance(
        quaver=run.versions.get("quaver", ""),
        float_model=header.model_fingerprint,
        config=trial.config.fingerprint,
        model=trial.model_hash,
        criterion=_criterion(history.run.settings),
        baseline={} if baseline is None else dict(baseline.by_name),
        scores=dict(trial.by_name),
        versions={name: version for name, version in run.versions.items() if name != "quaver"},
        portable=portable if isinstance(portable, bool) else None,
    )


def _criterion(settings: PlainMapping) -> PlainDict:
    """Return the settings of the criterion that say something: a direction only where lower is better."""
    values = {name: settings.get(name) for name in _CRITERION}
    return {name: value for name, value in values.items() if value is not None and value is not True}
