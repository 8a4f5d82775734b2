"""A decoder tuned from start to end: few evaluations, exact budgets, and the same bytes from the history."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "adapters" / "onnxrt"))

from onnx_models import opened
from tiny_decoder import decoder, tokens

import quaver
from quaver.adapters import load_unmodified
from quaver.errors import SettingsError
from quaver.history import read_snapshot
from quaver.metrics import kl_divergence, perplexity, same_top_token

TEXTS = tokens(6, seed=5)


def tuned(folder: Path, **settings: Any) -> quaver.TuneResult:
    settings.setdefault("eval_func", kl_divergence(TEXTS))
    return quaver.fit(
        decoder(), calib_dataloader=tokens(8), threads=1, workspace=folder, report=False, verbose=0, **settings
    )


def test_the_smallest_model_within_a_divergence_takes_few_evaluations(tmp_path: Path) -> None:
    result = tuned(tmp_path / "run", absolute=0.02, higher_is_better=False, objective="size", timeout=600)
    assert result.met and result.best is not None
    assert len(result.trials) <= 5
    assert result.best.model_size < 0.33 * fp32_size()
    assert result.best.model_size == min(trial.model_size for trial in result.trials if trial.met)
    again = quaver.recover(decoder(), result.history_path, result.best.number)
    assert again.sha256 == result.best.model_hash


def test_the_curve_of_sizes_comes_from_the_run_and_is_monotone(tmp_path: Path) -> None:
    result = tuned(tmp_path / "run", absolute=0.02, higher_is_better=False, objective="size", max_trials=1)
    curve = result.size_curve(9)
    assert len(curve) > 5
    assert [point.bytes for point in curve] == sorted(point.bytes for point in curve)
    assert [point.divergence for point in curve] == sorted((point.divergence for point in curve), reverse=True)
    predicted, measured = result.plot.sizes().data
    assert predicted.name == "predicted" and len(predicted.x) > 5
    assert measured.x[0] == pytest.approx(result.trials[0].model_size / 1e6)


def fp32_size() -> int:
    with opened(decoder(), calibrate=False) as adapter:
        return adapter.assemble(None).size


@pytest.mark.parametrize("limit", [{"max_size": 0.24}, {"max_bits": 7.0}, {"max_size": "110kB"}])
def test_a_budget_is_kept_exactly_and_used(tmp_path: Path, limit: dict[str, Any]) -> None:
    result = tuned(tmp_path / "run", objective="accuracy", higher_is_better=False, **limit)
    assert result.met and result.best is not None
    fp32, size = fp32_size(), result.best.model_size
    most = (
        {"max_size": 0.24 * fp32, "max_bits": 7 / 32 * fp32}[next(iter(limit))] if "kB" not in str(limit) else 110_000
    )
    assert 0.9 * most < size <= most
    assert len(result.trials) == 1


def test_a_resumed_run_measures_no_weight_again(tmp_path: Path) -> None:
    tuned(tmp_path / "run", absolute=0.02, higher_is_better=False, objective="size", max_trials=1)
    before = read_snapshot(tmp_path / "run").notes
    result = tuned(tmp_path / "run2", absolute=0.02, higher_is_better=False, objective="size", max_trials=1)
    after = read_snapshot(result.workspace).notes
    assert before["probe.weight_table"] == after["probe.weight_table"]
    assert len(before["probe.weight_groups"]) == 2 + 7 + 2


def test_metrics_of_language_models_score_the_float_model_as_perfect(tmp_path: Path) -> None:
    model = decoder()
    fp32 = quaver.metrics.kl_divergence(TEXTS, model=model)
    float_model = load_unmodified(model)
    assert all(abs(batch["kl_divergence"]).max() < 1e-6 for batch in fp32(float_model))
    assert all((batch["same_top_token"] == 1).all() for batch in same_top_token(TEXTS, model=model)(float_model))
    score = perplexity(TEXTS[:1])(float_model)["perplexity"]
    scores = np.float64(float_model(TEXTS[0]))[:, :-1]
    chosen = np.take_along_axis(scores, TEXTS[0][:, 1:, None], -1)[..., 0]
    assert np.log(score) == pytest.approx((np.log(np.exp(scores).sum(-1)) - chosen).mean(), rel=1e-5)
    with pytest.raises(SettingsError, match="set `tokens=`"):
        perplexity(TEXTS, tokens="ids")(float_model)


def test_a_budget_of_no_size_is_refused(tmp_path: Path) -> None:
    for wrong in ("130 apples", 12, "0", -1, "5kbit"):
        with pytest.raises(SettingsError, match="`max_size` must be"):
            quaver.Config(objective="accuracy", max_size=wrong)
    with pytest.raises(SettingsError, match="`max_bits` must be"):
        quaver.Config(objective="accuracy", max_bits=33)
    assert quaver.Config(objective="accuracy", max_size="130MB").criterion.target_budget is not None
    assert "at most 130 MB" in str(quaver.Config(objective="accuracy", max_size="130MB").criterion)
    assert "4.5 bits a weight" in str(quaver.Config(objective="accuracy", max_bits=4.5).criterion)
