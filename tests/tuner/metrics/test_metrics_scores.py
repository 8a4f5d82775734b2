"""Ready-made metrics agree with their definitions, on real sessions of models that hand their input on."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from sklearn.metrics import f1_score, jaccard_score, roc_auc_score, top_k_accuracy_score

from quaver import EvaluationError, SettingsError, metrics
from quaver.adapters import Model, load_unmodified


def passing_on(*shape: int | str | None, outputs: int = 1) -> Model:
    """A model whose outputs are its input."""
    names = [f"y{index}" for index in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], [name]) for name in names],
        "passing_on",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in names],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return load_unmodified(model.SerializeToString(), threads=1)


def scores(metric: metrics.Metric, model: Model) -> Any:
    """All scores of samples, or the one number."""
    found = metric(model)
    if isinstance(found, dict):
        return found[metric.name]
    return np.concatenate([batch[metric.name] for batch in found])


@pytest.fixture
def classes() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(100, 7)).astype(np.float32), rng.integers(0, 7, 100)


def test_top1_and_top_k_are_those_of_scikit_learn(classes: Any) -> None:
    outputs, labels = classes
    model = passing_on("n", 7)
    assert scores(metrics.top1(outputs, labels), model).mean() == (outputs.argmax(axis=1) == labels).mean()
    for k in (1, 3, 5):
        expected = top_k_accuracy_score(labels, outputs, k=k, labels=range(7))
        assert scores(metrics.top_k(outputs, labels, k=k), model).mean() == pytest.approx(expected)
    assert metrics.top_k(outputs, labels).name == "top5"


def test_of_equal_outputs_the_first_counts_as_by_argmax() -> None:
    outputs = np.zeros((3, 4), np.float32)
    model = passing_on("n", 4)
    assert list(scores(metrics.top1(outputs, [0, 1, 3]), model)) == [1, 0, 0]
    assert list(scores(metrics.top_k(outputs, [0, 1, 3], k=2), model)) == [1, 1, 0]


@pytest.mark.parametrize("average", ["macro", "micro"])
def test_f1_is_that_of_scikit_learn(classes: Any, average: str) -> None:
    outputs, labels = classes
    found = scores(metrics.f1(outputs, labels, average=average), passing_on("n", 7))
    assert found == pytest.approx(f1_score(labels, outputs.argmax(axis=1), average=average))


def test_f1_of_two_classes_and_of_several_labels_at_once() -> None:
    rng = np.random.default_rng(1)
    outputs, labels = rng.random((50, 1)).astype(np.float32), rng.integers(0, 2, 50)
    found = scores(metrics.f1(outputs, labels, average="binary"), passing_on("n", 1))
    assert found == pytest.approx(f1_score(labels, outputs[:, 0] > 0.5))
    outputs, labels = rng.random((50, 4)).astype(np.float32), rng.integers(0, 2, (50, 4))
    found = scores(metrics.f1(outputs, labels), passing_on("n", 4))
    assert found == pytest.approx(f1_score(labels, outputs > 0.5, average="macro"))


def test_auc_is_that_of_scikit_learn_with_ties_too() -> None:
    rng = np.random.default_rng(2)
    outputs = np.round(rng.random((200, 2)), 1).astype(np.float32)
    labels = rng.integers(0, 2, 200)
    found = scores(metrics.auc(outputs, labels), passing_on("n", 2))
    assert found == pytest.approx(roc_auc_score(labels, outputs[:, 1]))
    with pytest.raises(EvaluationError, match="labels of 0 and 1, and at least one of each"):
        scores(metrics.auc(outputs, np.ones(200)), passing_on("n", 2))


def test_miou_of_the_set_and_of_images_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(3)
    outputs = rng.random((40, 3, 5, 6)).astype(np.float32)
    labels = rng.integers(0, 3, (40, 5, 6))
    model, said = passing_on("n", 3, 5, 6), outputs.argmax(axis=1)
    found = scores(metrics.miou(outputs, labels), model)
    assert found == pytest.approx(jaccard_score(labels.ravel(), said.ravel(), average="macro"))
    each = scores(metrics.miou(outputs, labels, per="image"), model)
    expected = [
        jaccard_score(one.ravel(), other.ravel(), average="macro") for one, other in zip(labels, said, strict=True)
    ]
    assert each == pytest.approx(expected)


def test_miou_leaves_out_what_is_to_be_ignored_and_takes_masks() -> None:
    labels = np.array([[[0, 1, 255]]])
    outputs = np.array([[[[0.1, 0.9, 0.9]]]], np.float32)
    assert scores(metrics.miou(outputs, labels, ignore=255), passing_on("n", 1, 1, 3)) == 1.0


def test_ctc_reads_repeats_once_and_blanks_never() -> None:
    # - a a - a b b -  ->  a a b
    steps = np.array([[0, 1, 1, 0, 1, 2, 2, 0], [0, 0, 0, 0, 0, 0, 0, 0], [3, 3, 0, 3, 0, 0, 0, 1]])
    outputs = np.eye(4, dtype=np.float32)[steps]
    model = passing_on("n", 8, 4)
    texts = ["aab", "", "ca"]
    assert list(scores(metrics.ctc_exact(outputs, texts, alphabet="abc"), model)) == [1, 1, 0]
    numbers = np.array([[1, 1, 2], [-1, -1, -1], [3, 3, 1]])
    assert list(scores(metrics.ctc_exact(outputs, numbers), model)) == [1, 1, 1]
    errors = metrics.cer(outputs, ["abb", "x", "cca"], alphabet="abc")
    assert list(scores(errors, model)) == pytest.approx([1 / 3, 1, 0])
    assert errors.higher_is_better is False
    last = np.roll(outputs, -1, axis=2)  # the blank is the last class
    assert list(scores(metrics.ctc_exact(last, texts, alphabet="abc", blank=3), model)) == [1, 1, 0]
    with pytest.raises(EvaluationError, match="`alphabet=` must give"):
        scores(metrics.ctc_exact(outputs, texts), model)


def test_recall_at_k_finds_what_belongs_together() -> None:
    points = np.array([[1, 0], [1, 0.1], [0, 1], [0.1, 1], [1, 0.05]], np.float32)
    model = passing_on("n", 2)
    assert list(scores(metrics.recall_at_k(points, [0, 0, 1, 1, 1]), model)) == [0, 0, 1, 1, 0]
    assert list(scores(metrics.recall_at_k(points, [0, 0, 1, 1, 1], k=2), model)) == [1, 1, 1, 1, 0]
    gallery = (np.array([[1, 0], [0, 1]], np.float32), [0, 1])
    assert list(scores(metrics.recall_at_k(points, [0, 0, 1, 0, 0], gallery=gallery), model)) == [1, 1, 1, 0, 1]
    with pytest.raises(EvaluationError, match="only 5 samples to search"):
        scores(metrics.recall_at_k(points, [0, 0, 1, 1, 1], k=5), model)


def test_a_set_may_be_an_array_a_dict_batches_or_pairs(classes: Any) -> None:
    outputs, labels = classes
    model = passing_on("n", 7)
    batches = [outputs[first : first + 30] for first in range(0, 100, 30)]
    pairs = [(outputs[first : first + 30], labels[first : first + 30]) for first in range(0, 100, 30)]
    expected = scores(metrics.top1(outputs, labels), model)
    for metric in (
        metrics.top1({"x": outputs, "other": labels}, labels),
        metrics.top1(batches, labels),
        metrics.top1(pairs),
        metrics.top1(iter(pairs)),
    ):
        for _ in range(2):  # also what can be gone through only once
            assert np.array_equal(scores(metric, model), expected)
        assert np.array_equal(scores(pickle.loads(pickle.dumps(metric)), model), expected)


def test_a_model_that_fixes_its_batch_sees_every_sample(classes: Any) -> None:
    outputs, labels = classes
    expected = scores(metrics.top1(outputs, labels), passing_on("n", 7))
    fixed = passing_on(16, 7)
    pairs = [(outputs[first : first + 30], labels[first : first + 30]) for first in range(0, 100, 30)]
    assert np.array_equal(scores(metrics.top1(outputs, labels), fixed), expected)
    assert np.array_equal(scores(metrics.top1(pairs), fixed), expected)


def test_another_output_may_be_looked_at(classes: Any) -> None:
    model = passing_on("n", 7, outputs=2)
    assert scores(metrics.top1(*classes, output=1), model).shape == (100,)
    with pytest.raises(EvaluationError, match="scores output 2, but the model has only 2"):
        scores(metrics.top1(*classes, output=2), model)


def test_what_does_not_fit_is_named(classes: Any) -> None:
    outputs, labels = classes
    model = passing_on("n", 7)
    with pytest.raises(EvaluationError, match="there are only 90 labels, but more samples: sample 95"):
        scores(metrics.top1(outputs, labels[:90]), model)
    with pytest.raises(EvaluationError, match="100 samples but 101 labels"):
        scores(metrics.top1(outputs, [*labels, 0]), model)
    with pytest.raises(EvaluationError, match="gives no score for each"):
        scores(metrics.top1(np.zeros((4, 3, 7), np.float32), np.zeros(4)), passing_on("n", 3, 7))
    with pytest.raises(SettingsError, match="need `labels`"):
        metrics.top1(outputs)
    with pytest.raises(EvaluationError, match="batch 0 of the metric must be a pair"):
        scores(metrics.top1([outputs]), model)
    with pytest.raises(EvaluationError, match="has 100 samples and 3 labels"):
        scores(metrics.top1([(outputs, labels[:3])]), model)
    with pytest.raises(
        SettingsError, match=r"must be an array, a dict of arrays or an iterable of batches, not 'x\.npz'"
    ):
        metrics.top1("x.npz", labels)
    for wrong in (
        lambda: metrics.top_k(outputs, labels, k=0),
        lambda: metrics.f1(outputs, labels, average="most"),
        lambda: metrics.miou(outputs, labels, per="pixel"),
    ):
        with pytest.raises(SettingsError, match="must be"):
            wrong()


def test_metrics_are_made_by_name(classes: Any) -> None:
    outputs, labels = classes
    assert [metrics.make_metric(name, outputs, labels).name for name in ("top1", "top5", "f1", "recall@1")] == [
        "top1",
        "top5",
        "f1",
        "recall@1",
    ]
    assert metrics.make_metric("agreement", outputs).name == "agreement_top1"
    with pytest.raises(SettingsError, match="unknown metric 'topp1'; did you mean 'top1'"):
        metrics.make_metric("topp1", outputs)
    with pytest.raises(SettingsError, match="the metric 'f1' needs labels"):
        metrics.make_metric("f1", outputs)
