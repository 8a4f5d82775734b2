"""Runs recorded by the real trackers, offline, and read back."""

from __future__ import annotations

import builtins
import json
import re
import socket
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from networks import Closeness, chain, inputs

import quaver
from quaver.command.main import main
from quaver.extras import install_command
from quaver.insights import trackers as package
from quaver.insights.trackers import MLflow, TensorBoard, Tracker, WandB, make_tracker, trackers

MODEL = chain(3, 0)


class Sometimes(Closeness):
    """Fails on the second quantized model."""

    calls = 0

    def __call__(self, model: Any) -> float:
        self.calls += 1
        if self.calls == 3:
            raise RuntimeError("no luck today")
        return super().__call__(model)


def fit(folder: Path, observer: Any, **settings: Any) -> quaver.TuneResult:
    given = {"strategy": "basic", "objective": "size", "threads": 1, "max_trials": 3, "absolute": 0.0, **settings}
    return quaver.fit(
        MODEL, calib_dataloader=inputs(), eval_func=Sometimes(MODEL), workspace=folder, observer=observer, verbose=0,
        **given,
    )  # fmt: skip


def test_mlflow_gets_a_parent_run_a_child_per_trial_and_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    store = (tmp_path / "store").as_uri()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        result = fit(tmp_path / "run", MLflow("digits", store))

    from mlflow import MlflowClient

    client = MlflowClient(store)
    experiment = client.get_experiment_by_name("digits")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    parents = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    assert [run.info.run_name for run in parents] == ["run"]
    parent = parents[0]
    children = {run.data.tags["quaver.trial"]: run for run in runs if run is not parent}
    assert {run.data.tags["mlflow.parentRunId"] for run in children.values()} == {parent.info.run_id}
    assert set(children) == {"0", *(str(trial.number) for trial in result.trials)}
    for trial in result.trials:
        told = children[str(trial.number)]
        assert told.info.status == ("FAILED" if trial.failed else "FINISHED")
        assert told.data.metrics.get("score") == trial.score and told.data.metrics.get("size", 0) == trial.model_size
        assert ("no luck today" in told.data.tags.get("quaver.error", "")) == trial.failed
    assert any(trial.failed for trial in result.trials)
    assert parent.info.status == "FINISHED" and parent.data.params["strategy"] == "basic"
    scored = [trial.number for trial in result.trials if trial.score is not None]
    history = client.get_metric_history(parent.info.run_id, "score")
    assert [point.step for point in history] == [0, *scored]
    assert result.best is not None and parent.data.tags["quaver.best"] == str(result.best.number)
    files = {item.path for item in client.list_artifacts(parent.info.run_id)}
    assert {"history.snapshot", "quaver.yaml", "quaver.log"} <= files


