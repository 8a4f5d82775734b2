"""Several metrics and slices: the worst one decides, whatever the mean says, and every strategy runs on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sample_scores import BATCH, CLASSES, MODEL, SAMPLES, agrees, as_array, as_batches, tune

import quaver
from quaver import Criterion, SettingsError
from quaver.engine.scoring.judge import judge_snapshot
from quaver.history import read_snapshot
from quaver.strategies import list_strategies

STRATEGIES = [listed.name for listed in list_strategies() if listed.name != "exhaustive"]


def two_metrics(model: Any) -> dict[str, Any]:
    """How often it agrees at all, and on every third sample."""
    scores = agrees(model)
    return {"all": scores, "third": float(scores[::3].mean())}


def two_streams(model: Any) -> Iterator[dict[str, Any]]:
    for scores in as_batches(model):
        yield {"all": scores, "half": scores[::2]}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> quaver.TuneResult:
    """A run by the mean alone."""
    return tune(tmp_path_factory.mktemp("plain") / "run", as_array)


def test_the_slice_decides_where_the_mean_is_met(plain: quaver.TuneResult, tmp_path: Path) -> None:
    assert plain.best is not None and plain.met
    loss_by_class = {
        name: 1 - scores[rows].mean() / base[rows].mean()
        for name, rows in _rows().items()
        for base, scores in [(_fp32(plain), plain.best.samples["score"].array)]
    }
    worst = max(loss_by_class, key=lambda name: loss_by_class[name])
    assert loss_by_class[worst] > 0.03, "the test needs a class that loses more than the mean"
    result = tune(tmp_path / "run", as_array, slices=CLASSES, slice_limit={worst: 0.02}, timeout=3600, max_trials=30)
    judged = {trial.config: trial for trial in result.trials}
    same = judged[plain.best.config]
    assert not same.met and same.score == plain.best.score and (same.loss or 0) > 0.03
    first = judge_snapshot(read_snapshot(result.history_path)).losses(same)[0]
    assert first.limit.slice == worst and first.loss == pytest.approx(loss_by_class[worst])
    assert same.loss == pytest.approx(first.loss * 0.03 / 0.02)  # as if its limit were the criterion's
    for trial in result.trials:
        if trial.met:
            rows = _rows()[worst]
            assert 1 - trial.samples["score"].array[rows].mean() / _fp32(plain)[rows].mean() <= 0.02


def _rows() -> dict[str, Any]:
    return {name: np.flatnonzero(np.array(CLASSES) == name) for name in sorted(set(CLASSES))}


def _fp32(result: quaver.TuneResult) -> Any:
    assert result.fp32 is not None
    return result.fp32.samples["score"].array


def test_the_stricter_metric_decides_where_the_other_is_met(plain: quaver.TuneResult, tmp_path: Path) -> None:
    chosen = {"all": 0.03, "third": 0.0}
    result = tune(tmp_path / "run", two_metrics, relative=chosen, timeout=3600, max_trials=30)
    assert plain.best is not None
    same = next(trial for trial in result.trials if trial.config == plain.best.config)
    assert not same.met and same.metrics["all"] == plain.best.score
    for trial in result.trials:
        assert trial.met is (
            trial.metrics["all"] >= 0.97 * (result.fp32.metrics["all"] if result.fp32 else 0) - 1e-9
            and trial.metrics["third"] >= (result.fp32.metrics["third"] if result.fp32 else 0)
        )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_runs_on_metrics_and_slices(strategy: str, tmp_path: Path) -> None:
    result = tune(
        tmp_path / "run",
        two_streams,
        strategy=strategy,
        relative={"all": 0.03, "half": 0.04},
        max_trials=12,
    )
    assert result.trials and all(trial.loss is not None for trial in result.trials)
    sliced = tune(tmp_path / "sliced", as_batches, strategy=strategy, slices=CLASSES, slice_limit=0.2, max_trials=12)
    assert sliced.trials and all(trial.loss is not None for trial in sliced.trials)
    assert not any(trial.met and trial.stopped for trial in (*result.trials, *sliced.trials))


def test_a_slice_alone_can_stop_a_trial(tmp_path: Path) -> None:
    """With a mean that allows everything, what is ruled out is ruled out by a slice."""
    half = np.arange(len(SAMPLES)) % 2 == 0
    result = tune(
        tmp_path / "run",
        as_batches,
        relative=0.99,
        allow_any_loss=True,
        slices={"even": half},
        slice_limit=0.01,
        max_trials=3,
    )
    assert result.trials[0].stopped and result.trials[0].seen >= BATCH


def test_confidence_demands_more_than_the_mean(plain: quaver.TuneResult, tmp_path: Path) -> None:
    assert plain.best is not None and plain.best.interval is not None and plain.best.interval[1] > 0.03
    sure = tune(tmp_path / "run", as_array, confidence=0.95, timeout=3600, max_trials=30)
    same = next(trial for trial in sure.trials if trial.config == plain.best.config)
    assert not same.met and same.loss == plain.best.loss
    for trial in sure.trials:
        if trial.met:
            assert trial.interval is not None and trial.interval[1] <= 0.03
    assert "% confidence that the loss on such data is at most 3.00%" in str(plain)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"relative": {"al": 0.01}}, "has a limit for 'al', which eval_func does not return; did you mean 'all'"),
        (
            {"confidence": 0.9},
            "`confidence` needs the score of each sample, and eval_func gives one number for 'third'",
        ),
        ({"slices": ["a", "b"]}, "`slices` is about 2 samples, and eval_func gave the scores of 600 for 'all'"),
        ({"higher_is_better": {"wer": False}}, "`higher_is_better` names 'wer'"),
    ],
)
def test_what_eval_func_does_not_give_is_said_before_any_trial(
    settings: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match=complaint):
        tune(tmp_path / "run", two_metrics, **settings)
    assert not (tmp_path / "run").exists()


@pytest.mark.filterwarnings("ignore:resumed run")
def test_metrics_and_slices_are_those_of_a_resumed_run_and_of_its_readers(tmp_path: Path) -> None:
    first = tune(tmp_path / "run", as_array, slices=CLASSES, slice_limit=0.05, max_trials=2)
    again = quaver.fit(MODEL, eval_func=as_array, resume=first.workspace, max_trials=3, verbose=0)
    assert again.criterion == first.criterion and again.trials[:2] == first.trials
    snapshot = read_snapshot(first.history_path)
    assert Criterion.from_settings(snapshot.run.settings) == first.criterion
    assert judge_snapshot(snapshot).trials == again.trials
