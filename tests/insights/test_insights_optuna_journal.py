"""A run as Optuna reads it back."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from networks import Closeness, chain, inputs
from optuna.trial import TrialState

import quaver
from quaver.command.main import main

MODEL = chain(3, 0)


class Sometimes(Closeness):
    calls = 0

    def __call__(self, model: Any) -> float:
        self.calls += 1
        if self.calls == 3:
            raise RuntimeError("no luck today")
        return super().__call__(model)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> quaver.TuneResult:
    """A run of which one trial failed."""
    return quaver.fit(
        MODEL, calib_dataloader=inputs(), eval_func=Sometimes(MODEL), strategy="basic", absolute=0.0, objective="size",
        max_trials=6, threads=1, verbose=0, workspace=tmp_path_factory.mktemp("optuna") / "run",
    )  # fmt: skip


@pytest.fixture(scope="module")
def journal(result: quaver.TuneResult) -> Path:
    place = result.workspace / "journal.log"
    assert main(["export", str(result.workspace), "--optuna", str(place)]) == 0
    return place


def load(journal: Path) -> optuna.Study:
    backend = optuna.storages.journal.JournalFileBackend(str(journal))
    return optuna.load_study(study_name="run", storage=optuna.storages.JournalStorage(backend))


def test_every_trial_is_there_with_value_state_and_the_precision_of_each_op(
    result: quaver.TuneResult, journal: Path
) -> None:
    study = load(journal)
    assert study.direction is optuna.study.StudyDirection.MAXIMIZE
    assert [trial.number for trial in study.trials] == [0, *(trial.number for trial in result.trials)]
    assert study.trials[0].value == result.baseline and set(study.trials[0].params.values()) == {"fp32"}
    for told, trial in zip(study.trials[1:], result.trials, strict=True):
        assert told.state is (TrialState.FAIL if trial.failed else TrialState.COMPLETE)
        assert told.value == trial.score
        assert told.params == {name: str(pick.precision) for name, pick in trial.config.items()}
        assert told.user_attrs.get("loss") == trial.loss and told.user_attrs.get("size", 0) == trial.model_size
        assert told.duration is not None
    assert {trial.state for trial in study.trials} == {TrialState.FAIL, TrialState.COMPLETE}
    assert result.best is not None and study.user_attrs["best"] == result.best.number


def test_optuna_reads_the_journal(journal: Path) -> None:
    frame = load(journal).trials_dataframe()
    assert len(frame) == 7 and {column for column in frame if column.startswith("params_")}


def test_a_score_that_is_to_be_small_is_minimised(tmp_path: Path) -> None:
    quaver.fit(
        MODEL, calib_dataloader=inputs(), eval_func=lambda model: 2.0, higher_is_better=False, strategy="basic",
        objective="size", max_trials=1, verbose=0, workspace=tmp_path / "run",
    )  # fmt: skip
    assert main(["export", str(tmp_path / "run"), "--optuna", str(tmp_path / "journal.log")]) == 0
    assert load(tmp_path / "journal.log").direction is optuna.study.StudyDirection.MINIMIZE


def test_an_existing_journal_is_not_overwritten_and_the_path_is_required(
    result: quaver.TuneResult, journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = journal.read_bytes()
    assert main(["export", str(result.workspace), "--optuna", str(journal)]) == 2
    assert journal.read_bytes() == before and "exists already" in capsys.readouterr().err
    assert main(["export", str(result.workspace)]) == 2
    assert "such as --optuna journal.log" in capsys.readouterr().err


@pytest.fixture
def dashboard(journal: Path) -> Iterator[str]:
    """The address of an optuna-dashboard that shows the journal."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = Path(sys.executable).with_name("optuna-dashboard")
    with subprocess.Popen(
        [script, str(journal), "--host", "127.0.0.1", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def test_optuna_dashboard_opens_it(dashboard: str, result: quaver.TuneResult) -> None:
    listed = ask(f"{dashboard}/api/studies")["study_summaries"]
    assert [study["study_name"] for study in listed] == ["run"]
    shown = ask(f"{dashboard}/api/studies/{listed[0]['study_id']}?after=0")["trials"]
    assert len(shown) == 1 + len(result.trials)
    assert {trial["state"] for trial in shown} == {"Complete", "Fail"}


def ask(address: str) -> Any:
    """What a server answers, once it is up."""
    for _ in range(60):
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                return json.load(answer)
        except OSError:
            time.sleep(1)
    raise AssertionError(f"nobody answers at {address}")
