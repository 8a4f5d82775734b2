"""Verdicts on models of ONNX Runtime's tool and of quaver: met, not met, inconclusive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import quantizers

import quaver
from quaver import EvaluationError, ModelError, SettingsError, Verdict, metrics
from quaver.demo.data import digits

MODEL = Path(__file__).parents[2] / "data" / "digits_resnet.onnx"


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    return digits()[2:]


@pytest.fixture(scope="module")
def by_ort(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return quantizers.by_ort(MODEL, tmp_path_factory.mktemp("ort") / "int8.onnx", digits()[0][:128])


@pytest.fixture(scope="module")
def ruined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Calibrated on images that are far too dark."""
    return quantizers.by_ort(MODEL, tmp_path_factory.mktemp("ruined") / "int8.onnx", digits()[0][:128] * 0.02)


@pytest.fixture(scope="module")
def by_quaver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    x, _, images, labels = digits()
    result = quaver.fit(
        MODEL,
        calib_dataloader=x[:128],
        eval_func=metrics.top1(images, labels),
        workspace=tmp_path_factory.mktemp("quaver") / "run",
        objective="int8_ops",
        verbose=0,
    )
    assert result.best is not None and result.best.config.int8_ops
    return result.save(tmp_path_factory.mktemp("saved") / "int8.onnx")


@pytest.mark.parametrize("maker", ["by_ort", "by_quaver"])
def test_a_good_model_of_any_maker_meets_a_fair_limit(maker: str, data: Any, request: pytest.FixtureRequest) -> None:
    found = quaver.check(MODEL, request.getfixturevalue(maker), metrics.top1(*data), relative=0.05)
    assert found.verdict is Verdict.MET and found.met
    (limit,) = found.limits
    assert (limit.metric, limit.samples, limit.allowed) == ("top1", 719, 0.05)
    assert limit.interval is not None and limit.interval[0] <= limit.loss <= limit.interval[1] <= 0.05
    assert limit.confidence is not None and limit.confidence > 0.97
    assert found.quantized_size < found.fp32_size


def test_a_model_that_lost_too_much_does_not_meet_it(ruined: Path, data: Any) -> None:
    found = quaver.check(MODEL, ruined, metrics.top1(*data), relative=0.05)
    assert found.verdict is Verdict.NOT_MET
    assert found.limits[0].loss > 0.1
    assert found.limits[0].confidence == pytest.approx(0, abs=1e-3)


def test_a_limit_within_the_interval_is_inconclusive_and_the_score_may_decide_it(by_ort: Path, data: Any) -> None:
    metric = metrics.top1(data[0][:100], data[1][:100])
    found = quaver.check(MODEL, by_ort, metric, relative=0.01)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "inconclusive" in str(found)
    alone = quaver.check(MODEL, by_ort, metric, relative=0.01, confidence=None)
    assert alone.verdict is (Verdict.MET if alone.limits[0].loss <= 0.01 else Verdict.NOT_MET)
    assert alone.limits[0].interval is None and alone.confidence is None


def test_one_number_decides_by_itself(by_ort: Path, data: Any) -> None:
    def accuracy(model: quaver.Model) -> float:
        return float((model(data[0]).argmax(axis=1) == data[1]).mean())

    found = quaver.check(MODEL, by_ort, accuracy, relative=0.05)
    assert found.verdict is Verdict.MET
    assert found.limits[0].interval is None and found.limits[0].samples == 0


def test_without_labels_both_models_are_set_beside_each_other(by_ort: Path, ruined: Path, data: Any) -> None:
    assert quaver.check(MODEL, by_ort, metrics.agreement(data[0]), absolute=0.05).met
    assert quaver.check(MODEL, ruined, metrics.agreement(data[0]), absolute=0.05).verdict is Verdict.NOT_MET


def test_a_slice_decides_where_the_mean_does_not(by_ort: Path, data: Any) -> None:
    images, labels = data

    def right(model: quaver.Model) -> np.ndarray:
        """Of one digit int8 gets none right."""
        found = (model(images).argmax(axis=1) == labels).astype(float)
        return np.where((labels == 3) & (model.size < MODEL.stat().st_size / 2), 0.0, found)

    names = [f"digit {label}" for label in labels]
    assert quaver.check(MODEL, by_ort, right, relative=0.2).met
    found = quaver.check(MODEL, by_ort, right, relative=0.2, slices=names)
    assert found.verdict is Verdict.NOT_MET
    assert [limit.slice for limit in found.limits if limit.verdict is Verdict.NOT_MET] == ["digit 3"]
    assert len(found.limits) == 11


def test_speed_is_a_part_of_the_verdict(by_ort: Path, data: Any) -> None:
    metric = metrics.top1(*data)
    slow = quaver.check(MODEL, by_ort, metric, relative=0.05, faster_than=1e6)
    assert slow.verdict is Verdict.NOT_MET
    assert slow.limits[0].verdict is Verdict.MET
    assert slow.speed is not None and slow.speed.verdict is Verdict.NOT_MET and slow.speed.threads == 1
    assert slow.speed.speedup == pytest.approx(slow.speed.fp32_ms / slow.speed.quantized_ms)
    fast = quaver.check(MODEL, by_ort, metric, relative=0.05, faster_than=1e-6, data=data[0][:4])
    assert fast.met


def test_what_cannot_be_meant_is_refused(by_ort: Path, data: Any, tmp_path: Path) -> None:
    metric = metrics.top1(*data)
    for keywords, message in (
        ({"confidence": 95}, "`confidence` must be between 0.5 and 1"),
        ({"faster_than": 0}, "`faster_than` must be a number above 0"),
        ({"relative": 0.01, "absolute": 0.01}, "one of the two"),
        ({"relativ": 0.01}, "did you mean 'relative'"),
        ({"higher_is_better": False}, "top1 is better when it is higher"),
    ):
        with pytest.raises(SettingsError, match=message):
            quaver.check(MODEL, by_ort, metric, **keywords)
    with pytest.raises(SettingsError, match="eval_func must be a function"):
        quaver.check(MODEL, by_ort, 0.5)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="no model"):
        quaver.check(MODEL, tmp_path / "nothing.onnx", metric)
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(ModelError):
        quaver.check(MODEL, tmp_path / "text.onnx", metric)


def test_scores_of_other_samples_are_an_error(by_ort: Path) -> None:
    counts = iter([10, 11])
    with pytest.raises(EvaluationError, match="11"):
        quaver.check(MODEL, by_ort, lambda model: np.ones(next(counts)))
