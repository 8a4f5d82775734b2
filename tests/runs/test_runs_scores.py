"""Scores in every form, end to end: the same trials, fewer samples where they come batch by batch, nothing lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import inputs
from sample_scores import BATCH, FORMS, MODEL, SAMPLES, SETTINGS, agrees, as_array, as_batches, as_number, essence, tune

import quaver
from quaver import EvaluationError, TrialState
from quaver.engine.event_base import Event
from quaver.engine.events import SamplesOrdered

pytestmark = pytest.mark.filterwarnings("ignore:resumed run")


@pytest.fixture(scope="module")
def in_full(tmp_path_factory: pytest.TempPathFactory) -> quaver.TuneResult:
    """A run that sees every sample of every trial."""
    return tune(tmp_path_factory.mktemp("full") / "run", as_number)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> quaver.TuneResult:
    """The same run by a generator, with early stop."""
    return tune(tmp_path_factory.mktemp("stopped") / "run", as_batches)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_all_forms_give_the_same_trials(form: Any, in_full: quaver.TuneResult, tmp_path: Path) -> None:
    result = tune(tmp_path / "run", form, early_stop=False)
    assert essence(result) == essence(in_full) and result.met and len(result.trials) > 3
    seen = {trial.seen for trial in result.trials}
    assert seen == ({0} if form is as_number else {len(SAMPLES)})
    assert all((trial.interval is None) == (form is as_number) for trial in result.trials)


def test_early_stop_finds_the_same_winner_with_fewer_samples(tmp_path: Path) -> None:
    # It goes by whether a trial is met; others also by how much it loses, of which a stopped one has an estimate.
    stopped = tune(tmp_path / "stopped", as_batches, strategy="mse_v2")
    in_full = tune(tmp_path / "full", as_batches, strategy="mse_v2", early_stop=False)
    assert any(trial.stopped for trial in stopped.trials)
    assert stopped.best is not None and in_full.best is not None
    assert [trial.config for trial in stopped.trials] == [trial.config for trial in in_full.trials]
    assert (stopped.best.number, stopped.best.score) == (in_full.best.number, in_full.best.score)
    assert sum(trial.seen for trial in stopped.trials) < len(SAMPLES) * len(stopped.trials) / 2
    for trial, full in zip(stopped.trials, in_full.trials, strict=True):
        assert full.met is trial.met
        if trial.stopped:
            assert trial.state is TrialState.STOPPED and trial.estimated and trial.seen % BATCH == 0
            assert trial.interval is not None and trial.interval[0] < (trial.loss or 0) < trial.interval[1]
        else:
            assert trial.seen == len(SAMPLES) and trial.score == full.score
    assert "stopped early" in str(stopped)


def test_the_generator_is_closed_when_the_verdict_is_known(tmp_path: Path) -> None:
    closed: list[int] = []

    def scores(model: Any) -> Iterator[Any]:
        at = 0
        try:
            for batch in as_batches(model):
                at += len(batch)
                yield batch
        finally:
            closed.append(at)

    result = tune(tmp_path / "run", scores)
    assert closed == [len(SAMPLES), *(trial.seen for trial in result.trials)]


def test_scores_of_samples_come_back_from_the_snapshot(stopped: quaver.TuneResult) -> None:
    snapshot = quaver.read_snapshot(stopped.history_path)
    assert snapshot.baseline is not None and len(snapshot.baseline.samples["score"]) == len(SAMPLES)
    for read, made in zip(snapshot.trials, stopped.trials, strict=True):
        assert (read.samples, read.state, read.score, read.metrics) == (
            made.samples,
            made.state,
            made.score,
            made.metrics,
        )


def test_a_resumed_run_knows_the_trials_that_were_stopped(stopped: quaver.TuneResult, tmp_path: Path) -> None:
    calls: list[int] = []

    def counted(model: Any) -> Iterator[Any]:
        calls.append(1)
        yield from as_batches(model)

    cut = tune(tmp_path / "run", as_batches, max_trials=3)
    assert sum(trial.stopped for trial in cut.trials) == 3
    result = quaver.fit(MODEL, eval_func=counted, resume=cut.workspace, max_trials=100, verbose=0)
    assert essence(result) == essence(stopped) and len(calls) == len(stopped.trials) - 3


def test_a_stopped_trial_is_asked_again_if_the_criterion_now_allows_more(tmp_path: Path) -> None:
    first = tune(tmp_path / "run", as_batches, relative=0.0, max_trials=1)
    assert first.trials[0].stopped
    again = quaver.fit(
        MODEL, eval_func=as_batches, resume=first.workspace, relative=0.9, allow_any_loss=True, max_trials=2, verbose=0
    )
    assert [(trial.number, trial.stopped, trial.met) for trial in again.trials] == [(1, True, False), (2, False, True)]
    assert again.trials[0].config == again.trials[1].config


def test_a_stopped_trial_can_be_recovered(stopped: quaver.TuneResult) -> None:
    trial = next(trial for trial in stopped.trials if trial.stopped)
    assert quaver.recover(MODEL, stopped.history_path, trial.number).sha256 == trial.model_hash


@pytest.mark.parametrize("form", [as_array, as_batches])
def test_workers_score_and_stop_as_this_process_does(form: Any, tmp_path: Path) -> None:
    chosen = {"width": 2, "max_trials": 8}
    alone = tune(tmp_path / "alone", form, **chosen)
    beside = tune(tmp_path / "beside", form, n_jobs=2, **chosen)
    assert essence(beside) == essence(alone)
    assert [trial.samples for trial in beside.trials] == [trial.samples for trial in alone.trials]
    assert any(trial.stopped for trial in beside.trials) is (form is as_batches)


def test_ask_and_tell_take_every_form(in_full: quaver.TuneResult, tmp_path: Path) -> None:
    for form in FORMS:
        settings = {name: value for name, value in SETTINGS.items() if name != "verbose"}
        with quaver.open_run(
            MODEL, calib_dataloader=inputs(), workspace=tmp_path / form.__name__, early_stop=False, **settings
        ) as run:
            while (trial := run.ask()) is not None:
                run.tell(trial, form(trial.model))
            assert essence(run.result()) == essence(in_full)


def test_samples_in_order_are_named_in_a_warning(tmp_path: Path) -> None:
    def sorted_by_success(model: Any) -> Iterator[Any]:
        scores = agrees(model)[np.argsort(agrees_in_fp32, kind="stable")]
        yield from (scores[first : first + BATCH] for first in range(0, len(scores), BATCH))

    with quaver.open_run(MODEL, calib_dataloader=inputs(), workspace=tmp_path / "fp32", threads=1, report=False) as run:
        pending = run.ask()
        assert pending is not None
        agrees_in_fp32 = agrees(pending.model)
    events: list[Event] = []
    with pytest.warns(UserWarning, match="do not come in random order"):
        tune(tmp_path / "run", sorted_by_success, max_trials=1)
    tune(tmp_path / "told", sorted_by_success, max_trials=1, observer=events.append)
    assert any(isinstance(event, SamplesOrdered) for event in events)
    tune(tmp_path / "in full", sorted_by_success, max_trials=1, early_stop=False)


def test_trouble_with_one_trial_names_the_sample(tmp_path: Path) -> None:
    calls: list[int] = []

    def wrong(model: Any) -> Any:
        calls.append(1)
        scores = agrees(model).astype(float)
        match len(calls):
            case 2:
                scores[7] = np.nan
            case 3:
                return scores[:-1]
            case 4:
                return {"agreement": scores}
        return scores

    result = tune(tmp_path / "run", wrong, max_trials=3)
    said = [(trial.error or "").strip().splitlines()[-1] for trial in result.trials]
    assert "returned nan for sample 7: it is not finite" in said[0]
    assert "the scores of 599 samples, but of 600 for fp32" in said[1]
    assert "gave the metric 'agreement' now, but not for fp32" in said[2]


def test_trouble_with_the_fp32_model_ends_the_run(tmp_path: Path) -> None:
    def nothing(model: Any) -> Iterator[Any]:
        yield from ()

    with pytest.raises(EvaluationError, match="eval_func yielded no scores"):
        tune(tmp_path / "run", nothing)