def test_wandb_gets_a_step_per_trial_and_the_files(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        result = fit(tmp_path / "run", WandB("digits", mode="offline"))
    records = wandb_records(next((tmp_path / "run").rglob("*.wandb")))
    steps: dict[int, dict[str, Any]] = {}
    for record in records:
        if record.HasField("history"):
            item = {one.key or "/".join(one.nested_key): json.loads(one.value_json) for one in record.history.item}
            steps.setdefault(int(item["_step"]), {}).update(item)
    for trial in result.trials:
        told = steps[trial.number]
        assert told.get("score") == trial.score and told.get("size", 0) == trial.model_size
    assert steps[0]["score"] == result.baseline
    kept = [entry.path for record in records for entry in record.request.log_artifact.artifact.manifest.contents]
    kept += [entry.path for record in records for entry in record.artifact.manifest.contents]
    assert {"history.snapshot", "quaver.yaml"} <= set(kept)


def wandb_records(path: Path) -> list[Any]:
    """The records of an offline run, once the last one is there: wandb's own process may write on after `finish`."""
    deadline = time.monotonic() + 60
    while True:
        records = list(whole_records(path.read_bytes()))
        if any(record.HasField("exit") for record in records) or time.monotonic() > deadline:
            return records
        time.sleep(0.1)


def whole_records(content: bytes) -> Iterator[Any]:
    """What is complete of a header and LevelDB's log format after it: parts of records in blocks of 32 KiB."""
    from wandb.proto import wandb_internal_pb2

    whole, at = b"", 7
    while at + 7 <= len(content):
        if 32768 - at % 32768 < 7:  # too little of the block is left for the head of a part
            at += 32768 - at % 32768
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        if kind == 0 or at + 7 + length > len(content):  # not written yet
            return
        whole += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a record in one part, or the last part of one
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


def test_tensorboard_gets_a_point_per_trial(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        result = fit(tmp_path / "run", TensorBoard())

    import tensorflow as tf

    points: dict[str, dict[int, float]] = {}
    for path in (tmp_path / "run" / "tensorboard").iterdir():
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                points.setdefault(value.tag, {})[event.step] = value.simple_value
    scored = {trial.number: trial.score for trial in result.trials if trial.score is not None}
    assert points["trial/score"] == pytest.approx({0: result.baseline, **scored})
    assert set(points["trial/int8_ops"]) == {0, 1, 2, 3} and "error/text_summary" in points
    assert result.best is not None and list(points["best/score"]) == [result.best.number]


def test_an_unreachable_server_costs_one_warning_and_no_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        away = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.warns(RuntimeWarning, match="observer MLflow failed on RunStarted") as said:
            result = fit(tmp_path / "run", MLflow(tracking_uri=away))
    assert len([one for one in said if "observer" in str(one.message)]) == 1
    assert len(result.trials) == 3


class Broken(Tracker):
    extra, package = "mlflow", "json"
    calls = 0

    def start(self, event: Any) -> None:
        pass

    def trial(self, trial: Any) -> None:
        type(self).calls += 1
        raise ConnectionError("gone")


def test_a_failed_tracker_is_not_called_again(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="observer Broken failed on BaselineScored") as said:
        result = fit(tmp_path / "run", Broken())
    assert len(result.trials) == 3 and Broken.calls == 1 and len(said) == 1


NEW_TRACKER = """
from quaver.insights.trackers.tracker import Tracker

class Comet(Tracker):
    extra, package = "comet", "json"
"""


def test_a_new_tracker_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "comet.py").write_text(NEW_TRACKER)
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    try:
        assert set(trackers()) == {"comet", "mlflow", "tensorboard", "wandb"}
        assert type(make_tracker("comet")).__name__ == "Comet"
    finally:
        sys.modules.pop(f"{package.__name__}.comet", None)


@pytest.mark.parametrize("name", ["mlflow", "tensorboard", "wandb"])
def test_a_tracker_without_its_package_names_the_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = trackers()[name].package
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(quaver.MissingPackageError, match=f"which is not installed: {re.escape(install_command(name))}"):
        make_tracker(name)


def test_the_command_line_refuses_an_unknown_tracker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my_eval.py").write_text("def accuracy(model):\n    return 1.0\n")
    Path("data.py").write_text("batches = []\n")
    words = ["--model", "m.onnx", "--calib", "data.py:batches", "--eval", "my_eval.py:accuracy", "--track", "mlfow"]
    assert main(["tune", *words]) == 2
    assert "there is no tracker 'mlfow'; did you mean 'mlflow'?" in capsys.readouterr().err


def test_trackers_are_imported_only_where_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib
    import sys

    real = builtins.__import__

    def guarded(name: str, *rest: Any, **more: Any) -> Any:
        assert name.split(".")[0] not in ("mlflow", "wandb", "tensorboardX", "optuna"), name
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", guarded)
    for name in [name for name in sys.modules if name.startswith("quaver.insights")]:
        monkeypatch.delitem(sys.modules, name)
    importlib.import_module("quaver.insights.trackers")
    importlib.import_module("quaver.insights.optuna_journal")
