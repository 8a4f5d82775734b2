"""The error at the outputs sees small parts, small outputs and single samples."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from quaver.engine.inspection.output_metric import OutputMetric

Floats = NDArray[np.float32]
SAMPLES = 16


def noisy(values: Floats, amount: float, seed: int = 1) -> Floats:
    """Values with noise of a share of their standard deviation."""
    rng = np.random.default_rng(seed)
    return (values + amount * values.std() * rng.standard_normal(values.shape)).astype(np.float32)


def yolo(layout: str = "channels") -> list[Floats]:
    """Boxes in pixels and probabilities of 12 classes, of which few fire and three never do, for 300 places."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(SAMPLES):
        boxes = 320 + 100 * rng.standard_normal((1, 4, 300))
        classes = 10 ** rng.uniform(-7, -4, (1, 12, 300))
        for place in rng.integers(0, 300, 6):
            classes[0, rng.integers(0, 9), place] = rng.uniform(0.3, 0.9)
        whole = np.concatenate([boxes, classes], axis=1).astype(np.float32)
        made.append(whole if layout == "channels" else np.ascontiguousarray(whole.transpose(0, 2, 1)))
    return made


def test_boxes_and_classes_of_one_output_are_two_parts() -> None:
    for layout, axis in (("channels", 1), ("rows", 2)):
        boxes, classes = OutputMetric([[array] for array in yolo(layout)]).parts
        assert (boxes.axis, boxes.indices, boxes.kind) == (axis, (0, 1, 2, 3), "values")
        assert (classes.axis, classes.indices, classes.kind) == (axis, tuple(range(4, 16)), "scores")
        assert str(classes) == f"output 0, 4-15 of axis {axis}"


def test_one_output_counts_like_the_same_values_in_two() -> None:
    whole = yolo()
    split = [[array[:, :4], array[:, 4:]] for array in whole]
    changed = [[noisy(boxes, 0.01), noisy(classes, 0.3)] for boxes, classes in split]
    joined = [[np.concatenate(pair, axis=1)] for pair in changed]
    one, two = OutputMetric([[array] for array in whole]), OutputMetric(split)
    assert one.error(joined) == pytest.approx(two.error(changed), rel=1e-6)
    errors = one.by_slice(joined)
    assert errors[0].error < 1e-3 and 0.02 < errors[1].error < 0.5
    assert errors[1].agreement is not None and errors[1].agreement > 0.8 and errors[0].agreement is None


def test_lost_classes_are_seen_beside_boxes() -> None:
    reference = yolo()
    metric = OutputMetric([[array] for array in reference])
    lost = [array.copy() for array in reference]
    for array in lost:
        array[:, 4:] = 0
    assert metric.error([[array] for array in lost]) > 0.3
    assert metric.by_slice([[array] for array in lost])[1].agreement == 0.0


@pytest.mark.parametrize("seed", range(5))
def test_features_of_one_vector_stay_one_part(seed: int) -> None:
    """Weak, dead and scattered features are no quantities of their own."""
    rng = np.random.default_rng(seed)
    features = np.maximum(rng.standard_normal((SAMPLES, 512)) * 10 ** rng.uniform(-1.5, 0, 512), 0)
    features[:, ::17] = 0
    features[:, 5] *= 1e-4
    features[:, 100] *= 1e-3
    features[:, 101:104] = 0
    features[3, 103] = 1e-3  # one sample only
    (part,) = OutputMetric([[features.astype(np.float32)]], [SAMPLES]).parts
    assert part.axis is None and str(part) == "output 0"


def test_two_quantities_of_a_narrow_output_are_two_parts() -> None:
    rng = np.random.default_rng(0)
    both = np.stack([rng.uniform(1, 90, SAMPLES), 0.1 * rng.standard_normal(SAMPLES)], axis=1).astype(np.float32)
    metric = OutputMetric([[both]], [SAMPLES])
    assert [part.indices for part in metric.parts] == [(0,), (1,)]
    changed = both.copy()
    changed[:, 1] = 0
    assert metric.error([[changed]]) > 0.3


def test_a_constant_offset_does_not_hide_an_error() -> None:
    values = np.random.default_rng(0).standard_normal((SAMPLES, 10)).astype(np.float32)
    changed = noisy(values, 0.1)
    plain, raised = OutputMetric([[values]], [SAMPLES]), OutputMetric([[values + 1000]], [SAMPLES])
    assert raised.error([[changed + 1000]]) == pytest.approx(plain.error([[changed]]), rel=1e-3)


def test_the_same_grid_in_all_samples_does_not_hide_an_error() -> None:
    grid = np.linspace(0, 640, 200)[None]
    moved = np.random.default_rng(0).standard_normal((SAMPLES, 200))
    metric = OutputMetric([[grid + moved]], [SAMPLES])
    assert metric.error([[np.repeat(grid, SAMPLES, axis=0)]]) > 0.9


