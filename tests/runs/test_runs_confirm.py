"""A winner is scored on data that took no part in choosing it; and a run may begin with the winner of the last one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import inputs
from sample_scores import MODEL, SETTINGS, agrees_elsewhere, as_array, as_number, tune

import quaver
from quaver import EvaluationError, SettingsError
from quaver.command import main
from quaver.engine.event_base import Event
from quaver.engine.events import Confirmed, StartedFrom, TrialFinished
from quaver.engine.scoring.judge import judge_snapshot
from quaver.insights import FollowedRun, write_report
from quaver.insights.data.summary import verdict

pytestmark = pytest.mark.filterwarnings("ignore:resumed run")
LONGER = {"timeout": 3600, "max_trials": 30}


class Confirming:
    """Counts its calls, and fails the first few quantized models."""

    def __init__(self, refused: int = 0) -> None:
        self.refused, self.scored = refused, list[str]()

    def __call__(self, model: Any) -> Any:
        self.scored.append(model.sha256)
        right = agrees_elsewhere(model)
        return right if len(self.scored) == 1 or len(self.scored) > 1 + self.refused else np.zeros_like(right)


def test_the_winner_and_fp32_are_scored_once(tmp_path: Path) -> None:
    confirm = Confirming()
    events: list[Event] = []
    result = tune(tmp_path / "run", as_array, confirm=confirm, relative=0.1, observer=events.append)
    assert result.met and result.confirmed and result.best is not None
    assert len(confirm.scored) == 2 and confirm.scored[1] == result.best.model_hash
    (one,) = result.confirmations
    assert one.trial == result.best.number and one.met and one.baseline == 1.0 and one.interval is not None
    assert [event.number for event in events if isinstance(event, Confirmed)] == [one.trial]
    assert f"trial {one.trial} confirmed on other data" in str(result)


def test_where_it_misses_the_next_best_are_tried(tmp_path: Path) -> None:
    confirm = Confirming(refused=2)
    chosen = {"strategy": "random", "relative": 0.3, **LONGER}
    result = tune(tmp_path / "run", as_array, confirm=confirm, observer=lambda event: None, **chosen)
    refused = [one.trial for one in result.confirmations if not one.met]
    assert len(refused) == 2 and result.met and result.best is not None and result.best.number not in refused
    sizes = [next(trial.model_size for trial in result.trials if trial.number == one) for one in refused]
    assert sizes == sorted(sizes) and sizes[-1] <= result.best.model_size  # by objective, the best first
    assert "NOT confirmed on other data" in str(result)
    judged = judge_snapshot(quaver.read_snapshot(result.history_path))
    assert judged.best == result.best and judged.met


def test_where_all_miss_there_nothing_is_met(tmp_path: Path) -> None:
    confirm = Confirming(refused=100)
    chosen = {"strategy": "random", "relative": 0.2, "confirm_tries": 30, **LONGER}
    with pytest.warns(UserWarning, match="is NOT confirmed"):
        result = tune(tmp_path / "run", as_array, confirm=confirm, **chosen)
    met = [trial for trial in result.trials if trial.met]
    assert met and len(confirm.scored) == 1 + len(met) and not result.met and result.confirmed is False
    assert result.best is not None and result.best.met and "(but not on other data)" in str(result)
    assert not judge_snapshot(quaver.read_snapshot(result.history_path)).met


@pytest.mark.parametrize("tries", [1, 2])
def test_after_so_many_tries_nothing_is_met(tmp_path: Path, tries: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The next best trials meet the criterion on the first data, but nobody has confirmed them."""
    confirm = Confirming(refused=100)
    chosen = {"strategy": "random", "relative": 0.3, "confirm_tries": tries, **LONGER}
    with pytest.warns(UserWarning, match="is NOT confirmed"):
        result = tune(tmp_path / "run", as_array, confirm=confirm, **chosen)
    assert len(confirm.scored) == 1 + tries and len([trial for trial in result.trials if trial.met]) > tries
    assert not result.met and result.confirmed is False
    assert result.best is not None and result.best.number == result.confirmations[0].trial
    assert "(but not on other data)" in str(result)
    numbers = ", ".join(str(one.trial) for one in result.confirmations)
    (warning,) = result.warnings
    assert f"trial{'' if tries == 1 else 's'} {numbers} w" in warning and "the criterion is not met" in warning
    everybody_agrees(result, capsys)


def test_more_tries_in_a_resumed_run_find_one_that_is_confirmed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    confirm = Confirming(refused=2)
    chosen = {"strategy": "random", "relative": 0.3, "confirm_tries": 1, **LONGER}
    first = tune(tmp_path / "run", as_array, confirm=confirm, observer=lambda event: None, **chosen)
    assert not first.met
    result = quaver.fit(
        MODEL, eval_func=as_array, confirm=confirm, resume=first.workspace, confirm_tries=3, verbose=0,
        observer=lambda event: None,
    )  # fmt: skip
    assert result.met and result.confirmed and len(result.confirmations) == 3 and len(confirm.scored) == 4
    everybody_agrees(result, capsys)


