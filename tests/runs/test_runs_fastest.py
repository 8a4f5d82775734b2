"""`runtime="fastest"`: a run in each runtime, and the fastest file of all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from networks import Closeness, chain, inputs

import quaver
from quaver.adapters import runtimes_of
from quaver.api.fastest import RuntimeOutcome, order_of
from quaver.command.main import main
from quaver.errors import SettingsError
from quaver.history import read_snapshot


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> quaver.TuneResult:
    model = chain(3)
    return quaver.fit(
        model,
        calib_dataloader=iter([inputs(16)]),  # both runs read it
        eval_func=Closeness(model),
        runtime="fastest",
        strategy="basic",
        relative=0.05,
        workspace=tmp_path_factory.mktemp("runs") / "fastest",
        timing_cache=False,
        verbose=0,
    )


def test_the_winner_is_the_fastest_file_that_meets_the_criterion(result: quaver.TuneResult) -> None:
    outcomes = result.runtimes
    assert [outcome.runtime for outcome in outcomes] == ["onnxruntime", "openvino"]
    winner = next(outcome for outcome in outcomes if outcome.wins)
    assert sum(outcome.wins for outcome in outcomes) == 1
    assert all(outcome.met and outcome.latency is not None for outcome in outcomes)
    assert winner.latency == min(outcome.latency or 0.0 for outcome in outcomes)
    assert outcomes[0].fp32_latency == 1.0
    assert result.workspace.name == winner.runtime == result.model.runtime.name
    assert f"the fastest runtime is {winner.runtime}" in str(result)
    assert all(f"{outcome.runtime}: meets the criterion" in str(result) for outcome in outcomes)


def test_both_runs_have_a_history_that_names_the_other(
    result: quaver.TuneResult, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = result.workspace.parent
    assert (folder / "winner").resolve() == result.workspace.resolve()
    for outcome in result.runtimes:
        snapshot = read_snapshot(folder / outcome.runtime)
        assert snapshot.run.settings["runtime"] == outcome.runtime
        assert len(snapshot.trials) + 1 >= outcome.evaluations
    assert main(["show", str(folder / "winner"), "best"]) == 0
    assert "the fastest runtime is" in capsys.readouterr().out


def test_a_trial_of_either_run_is_recovered(result: quaver.TuneResult) -> None:
    for outcome in result.runtimes:
        assert outcome.trial is not None
        model = quaver.recover(chain(3), Path(outcome.workspace), outcome.trial)
        assert model.runtime.name == outcome.runtime
        assert model(inputs(4)).shape == (4, inputs(4).shape[1])
    assert np.isfinite(result.model(inputs(4))).all()


def test_both_runs_are_resumed(result: quaver.TuneResult) -> None:
    model, eval_func = chain(3), Closeness(chain(3))
    resumed = quaver.fit(
        model, resume=result.workspace.parent, eval_func=eval_func, calib_dataloader=[inputs(16)], verbose=0
    )
    assert [outcome.runtime for outcome in resumed.runtimes] == ["onnxruntime", "openvino"]
    trials = {outcome.runtime: outcome.trial for outcome in result.runtimes}
    assert {outcome.runtime: outcome.trial for outcome in resumed.runtimes} == trials


def test_a_run_in_one_runtime_is_not_resumed_in_all(result: quaver.TuneResult) -> None:
    with pytest.raises(SettingsError, match='holds no run of runtime="fastest"'):
        quaver.fit(
            chain(3), resume=result.workspace, runtime="fastest", eval_func=Closeness(chain(3)),
            calib_dataloader=[inputs(16)], verbose=0,
        )  # fmt: skip


def test_only_fit_tunes_for_all_runtimes(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="which only fit does"):
        quaver.open_run(chain(3), calib_dataloader=[inputs(16)], runtime="fastest", workspace=tmp_path)


def test_a_model_of_one_runtime_is_refused() -> None:
    with pytest.raises(SettingsError, match="a model of litert runs in one runtime only"):
        runtimes_of("model.tflite", "litert")


def test_files_that_meet_the_criterion_win_over_faster_ones() -> None:
    def outcome(met: bool | None, latency: float | None) -> RuntimeOutcome:
        return RuntimeOutcome("x", False, met, 0.9, 1, 2, latency, 1.0, 1.0, "")

    fast, slow = outcome(False, 0.2), outcome(True, 0.9)
    assert order_of(slow, 0.001) < order_of(fast, 0.5)
    assert order_of(outcome(False, 0.5), 0.02) < order_of(outcome(False, 0.2), 0.03)
    assert order_of(outcome(None, 0.2), None) < order_of(outcome(None, 0.3), None)
