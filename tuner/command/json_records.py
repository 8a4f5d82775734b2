"""Trials as JSON, for other programs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from quaver.adapters.calibration.stored import stored_comparison
from quaver.api.display.format import conversions
from quaver.api.fastest import noted_outcomes
from quaver.api.result import TuneResult
from quaver.command import output, sentences
from quaver.engine.inspection.output_drift import OutputDrift
from quaver.engine.scoring.benefit import Benefit
from quaver.engine.scoring.confirmation import Confirmation
from quaver.engine.scoring.judge import Confidence, Judge
from quaver.engine.scoring.losses import LimitLoss
from quaver.history import Snapshot
from quaver.processors import noted_portability
from quaver.trial import Trial
from quaver.trial_lineage import Change, Origin
from quaver.types import PlainDict
from quaver.unquantizable import from_notes


def trial_to_dict(trial: Trial, best: Trial | None) -> PlainDict:
    """Return a trial as JSON."""
    return {
        "number": trial.number,
        "state": str(trial.state),
        "score": trial.score,
        "metrics": dict(trial.metrics),
        "samples": trial.seen,
        "loss": trial.loss,
        "interval": None if trial.interval is None else list(trial.interval),
        "met": trial.met,
        "best": best is not None and best.number == trial.number,
        **{str(precision): count for precision, count in trial.config.counts.items()},
        "fp32_ops": list(trial.config.fp32_ops),
        "seconds": trial.seconds,
        "build_seconds": trial.build_seconds,
        "worker": trial.worker,
        "started": trial.started,
        "model_hash": trial.model_hash,
        "model_size": trial.model_size,
        "measured": dict(trial.measured),
        "error": trial.error,
    }


def result_to_dict(result: TuneResult) -> PlainDict:
    """Return the result of a run as JSON."""
    return {
        "met": result.met,
        "reason": str(result.reason),
        "verdict": str(result),
        "warnings": list(result.warnings),
        "criterion": str(result.criterion),
        "baseline": result.baseline,
        "evaluations": result.evaluations,
        "comparison": None if result.comparison is None else result.comparison.to_dict(),
        "benefit": benefit(result.benefit),
        "output_drift": output_drift(result.output_drift),
        "trust": trust(result.confidence, result.losses, result.confirmations),
        "portability": None if result.portability is None else result.portability.to_dict(),
        "best": None if result.best is None else trial_to_dict(result.best, result.best),
        "trials": [trial_to_dict(trial, result.best) for trial in result.trials],
        "workspace": str(result.workspace),
        "history": str(result.history_path),
    }


def compared_to_dict(judge: Judge, snapshot: Snapshot) -> PlainDict:
    """Return what a run reached, as JSON for `quaver compare`."""
    return {
        "strategy": snapshot.run.settings.get("strategy"),
        "criterion": str(judge.criterion),
        "met": judge.met,
        "baseline": judge.baseline,
        "best": None if judge.best is None else trial_to_dict(judge.best, judge.best),
        "trials": len(judge.trials),
    }


def benefit(compared: Benefit | None) -> PlainDict | None:
    """Return the best trial's latency or size relative to the float model, as JSON."""
    if compared is None:
        return None
    figures = {"figure": compared.figure, "ratio": compared.ratio, "margin": compared.margin}
    return {**figures, "is_gain": compared.is_gain}


def output_drift(drift: OutputDrift | None) -> PlainDict | None:
    """Return how far the best trial's outputs drift from the float model's, as JSON."""
    if drift is None:
        return None
    figures = {"relative_error": drift.relative_error, "top1_agreement": drift.top1_agreement}
    return {**figures, "samples": drift.samples, "outputs": [asdict(item) for item in drift.outputs]}


def origin(parent: Origin) -> PlainDict:
    """Return the parent of a trial and the changed ops, as JSON."""
    return {"parent": parent.parent, "changes": [change_to_dict(change) for change in parent.changes]}


def change_to_dict(change: Change) -> PlainDict:
    """Return an op that two trials run differently, as JSON."""
    before, now = (None if pick is None else pick.to_dict() for pick in (change.before, change.now))
    return {"op": change.op, "before": before, "now": now}


def trust(
    confidence: Confidence | None, losses: Iterable[LimitLoss], confirmations: Iterable[Confirmation]
) -> PlainDict:
    """Return the evidence for the verdict as JSON: confidence, loss per limit, and scores on other data."""
    return {
        "sure": None if confidence is None else confidence.chosen,
        "sure_alone": None if confidence is None else confidence.alone,
        "limits": [
            {
                "metric": limit_loss.limit.metric,
                "slice": limit_loss.limit.slice or None,
                "baseline": limit_loss.baseline,
                "score": limit_loss.score,
                "loss": limit_loss.loss,
                "allowed": limit_loss.limit.allowed,
                "relative": limit_loss.limit.relative,
                "met": limit_loss.met,
            }
            for limit_loss in losses
        ],
        "confirmations": [
            {
                "trial": check.trial,
                "score": check.score,
                "baseline": check.baseline,
                "loss": check.loss,
                "met": check.met,
            }
            for check in confirmations
        ],
    }


def about_the_model(snapshot: Snapshot, best_hash: str = "") -> PlainDict:
    """Return conversions of the model, nodes that cannot be quantized, and processors the verdict holds on, as JSON."""
    portability = noted_portability(snapshot.notes, best_hash)
    unquantizable = [
        {"kind": entry.kind, "count": entry.count, "share": entry.share} for entry in from_notes(snapshot.notes)
    ]
    comparison = stored_comparison(snapshot.header.calibration)
    return {
        "conversions": list(conversions(snapshot.notes)),
        "comparison": None if comparison is None else comparison.to_dict(),
        "unquantizable": unquantizable,
        "portability": None if portability is None else portability.to_dict(),
        "runtimes": [outcome.to_dict() for outcome in noted_outcomes(snapshot.notes)],
    }


def print_json(data: Any) -> None:
    """Print builtins as JSON."""
    output.write_json(json.dumps(sentences.finite(data), indent=2, allow_nan=False))
