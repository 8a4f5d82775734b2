"""Batches of the calibration data decide nothing; latency is that at the batch of deployment, and says so."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import quaver
from quaver import SettingsError
from quaver.adapters import AdapterOptions, load_model
from quaver.command.main import main
from quaver.demo.data import Accuracy, digits
from quaver.engine.timing.cache import timing_cache
from quaver.history import read_snapshot

RESNET = Path(__file__).parents[1] / "data" / "digits_resnet.onnx"
IMAGES, _, TEST, LABELS = digits()
WAYS: dict[str, Callable[[Any], Any]] = {
    "1": lambda values: np.split(values, len(values)),
    "10": lambda values: np.split(values, len(values) // 10),
    "25": lambda values: np.split(values, len(values) // 25),
    "whole": lambda values: values,
}


def tuned(data: Any, model: Any = RESNET, **settings: Any) -> quaver.TuneResult:
    settings = {"report": False, "verbose": 0, "timing_cache": False, **settings}
    return quaver.fit(model, calib_dataloader=data, eval_func=Accuracy(TEST, LABELS), **settings)


def with_fixed_batch(batch: int) -> onnx.ModelProto:
    model = onnx.load(RESNET)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = batch
    return model


def test_the_same_250_samples_in_any_batches_give_the_same_trials_and_bytes(tmp_path: Path) -> None:
    """Times come from a file, so that a busy machine changes nothing; the search continues after the first success."""
    cost = quaver.save_cost_model(RESNET, tmp_path / "cost.json", IMAGES[:32])
    runs = {
        way: tuned(
            cut(IMAGES[:250]), strategy="basic", cost_model=cost, timeout=3600, max_trials=3, workspace=tmp_path / way
        )
        for way, cut in WAYS.items()
    }
    outcomes = {
        way: (
            [trial.config.fingerprint for trial in run.trials],
            [trial.score for trial in run.trials],
            run.model.sha256,
        )
        for way, run in runs.items()
    }
    assert len(outcomes["1"][0]) > 1
    assert all(outcome == outcomes["1"] for outcome in outcomes.values()), outcomes


def test_latency_is_measured_at_the_batch_asked_for_and_says_so(tmp_path: Path) -> None:
    taken = {}
    for batch in (1, 16):
        result = tuned(IMAGES[:64], batch=batch, workspace=tmp_path / str(batch))
        assert result.fp32_measured["batch"] == batch
        assert f"batch {batch}, 1 thread)" in str(result)
        assert read_snapshot(tmp_path / str(batch)).run.settings["batch"] == batch
        taken[batch] = result.fp32_measured["latency_ms"]
    assert taken[16] > 3 * taken[1]


def test_the_batch_of_a_model_that_fixes_it_is_used_and_another_is_refused_at_once(tmp_path: Path) -> None:
    model = with_fixed_batch(8)

    def scored(model: Any) -> float:
        parts = [model(TEST[at : at + 8]) for at in range(0, 64, 8)]
        return float((np.concatenate(parts).argmax(axis=1) == LABELS[:64]).mean())

    result = quaver.fit(
        model, calib_dataloader=IMAGES[:32], eval_func=scored, report=False, verbose=0, workspace=tmp_path
    )
    assert result.fp32_measured["batch"] == 8 and "batch 8, 1 thread)" in str(result)

    def never() -> Any:
        raise AssertionError("the data was asked for")
        yield

    with pytest.raises(SettingsError, match=r"`batch=4` contradicts the model, .* fixed batch of 8"):
        quaver.fit(model, calib_dataloader=never(), eval_func=scored, batch=4, workspace=tmp_path / "other")
    with pytest.raises(SettingsError, match=r"`batch=4` contradicts the model"):
        quaver.profile(model, batch=4)


def test_a_batch_that_the_model_does_not_run_at_is_refused(tmp_path: Path) -> None:
    """The axis is open, and a Reshape takes one sample only."""
    model = onnx.load(RESNET)
    first = model.graph.input[0].name
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1, 1, 8, 8]), "one_sample"))
    for node in model.graph.node:
        for at, name in enumerate(node.input):
            if name == first:
                node.input[at] = "as_one"
    model.graph.node.insert(0, onnx.helper.make_node("Reshape", [first, "one_sample"], ["as_one"], "as_one"))
    with pytest.raises(SettingsError, match=r"`batch=4`, but the model does not run on .* samples at once"):
        tuned(IMAGES[:32], model, batch=4, workspace=tmp_path)


def test_times_of_another_batch_are_not_reused() -> None:
    paths = set()
    for batch in (1, 2):
        adapter = load_model(str(RESNET), AdapterOptions(threads=1, batch=batch))
        adapter.keep_probe_samples(IMAGES[:4])
        paths.add(timing_cache(adapter)._path)
        adapter.close()
    assert len(paths) == 2


def test_a_resumed_run_keeps_its_batch(tmp_path: Path) -> None:
    tuned(IMAGES[:32], batch=2, max_trials=1, workspace=tmp_path / "run")
    again = tuned(IMAGES[:32], resume=tmp_path / "run", max_trials=2)
    assert again.fp32_measured["batch"] == 2
    with pytest.raises(SettingsError, match=r"`batch` is 4, but 2 in the run that is resumed"):
        tuned(IMAGES[:32], resume=tmp_path / "run", batch=4)


def test_a_cost_model_says_its_batch_and_goes_with_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "calib.npy", IMAGES[:16])
    words = ["profile", str(RESNET), "--calib", str(tmp_path / "calib.npy"), "--batch", "4"]
    assert main([*words, "--save", str(tmp_path / "cost.json")]) == 0
    assert re.search(r'"target": ".*batch 4, 1 thread', (tmp_path / "cost.json").read_text(encoding="utf-8"))
    with pytest.raises(SettingsError, match=r"was measured at batch 4, and `batch` is 1: set `batch=4`"):
        tuned(IMAGES[:32], cost_model=tmp_path / "cost.json", workspace=tmp_path / "run")
    assert main(["profile", str(RESNET), "--batch", "4", "--runs", "3"]) == 0
    assert "4 sample(s)" in capsys.readouterr().out