def test_an_interrupted_run_with_confirm_is_not_met(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def stopped(event: Event) -> None:
        if isinstance(event, TrialFinished) and event.trial.met:
            raise KeyboardInterrupt

    result = tune(tmp_path / "run", as_array, confirm=Confirming(), relative=0.3, observer=stopped, **LONGER)
    assert result.reason is quaver.StopReason.INTERRUPTED and result.best is not None and result.best.met
    assert not result.met and result.confirmed is None and "(but is not confirmed on other data)" in str(result)
    assert "no trial was scored on the data of `confirm`: resume the run and pass `confirm`" in result.warnings[0]
    everybody_agrees(result, capsys)
    again = quaver.fit(MODEL, eval_func=as_array, confirm=Confirming(), resume=result.workspace, timeout=0, verbose=0)
    assert again.met and again.confirmed and again.warnings == ()


def test_a_resumed_run_without_confirm_cannot_make_it_met(tmp_path: Path) -> None:
    """Whoever asked for a confirmation once gets no unconfirmed success from the same history."""
    chosen = {"strategy": "random", "relative": 0.3, "confirm_tries": 1, **LONGER}
    first = tune(tmp_path / "run", as_array, confirm=Confirming(100), observer=lambda event: None, **chosen)
    result = quaver.fit(MODEL, eval_func=as_array, resume=first.workspace, verbose=0)
    assert not result.met and result.best == first.best


def everybody_agrees(result: quaver.TuneResult, capsys: pytest.CaptureFixture[str]) -> None:
    """`history`, `show`, page and report have the verdict of the result."""
    judged = judge_snapshot(quaver.read_snapshot(result.history_path))
    assert (judged.best, judged.met) == (result.best, result.met)
    capsys.readouterr()
    assert result.best is not None and main.main(["history", str(result.workspace), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert (listed["best"], listed["met"]) == (result.best.number, result.met)
    assert listed["warnings"] == list(result.warnings)
    assert main.main(["show", str(result.workspace), "best", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["number"] == result.best.number
    data = FollowedRun(result.workspace).poll()
    assert data is not None and data.best == result.best and data.judge.met is result.met
    said = verdict(data)
    assert said.kind == ("met" if result.met else "not met") and said.warnings == result.warnings
    report = write_report(result.workspace, result.workspace / "other.html").read_text()
    assert said.headline in report.replace("&#x27;", "'")


def test_a_resumed_run_does_not_repeat_it(tmp_path: Path) -> None:
    first = tune(tmp_path / "run", as_array, confirm=Confirming(), relative=0.1)
    again = Confirming()
    result = quaver.fit(MODEL, eval_func=as_array, confirm=again, resume=first.workspace, verbose=0)
    assert again.scored == [] and result.confirmations == first.confirmations and result.confirmed


def test_without_a_winner_there_is_nothing_to_confirm(tmp_path: Path) -> None:
    confirm = Confirming()
    result = tune(tmp_path / "run", as_array, confirm=confirm, max_trials=1)
    assert not result.met and confirm.scored == [] and result.confirmed is None


def test_trouble_with_it_says_whose(tmp_path: Path) -> None:
    def confirm(model: Any) -> float:
        raise OSError("no such share")

    with pytest.raises(EvaluationError, match="`confirm` failed on the fp32 model: OSError: no such share"):
        tune(tmp_path / "run", as_array, confirm=confirm, relative=0.1)
    with pytest.raises(SettingsError, match="confirm must be a function"):
        tune(tmp_path / "other", as_array, confirm=3)


def test_the_last_winner_is_tried_first(tmp_path: Path) -> None:
    last = tune(tmp_path / "last", as_number)
    assert last.best is not None and last.best.number > 2
    events: list[Event] = []
    result = tune(tmp_path / "new", as_number, start_from=last.workspace, observer=events.append)
    assert result.best is not None and result.best.config == last.best.config and len(result.trials) == 1
    (told,) = [event for event in events if isinstance(event, StartedFrom)]
    assert (told.number, told.taken, told.ops, told.not_offered) == (last.best.number, 7, 7, ())


def test_what_is_not_offered_any_more_is_named_and_the_strategy_goes_on(tmp_path: Path) -> None:
    last = tune(tmp_path / "last", as_number)
    assert last.best is not None
    op = last.best.config.fp32_ops[0]
    events: list[Event] = []
    result = tune(
        tmp_path / "new",
        as_number,
        start_from=last.history_path,
        op_name_dict={op: "int8"},
        relative=0.001,
        max_trials=3,
        observer=events.append,
    )
    (told,) = [event for event in events if isinstance(event, StartedFrom)]
    assert told.not_offered == (op,) and op in str(told)
    first = result.trials[0].config
    assert first[op].quantized and all(first[name] == last.best.config[name] for name in first if name != op)
    assert len(result.trials) == 3


def test_a_resumed_run_needs_the_last_one_no_more(tmp_path: Path) -> None:
    last = tune(tmp_path / "last", as_number)
    first = tune(tmp_path / "new", as_number, start_from=last.workspace, max_trials=1, relative=0.001)
    last.history_path.unlink()
    again = quaver.fit(
        MODEL, calib_dataloader=inputs(), eval_func=as_number, resume=first.workspace, max_trials=3, verbose=0
    )
    assert again.trials[0] == first.trials[0] and len(again.trials) == 3


def test_another_model_is_refused(tmp_path: Path) -> None:
    from networks import chain

    renamed = chain(2)
    for node in renamed.graph.node:
        node.name = f"other/{node.name}"
    other = quaver.fit(
        renamed,
        calib_dataloader=inputs(),
        eval_func=lambda model: 1.0,
        workspace=tmp_path / "other",
        **{**SETTINGS, "verbose": 0},
    )
    with pytest.raises(SettingsError, match="no op of this model has the name and the kind"):
        tune(tmp_path / "new", as_number, start_from=other.workspace)


def batches_of_two(model: Any) -> Iterator[Any]:
    scores = agrees_elsewhere(model)
    yield from (scores[first : first + 2] for first in range(0, len(scores), 2))


def test_confirm_sees_all_samples(tmp_path: Path) -> None:
    """Nothing is stopped there: it is scored once, and its figure is what is reported."""
    result = tune(tmp_path / "run", as_array, confirm=batches_of_two, relative=0.1)
    assert result.confirmations and result.confirmed is not None
