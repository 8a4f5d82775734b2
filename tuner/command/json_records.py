"""Trials as JSON, for other programs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from quaver.adapters.calibration.stored import comparison_of
from quaver.api.display.format import conversions
from quaver.api.result import TuneResult
from quaver.command import output, sentences
from quaver.engine.inspection.output_drift import OutputDrift
from quaver.engine.scoring.benefit import Benefit
from quaver.engine.scoring.confirmation import Confirmation
from quaver.engine.scoring.judge import Confidence
from quaver.engine.scoring.losses import LimitLoss
from quaver.history import Snapshot
from quaver.processors import noted_portability
from quaver.trial import Trial
from quaver.trial_lineage import Change, Origin
from quaver.types import PlainDict
from quaver.unquantizable import from_notes


def trial_to_dict(trial: Trial, best: Trial | None) -> PlainDict:
    """A trial for JSON."""
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


def tuned(result: TuneResult) -> PlainDict:
    """How a run ended."""
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


def benefit(compared: Benefit | None) -> PlainDict | None:
    """Return the best trial's latency or size beside the float model's, for JSON."""
    if compared is None:
        return None
    figures = {"figure": compared.figure, "ratio": compared.ratio, "margin": compared.margin}
    return {**figures, "is_gain": compared.is_gain}


def output_drift(drift: OutputDrift | None) -> PlainDict | None:
    """Return how far the best trial's outputs are from the float model's, for JSON."""
    if drift is None:
        return None
    figures = {"relative_error": drift.relative_error, "top1_agreement": drift.top1_agreement}
    return {**figures, "samples": drift.samples, "outputs": [asdict(item) for item in drift.outputs]}


def origin(found: Origin) -> PlainDict:
    """The trial that a trial came from, and what was changed."""
    return {"parent": found.parent, "changes": [change(one) for one in found.changes]}


def change(one: Change) -> PlainDict:
    """An op that two trials run in different ways."""
    before, now = (None if pick is None else pick.to_dict() for pick in (one.before, one.now))
    return {"op": one.op, "before": before, "now": now}


def trust(sure: Confidence | None, losses: Iterable[LimitLoss], confirmations: Iterable[Confirmation]) -> PlainDict:
    """How far the verdict on the best trial can be trusted: how sure, by each limit, and on other data."""
    return {
        "sure": None if sure is None else sure.chosen,
        "sure_alone": None if sure is None else sure.alone,
        "limits": [
            {
                "metric": lost.limit.metric,
                "slice": lost.limit.slice or None,
                "baseline": lost.baseline,
                "score": lost.score,
                "loss": lost.loss,
                "allowed": lost.limit.allowed,
                "relative": lost.limit.relative,
                "met": lost.met,
            }
            for lost in losses
        ],
        "confirmations": [
            {"trial": one.trial, "score": one.score, "baseline": one.baseline, "loss": one.loss, "met": one.met}
            for one in confirmations
        ],
    }


def about_the_model(snapshot: Snapshot, best_hash: str = "") -> PlainDict:
    """Return what was converted when the model was read, what cannot be quantized, and where the verdict holds."""
    portability = noted_portability(snapshot.notes, best_hash)
    left_out = [{"kind": one.kind, "count": one.count, "share": one.share} for one in from_notes(snapshot.notes)]
    comparison = comparison_of(snapshot.header.calibration)
    return {
        "conversions": list(conversions(snapshot.notes)),
        "comparison": None if comparison is None else comparison.to_dict(),
        "unquantizable": left_out,
        "portability": None if portability is None else portability.to_dict(),
    }


def print_json(data: Any) -> None:
    """Write plain data to stdout as JSON."""
    output.write_json(json.dumps(sentences.finite(data), indent=2, allow_nan=False))