def test_one_large_sample_does_not_hide_the_others() -> None:
    values = np.random.default_rng(0).standard_normal((SAMPLES, 50)).astype(np.float32)
    values[3] *= 10
    metric = OutputMetric([[values]], [SAMPLES])
    changed = values.copy()
    changed[:3] = 0
    assert metric.error([[changed]]) > 0.1


def test_distributions_are_compared_by_roots_and_predictions() -> None:
    logits = 4 * np.random.default_rng(0).standard_normal((SAMPLES, 1, 20))
    odds = np.exp(logits)
    values = (odds / odds.sum(axis=-1, keepdims=True)).astype(np.float32)
    metric = OutputMetric([[values]], [SAMPLES])
    (part,) = metric.parts
    assert (part.kind, part.axis, part.class_axis) == ("distribution", None, 2)
    swapped = values.copy()
    best, second = np.argsort(values, axis=-1)[:4, 0, -1], np.argsort(values, axis=-1)[:4, 0, -2]
    rows = np.arange(4)
    swapped[rows, 0, best], swapped[rows, 0, second] = values[rows, 0, second], values[rows, 0, best]
    (found,) = metric.by_slice([[swapped]])
    assert found.agreement == 0.75 and 0 < found.error < 1
    assert np.isfinite(metric.error([[np.where(values < 0.01, 0, values)]]))  # KL would be infinite


def test_labels_count_by_the_share_that_differs() -> None:
    labels = np.arange(SAMPLES)[:, None].repeat(5, axis=1)
    changed = labels.copy()
    changed[:4] += 1000
    metric = OutputMetric([[labels]], [SAMPLES])
    (found,) = metric.by_slice([[changed]])
    assert metric.error([[changed]]) == 0.25 and found.agreement == 0.75 and found.part.kind == "labels"


def test_samples_of_feeds_and_first_feeds_agree_with_the_whole() -> None:
    """A few feeds give the errors of their samples, so that more can be added one by one."""
    values = np.random.default_rng(0).standard_normal((SAMPLES, 8, 6)).astype(np.float32)
    changed = noisy(values, 0.2)
    metric = OutputMetric([[values[i : i + 4]] for i in range(0, SAMPLES, 4)], [4] * 4)
    feeds = [[changed[i : i + 4]] for i in range(0, SAMPLES, 4)]
    errors = metric.sample_errors(feeds)
    assert errors.shape == (SAMPLES,) and metric.error(feeds) == pytest.approx(errors.mean())
    assert np.allclose(metric.sample_errors(feeds[:2]), errors[:8])
    assert np.allclose(metric.sample_errors(feeds[2:], first=2), errors[8:])
    joined = OutputMetric([[values]], [SAMPLES])
    assert np.allclose(joined.sample_errors([[changed]]), errors)


def test_the_error_grows_with_the_noise() -> None:
    reference = yolo()
    metric = OutputMetric([[array] for array in reference])
    errors = []
    for amount in (0.0, 0.01, 0.03, 0.1, 0.3, 1.0):
        changed = [np.concatenate([a[:, :4], noisy(a[:, 4:], amount)], axis=1) for a in reference]
        errors.append(metric.error([[array] for array in changed]))
    assert errors[0] == 0 and errors == sorted(errors) and len(set(errors)) == 6


@pytest.mark.parametrize(
    "values",
    [
        np.zeros((4, 3), np.float32),
        np.full((4, 3), 7, np.float32),
        np.float32(2.5),
        np.zeros((4, 0), np.float32),
        np.ones(4, np.float32) * 0.5,
        np.array([[1, -np.inf, 2, 5]] * 4, np.float32),
        np.full((4, 3), -3.4e38, np.float32),
        np.array([[np.nan, 1, 2, 3]] * 4, np.float32),
    ],
)
def test_empty_constant_and_infinite_outputs_have_an_error(values: Floats) -> None:
    metric = OutputMetric([[values]], [4])
    assert metric.error([[values]]) == 0
    if values.size and np.isfinite(values).all():
        changed = (values * np.float32(0.5) + np.float32(0.1)).astype(np.float32)
        assert 0 < metric.error([[changed]]) < np.inf
        assert metric.error([[np.full_like(values, np.nan)]]) == np.inf


def test_another_shape_is_completely_wrong() -> None:
    boxes = [np.ones((count, 4), np.float32) * np.arange(4) for count in (5, 3, 7, 5)]
    metric = OutputMetric([[array] for array in boxes])
    assert metric.error([[array] for array in boxes]) == 0
    assert metric.error([[array[:2]] for array in boxes]) == 1
    assert metric.sample_errors([[boxes[0]], [boxes[1][:1]], [boxes[2]], [boxes[3]]]).tolist() == [0, 1, 0, 0]
