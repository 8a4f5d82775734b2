"""A stopped run resumes where it was, and asks nothing twice."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import Closeness, chain, inputs
from torn import without_the_end_of_the_last_trial

import quaver
from quaver import (
    CalibrationError,
    EvaluationError,
    HistoryError,
    SettingsError,
    StopReason,
    TuneResult,
)
from quaver.engine.run.finish import ENDING_NOTE as ENDED
from quaver.history import History

pytestmark = pytest.mark.filterwarnings("ignore:resumed run")  # see test_config_resume

MODEL = chain()
SETTINGS = {"strategy": "basic", "absolute": 0.0, "objective": "size", "threads": 1, "report": False}


class Counted:
    """Closeness, and how often it was asked."""

    def __init__(self, model: Any = MODEL) -> None:
        self._closeness = Closeness(model)
        self.calls = 0

    def __call__(self, model: Any) -> float:
        self.calls += 1
        return self._closeness(model)


def fit(model: Any = MODEL, **changes: Any) -> tuple[TuneResult, int]:
    """A run that has to try everything, and how many evaluations it took."""
    eval_func = changes.pop("eval_func", Counted())
    if "resume" in changes:  # all the rest comes from the history
        settings = {"max_trials": 100, **changes}
    else:
        settings = {**SETTINGS, "calib_dataloader": inputs(), **changes}
    return quaver.fit(model, eval_func=eval_func, **settings), getattr(eval_func, "calls", 0)


def essence(result: TuneResult) -> Any:
    """What must not depend on how often a run was stopped."""
    trials = [(trial.number, trial.config, trial.score, trial.model_hash) for trial in result.trials]
    return trials, result.best and result.best.number, result.baseline


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> TuneResult:
    result, calls = fit(workspace=tmp_path_factory.mktemp("whole"))
    assert calls == result.evaluations > 12
    return result


@pytest.fixture
def part(tmp_path: Path) -> Path:
    """The workspace of a run that was stopped after four trials."""
    result, calls = fit(workspace=tmp_path / "part", max_trials=4)
    assert (result.reason, calls) == (StopReason.MAX_TRIALS, 5)
    return result.workspace


@pytest.mark.parametrize("how", ["file", "folder", "text"])
def test_a_run_is_resumed_by_its_file_or_its_folder(whole: TuneResult, part: Path, how: str) -> None:
    place: Any = {"file": part / "history.snapshot", "folder": part, "text": str(part)}[how]
    result, calls = fit(resume=place)
    assert essence(result) == essence(whole)
    assert calls == len(whole.trials) - 4


def test_a_larger_budget_goes_on_counting(whole: TuneResult, part: Path) -> None:
    for most in (5, 8):
        result, _ = fit(resume=part, max_trials=most)
        assert (result.reason, len(result.trials)) == (StopReason.MAX_TRIALS, most)
        assert essence(result)[0] == essence(whole)[0][:most]


def test_resuming_a_finished_run_evaluates_nothing(whole: TuneResult, tmp_path: Path) -> None:
    copy = shutil.copytree(whole.workspace, tmp_path / "copy")
    before = quaver.read_snapshot(copy)
    result, calls = fit(resume=copy)
    assert (essence(result), calls) == (essence(whole), 0)
    after = quaver.read_snapshot(copy)
    notes = [{name: note for name, note in one.notes.items() if name != ENDED} for one in (before, after)]
    assert (after.baseline, after.trials, notes[1]) == (before.baseline, before.trials, notes[0])
    assert [run.number for run in after.runs] == [1, 2]


def test_every_run_is_recorded_with_its_settings_and_versions(part: Path) -> None:
    fit(resume=part, max_trials=6, absolute=None, relative=0.001, seed=3)
    snapshot = quaver.read_snapshot(part)
    assert [run.number for run in snapshot.runs] == [1, 2]
    assert [run.settings["max_trials"] for run in snapshot.runs] == [4, 6]
    assert [(run.settings["absolute"], run.settings["relative"]) for run in snapshot.runs] == [
        (0.0, None), (None, 0.001),
    ]  # fmt: skip
    assert (snapshot.run.settings["seed"], snapshot.run.settings["objective"]) == (3, "size")
    assert {"quaver", "onnx", "onnxruntime"} <= set(snapshot.run.versions)
    assert [snapshot.run_of(number).number for number in range(7)] == [1, 1, 1, 1, 1, 2, 2]


def test_another_strategy_uses_the_scores_there_are(part: Path) -> None:
    class Mixed(quaver.Strategy):
        def propose(self, space: quaver.TuningSpace, probe: quaver.Probe) -> Any:
            yield space.default_config()  # known
            yield space.default_config(calibration="entropy")  # known
            yield space.all_fp32()

    result, calls = fit(resume=part, strategy=Mixed)
    assert (len(result.trials), calls, result.met) == (5, 1, True)


def test_another_criterion_judges_the_old_trials_anew(part: Path) -> None:
    result, calls = fit(resume=part, relative=0.4)
    assert (result.reason, result.met, calls) == (StopReason.MET, True, 0)
    assert all(trial.met for trial in result.trials)


def test_calibration_data_is_not_needed_again_and_not_used_again(whole: TuneResult, part: Path) -> None:
    result, _ = fit(resume=part, calib_dataloader=inputs() * 100)
    assert essence(result) == essence(whole)


def test_a_strategy_that_measures_says_that_it_needs_samples(part: Path) -> None:
    class Ranks(quaver.Strategy):
        def propose(self, space: quaver.TuningSpace, probe: quaver.Probe) -> Any:
            yield space.default_config().fallback(probe.ranking()[0])

    with pytest.raises(CalibrationError, match="pass calib_dataloader, also to a resumed run"):
        fit(resume=part, strategy=Ranks)
    result, _ = fit(resume=part, strategy=Ranks, calib_dataloader=inputs())
    assert len(result.trials) == 5
    # What was measured is in the history, so that it is not needed a second time.
    result, calls = fit(resume=part, strategy=Ranks)
    assert (len(result.trials), calls) == (5, 0)


def test_a_snapshot_of_another_model_is_refused_and_left_alone(part: Path) -> None:
    before = (part / "history.snapshot").read_bytes()
    with pytest.raises(HistoryError, match="belongs to another model"):
        fit(chain(seed=5), resume=part)
    assert (part / "history.snapshot").read_bytes() == before


def test_another_format_is_refused(part: Path) -> None:
    with pytest.raises(SettingsError, match="`quant_format` is 'qoperator', but 'qdq' in the run that is resumed"):
        fit(resume=part, quant_format="qoperator")


def test_a_torn_end_is_cut_off_and_evaluated_again(whole: TuneResult, part: Path) -> None:
    path = part / "history.snapshot"
    path.write_bytes(without_the_end_of_the_last_trial(path))
    result, calls = fit(resume=part)
    assert essence(result) == essence(whole)
    assert calls == len(whole.trials) - 3


def test_a_run_that_ended_before_its_baseline_goes_on_without_calibrating_again(
    whole: TuneResult, tmp_path: Path
) -> None:
    snapshot = quaver.read_snapshot(whole.history_path)
    with History.create(tmp_path / "history.snapshot") as history:
        history.begin(snapshot.header)
        history.start_run(snapshot.run.settings, snapshot.run.versions)
    result, calls = fit(resume=tmp_path)
    assert (essence(result), calls) == (essence(whole), whole.evaluations)


def test_a_run_that_ended_before_calibration_needs_the_data(whole: TuneResult, tmp_path: Path) -> None:
    History.create(tmp_path / "history.snapshot").close()
    with pytest.raises(SettingsError, match="ended before calibration was done: pass calib_dataloader"):
        fit(resume=tmp_path)
    result, _ = fit(resume=tmp_path, calib_dataloader=inputs(), **SETTINGS)
    assert essence(result) == essence(whole)


def test_failures_are_tried_again_when_eval_func_is_mended(whole: TuneResult, tmp_path: Path) -> None:
    closeness, seen = Closeness(MODEL), []

    def breaks(model: Any) -> float:
        seen.append(model)
        if len(seen) > 3:
            raise ConnectionError("the data server is gone")
        return closeness(model)

    stopped, _ = fit(workspace=tmp_path, eval_func=breaks)
    assert (stopped.reason, len(stopped.trials)) == (StopReason.FAILURES, 5)
    assert stopped.best is not None and "the data server is gone" in str(stopped.trials[-1].error)
    result, calls = fit(resume=tmp_path)
    assert calls == len(whole.trials) - 2
    scored = [(trial.config, trial.score, trial.model_hash) for trial in result.trials if not trial.failed]
    assert scored == [(trial.config, trial.score, trial.model_hash) for trial in whole.trials]


def test_a_resumed_run_whose_eval_func_fails_keeps_what_there_was(part: Path) -> None:
    before = quaver.read_snapshot(part).trials
    result, _ = fit(resume=part, eval_func=lambda model: None)
    assert result.reason is StopReason.FAILURES and result.best is not None
    assert quaver.read_snapshot(part).trials[:4] == before


@pytest.mark.parametrize(
    "data",
    [
        lambda: (batch for batch in np.split(inputs(), 4)),
        lambda: [(batch, np.zeros(len(batch))) for batch in np.split(inputs(), 8)],
        lambda: [{"x": batch} for batch in np.split(inputs(), 2)],
        lambda: {"x": inputs()},
        lambda: iter(inputs()),
    ],
    ids=["generator", "pairs", "dicts", "dict", "samples"],
)
def test_calibration_data_of_any_form_gives_the_same_run(whole: TuneResult, data: Any, tmp_path: Path) -> None:
    result, _ = fit(workspace=tmp_path, calib_dataloader=data(), max_trials=3)
    assert essence(result)[0] == essence(whole)[0][:3]


def test_a_generator_that_is_used_up_is_named(tmp_path: Path) -> None:
    batches = (batch for batch in [inputs()])
    fit(workspace=tmp_path / "a", calib_dataloader=batches, max_trials=1)
    with pytest.raises(CalibrationError, match="A generator that was used before is empty"):
        fit(workspace=tmp_path / "b", calib_dataloader=batches)
    assert not (tmp_path / "b").exists()


def test_a_folder_of_any_name_will_do(tmp_path: Path) -> None:
    folder = tmp_path / "a b'c\"$(x);é*?[1]%s{0}\n日本"
    result, _ = fit(workspace=folder, max_trials=2)
    again, calls = fit(resume=folder, max_trials=3)
    assert (len(again.trials), calls) == (3, 1)
    assert quaver.recover(MODEL, folder, 2).sha256 == result.trials[1].model_hash
    assert sorted(path.name for path in folder.iterdir()) == [
        "best_model.onnx", "history.snapshot", "quaver.log", "quaver.yaml",
    ]  # fmt: skip


def test_an_eval_func_that_fails_at_once_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="eval_func failed on the fp32 model: NameError"):
        fit(workspace=tmp_path / "run", eval_func=lambda model: undefined)  # type: ignore[name-defined] # noqa: F821
    assert list(tmp_path.iterdir()) == []
