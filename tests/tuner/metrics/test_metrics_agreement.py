"""Agreement needs no labels: with the fp32 model of the run, in this process and in others, and after a resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import quaver
from quaver import EvaluationError, SettingsError, metrics
from quaver.adapters import load_unmodified
from quaver.demo.data import digits

MODEL = Path(__file__).parents[2] / "data" / "digits_resnet.onnx"


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return digits()[2][:300]


def fitted(tmp_path: Path, eval_func: Any, images: np.ndarray, **settings: Any) -> quaver.TuneResult:
    return quaver.fit(
        MODEL,
        calib_dataloader=images[:64],
        eval_func=eval_func,
        workspace=tmp_path / "run",
        objective="int8_ops",
        threads=1,
        verbose=0,
        **settings,
    )


@pytest.mark.parametrize(("kind", "best"), [("top1", 1.0), ("cosine", 1.0), ("sqnr", 100.0)])
def test_a_model_agrees_with_itself(kind: str, best: float, images: np.ndarray) -> None:
    metric = metrics.agreement(images, kind, model=MODEL)
    found = np.concatenate([batch[metric.name] for batch in metric(load_unmodified(MODEL, threads=1))])
    assert len(found) == 300
    assert found == pytest.approx(best, abs=1e-6)


def test_fit_tunes_without_labels(tmp_path: Path, images: np.ndarray) -> None:
    result = fitted(tmp_path, metrics.agreement(images), images)
    assert result.baseline == 1.0
    assert result.met
    assert result.best is not None and result.best.score is not None and result.best.score >= 0.99
    assert result.best.metrics.keys() == {"agreement_top1"}


def test_workers_find_the_fp32_model_by_themselves(tmp_path: Path, images: np.ndarray) -> None:
    here = fitted(tmp_path / "here", metrics.agreement(images, "cosine"), images, max_trials=3, width=2)
    there = fitted(tmp_path / "there", metrics.agreement(images, "cosine"), images, max_trials=3, n_jobs=2)
    assert [trial.score for trial in there.trials] == pytest.approx([trial.score for trial in here.trials])
    assert all(trial.worker for trial in there.trials)


def test_a_resumed_run_which_never_scores_fp32_still_knows_it(tmp_path: Path, images: np.ndarray) -> None:
    metric = metrics.agreement(images, "sqnr")
    first = fitted(tmp_path, metric, images, max_trials=1, relative=None, absolute=1.0, strategy="basic")
    more = quaver.fit(MODEL, calib_dataloader=images[:64], eval_func=metric, resume=first.workspace, max_trials=3)
    assert len(more.trials) > len(first.trials)
    assert all(trial.score is not None and 0 < trial.score < 100 for trial in more.trials)


def test_one_metric_serves_several_models(tmp_path: Path, images: np.ndarray) -> None:
    metric = metrics.agreement(images)
    fitted(tmp_path / "one", metric, images, max_trials=1)
    with pytest.raises(EvaluationError, match="does not know the fp32 model"):
        next(iter(metric(load_unmodified(MODEL))))


def test_an_unknown_kind_is_named(images: np.ndarray) -> None:
    with pytest.raises(SettingsError, match="unknown kind 'cosinus'; did you mean 'cosine'"):
        metrics.agreement(images, "cosinus")


def test_only_samples_on_which_models_disagree_need_labels(tmp_path: Path, images: np.ndarray) -> None:
    labels = digits()[3][:300]
    config = {"op_type_dict": {"Conv": {"weight": {"granularity": ["per_tensor"]}}}}
    result = fitted(tmp_path, metrics.top1(images, labels), images, allow_any_loss=True, relative=1.0, **config)
    numbers = metrics.disagreements(images, MODEL, result.model)
    fp32, int8 = (model(images).argmax(axis=1) for model in (load_unmodified(MODEL), result.model))
    assert np.array_equal(numbers, np.flatnonzero(fp32 != int8))
    few = np.zeros(300, int)
    few[numbers] = labels[numbers]
    lost = (fp32 == labels).mean() - (int8 == labels).mean()
    assert (fp32 == few).mean() - (int8 == few).mean() == pytest.approx(lost)
    with pytest.raises(SettingsError, match="needs at least one quantized model"):
        metrics.disagreements(images, MODEL)


def test_an_error_rate_must_be_said_to_be_one(tmp_path: Path, images: np.ndarray) -> None:
    metric = metrics.cer(images, ["a"] * 300, alphabet="a")
    with pytest.raises(SettingsError, match="cer is better when it is lower: pass `higher_is_better=False`"):
        fitted(tmp_path, metric, images)
    assert not (tmp_path / "run").exists()
