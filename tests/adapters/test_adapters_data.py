"""Calibration data in every supported form, and the errors if it does not fit."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quaver.adapters.data import BATCH, InputSpec, count_samples, feeds, has_open_batch, head, match_inputs, split, tail
from quaver.errors import CalibrationError
from quaver.types import Feed

FLOAT = np.dtype(np.float32)
ONE = (InputSpec("x", FLOAT, (None, 3, 4)),)
TWO = (InputSpec("x", FLOAT, (None, 3, 4)), InputSpec("ids", np.dtype(np.int64), (None, 5)))
FIXED = (InputSpec("x", FLOAT, (2, 3, 4)),)

X = np.arange(6 * 12, dtype=np.float32).reshape(6, 3, 4)
IDS = np.arange(6 * 5).reshape(6, 5)
LABELS = np.arange(6)


class Tensor:
    """What torch and TensorFlow have in common."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def numpy(self) -> Any:
        return self.values


class WithGradient(Tensor):
    """A torch tensor that refuses `.numpy()` until it is detached."""

    def __init__(self, values: Any, detached: bool = False) -> None:
        super().__init__(values)
        self.detached = detached

    def detach(self) -> WithGradient:
        return WithGradient(self.values, detached=True)

    def numpy(self) -> Any:
        assert self.detached
        return self.values


class NDArray:
    """What MXNet has."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def asnumpy(self) -> Any:
        return self.values


class DataBatch:
    """A batch that keeps inputs and labels apart, as iterators of MXNet give it."""

    def __init__(self, data: list[Any], label: list[Any]) -> None:
        self.data, self.label = data, label


class Rewound:
    """An iterator that stands at its end until it is reset."""

    def __init__(self, batches: list[Any]) -> None:
        self._batches, self._at = batches, len(batches)

    def reset(self) -> None:
        self._at = 0

    def __iter__(self) -> Rewound:
        return self

    def __next__(self) -> Any:
        if self._at >= len(self._batches):
            raise StopIteration
        self._at += 1
        return self._batches[self._at - 1]


def pairs(make: Callable[[int], Any]) -> list[Any]:
    return [make(start) for start in (0, 2, 4)]


def cut(start: int) -> tuple[Any, Any, Any]:
    return X[start : start + 2], IDS[start : start + 2], LABELS[start : start + 2]


ONE_INPUT: dict[str, Callable[[], Any]] = {
    "arrays with asnumpy": lambda: pairs(lambda i: NDArray(cut(i)[0])),
    "lists of arrays with asnumpy and labels": lambda: pairs(lambda i: [NDArray(cut(i)[0]), NDArray(cut(i)[2])]),
    "batches with data and label": lambda: pairs(lambda i: DataBatch([NDArray(cut(i)[0])], [NDArray(cut(i)[2])])),
    "an iterator that can be reset": lambda: Rewound(pairs(lambda i: cut(i)[0])),
    "arrays": lambda: pairs(lambda i: cut(i)[0]),
    "tuples of one": lambda: pairs(lambda i: (cut(i)[0],)),
    "lists of one": lambda: pairs(lambda i: [cut(i)[0]]),
    "dicts": lambda: pairs(lambda i: {"x": cut(i)[0]}),
    "dicts with more": lambda: pairs(lambda i: {"x": cut(i)[0], "label": cut(i)[2]}),
    "(input, label)": lambda: pairs(lambda i: (cut(i)[0], cut(i)[2])),
    "[input, label]": lambda: pairs(lambda i: [cut(i)[0], cut(i)[2]]),
    "((input,), label)": lambda: pairs(lambda i: ((cut(i)[0],), cut(i)[2])),
    "(dict, label)": lambda: pairs(lambda i: ({"x": cut(i)[0]}, cut(i)[2])),
    "a generator": lambda: (batch for batch in pairs(lambda i: cut(i)[0])),
    "objects with .numpy()": lambda: pairs(lambda i: (Tensor(cut(i)[0]), Tensor(cut(i)[2]))),
    "tensors with gradients": lambda: pairs(lambda i: WithGradient(cut(i)[0])),
    "a whole array": lambda: X,
    "a whole tensor": lambda: Tensor(X),
    "a whole dict": lambda: {"x": X, "label": LABELS},
    "samples without a batch axis": lambda: list(X),
    "samples with labels": lambda: list(zip(X, LABELS, strict=True)),
    "plain lists": lambda: pairs(lambda i: cut(i)[0].tolist()),
    "plain lists with labels": lambda: pairs(lambda i: (cut(i)[0].tolist(), cut(i)[2].tolist())),
    "float64": lambda: X.astype(np.float64),
    "float16": lambda: [X.astype(np.float16)],
}
TWO_INPUTS: dict[str, Callable[[], Any]] = {
    "tuples": lambda: pairs(lambda i: cut(i)[:2]),
    "lists": lambda: pairs(lambda i: list(cut(i)[:2])),
    "dicts": lambda: pairs(lambda i: {"ids": cut(i)[1], "x": cut(i)[0]}),
    "(x, ids, label)": lambda: pairs(cut),
    "((x, ids), label)": lambda: pairs(lambda i: (cut(i)[:2], cut(i)[2])),
    "([x, ids], label)": lambda: pairs(lambda i: (list(cut(i)[:2]), cut(i)[2])),
    "(dict, label)": lambda: pairs(lambda i: ({"x": cut(i)[0], "ids": cut(i)[1]}, cut(i)[2])),
    "a whole dict": lambda: {"x": X, "ids": IDS},
    "int32": lambda: {"x": X, "ids": IDS.astype(np.int32)},
    "one by one": lambda: list(zip(X, IDS, strict=True)),
}


def joined(found: list[Feed], name: str) -> Any:
    return np.concatenate([feed[name] for feed in found])


@pytest.mark.parametrize("form", ONE_INPUT)
def test_one_input_can_come_as(form: str) -> None:
    found = list(feeds(ONE_INPUT[form](), ONE))
    assert all(list(feed) == ["x"] and feed["x"].dtype == np.float32 for feed in found)
    assert np.array_equal(joined(found, "x"), X)


@pytest.mark.parametrize("form", TWO_INPUTS)
def test_two_inputs_can_come_as(form: str) -> None:
    found = list(feeds(TWO_INPUTS[form](), TWO))
    assert np.array_equal(joined(found, "x"), X)
    assert np.array_equal(joined(found, "ids"), IDS)
    assert all(feed["ids"].dtype == np.int64 for feed in found)


def test_a_saved_npz_is_a_whole_set(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=X, ids=IDS)
    with np.load(tmp_path / "data.npz") as data:
        found = list(feeds(data, TWO))
    assert np.array_equal(joined(found, "x"), X)
    assert np.array_equal(joined(found, "ids"), IDS)


def test_strings_are_taken_for_an_input_of_strings() -> None:
    words = (InputSpec("words", np.dtype(object), (None,)),)
    (feed,) = feeds([np.array(["a", "bc"])], words)
    assert feed["words"].dtype == object and feed["words"].tolist() == ["a", "bc"]


def test_a_whole_set_is_split_into_batches() -> None:
    many = np.zeros((2 * BATCH + 3, 3, 4), np.float32)
    assert [count_samples(feed) for feed in feeds(many, ONE)] == [BATCH, BATCH, 3]


def test_a_model_with_a_fixed_batch_gets_whole_batches() -> None:
    assert [count_samples(feed) for feed in feeds(X[:5], FIXED)] == [2, 2]
    assert [count_samples(feed) for feed in feeds({"x": X}, FIXED)] == [2, 2, 2]
    assert not has_open_batch(FIXED) and has_open_batch(TWO)


@pytest.mark.parametrize(("limit", "sizes"), [(1, [1]), (4, [4]), (5, [4, 1]), (8, [4, 4]), (99, [4, 4, 4])])
def test_the_limit_may_cut_inside_a_batch(limit: int, sizes: list[int]) -> None:
    batches = [{"x": X[:4] + i, "ids": IDS[:4] + i} for i in range(3)]
    found = list(feeds(batches, TWO, limit))
    assert [count_samples(feed) for feed in found] == sizes
    assert all(len(feed["ids"]) == len(feed["x"]) for feed in found)


@pytest.mark.parametrize(("limit", "count"), [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2)])
def test_the_limit_does_not_cut_a_fixed_batch(limit: int, count: int) -> None:
    assert [count_samples(feed) for feed in feeds(X, FIXED, limit)] == [2] * count


def test_the_limit_does_not_cut_inputs_without_a_batch_axis() -> None:
    inputs = (*ONE, InputSpec("scale", FLOAT, ()), InputSpec("table", FLOAT, (None, 2)))
    table = np.ones((9, 2), np.float32)
    (feed,) = feeds([{"x": X, "scale": np.float32(2), "table": table}], inputs, limit=2)
    assert {name: array.shape for name, array in feed.items()} == {"x": (2, 3, 4), "scale": (), "table": (9, 2)}


def test_no_more_is_taken_from_a_generator_than_needed() -> None:
    asked = []

    def loader() -> Any:
        for i in range(10):
            asked.append(i)
            yield X[:2]

    assert len(list(feeds(loader(), ONE, limit=4))) == 2
    assert asked == [0, 1]


def test_empty_data_gives_no_feeds() -> None:
    used = iter([X])
    assert len(list(feeds(used, ONE))) == 1
    assert list(feeds(used, ONE)) == list(feeds([], ONE)) == list(feeds(X[:0], ONE)) == []
    assert [count_samples(feed) for feed in feeds([X[:0], X[:1]], ONE)] == [1]


def test_a_feed_is_split_into_parts_that_make_the_whole() -> None:
    feed = {"x": X, "scale": np.float32(2) * np.ones((), np.float32), "table": np.ones((9, 2), np.float32)}
    parts = list(split(feed, 4))
    assert [count_samples(part) for part in parts] == [4, 2]
    assert np.array_equal(joined(parts, "x"), X)
    assert all(part["table"].shape == (9, 2) and part["scale"].shape == () for part in parts)
    assert np.array_equal(np.concatenate([head(feed, 1)["x"], tail(feed, 1)["x"]]), X)


@pytest.mark.parametrize(
    ("batch", "inputs", "message"),
    [
        ({"y": X}, ONE, "lacks the model input 'x'; it has 'y'. The inputs are: 'x' (float32, [?, 3, 4])"),
        ({"x": X}, TWO, "lacks the model input 'ids'. The inputs are: 'x' (float32, [?, 3, 4]), 'ids' (int64"),
        (X, TWO, "has 1 array(s), but the model takes 2 inputs: 'x'"),
        ((X, IDS, LABELS, LABELS), TWO, "has 4 array(s), but the model takes 2 inputs"),
        ((), ONE, "has 0 array(s), but the model takes 1 inputs"),
        (X[:, :2], ONE, "has shape [6, 2, 4] for input 'x' (float32, [?, 3, 4])"),
        (X[None], ONE, "has shape [1, 6, 3, 4] for input 'x'"),
        (X[:3], FIXED, "has shape [3, 3, 4] for input 'x' (float32, [2, 3, 4])"),
        (X.astype(np.uint8), ONE, "gives uint8 for input 'x' (float32, [?, 3, 4]): convert it to float32"),
        ({"x": X, "ids": IDS.astype(np.float32)}, TWO, "gives float32 for input 'ids' (int64, [?, 5]): convert it"),
        ("x.npy", ONE, "is a str; an array, a tuple, a list or a dict is needed"),
        (None, ONE, "is a NoneType; an array, a tuple, a list or a dict is needed"),
    ],
)
def test_a_batch_that_does_not_fit_is_described(batch: Any, inputs: tuple[InputSpec, ...], message: str) -> None:
    with pytest.raises(CalibrationError, match=re.escape(f"calibration batch 1 {message}")):
        list(feeds([match_inputs(cut(0)[: len(inputs)], inputs, "first"), batch], inputs))


IMAGES = (InputSpec("image", FLOAT, (None, 3, None, None)),)
WORDS = (InputSpec("ids", np.dtype(np.int64), (None, None)),)
SENTENCES = np.zeros((8, 128), np.int64)

# A pair that can be nothing but (input, label), for a model that takes one input.
LABELLED: dict[str, tuple[Any, Any, tuple[InputSpec, ...]]] = {
    "classes": (X, LABELS, ONE),
    "classes of one sample": (X[0], 3, ONE),
    "one-hot": (X, np.eye(6, 10, dtype=np.float32), ONE),
    "real targets": (X, np.ones(6, np.float32), ONE),
    "a column of real targets": (X, np.ones((6, 1, 1), np.float32), ONE),
    "a mask of another type": (X, np.ones((6, 3, 4), bool), ONE),
    "masks of an image": (np.ones((2, 3, 8, 8), np.float32), np.ones((2, 1, 8, 8), np.float32), IMAGES),
    "classes of a text": (SENTENCES, np.ones(8, np.int64), WORDS),
    "a column of classes of a text": (SENTENCES, np.ones((8, 1), np.int64), WORDS),
    "real targets of a text": (SENTENCES, np.ones((8, 128), np.float32), WORDS),
    "boxes": (np.ones((2, 3, 8, 8), np.float32), [{"boxes": np.ones((5, 4))}] * 2, IMAGES),
    "a name": (X, "cat", ONE),
    "lists of different lengths": (X, [[1.0], [1.0, 2.0]], ONE),
}


@pytest.mark.parametrize("what", LABELLED)
@pytest.mark.parametrize("kind", [tuple, list])
@pytest.mark.parametrize("tensor", [False, True], ids=["arrays", "tensors"])
def test_values_that_cannot_be_inputs_are_labels(what: str, kind: Callable[[Any], Any], tensor: bool) -> None:
    first, label, inputs = LABELLED[what]
    wrapped = Tensor(label) if tensor and isinstance(label, np.ndarray) else label
    (feed,) = feeds([kind([Tensor(first) if tensor else first, wrapped])], inputs)
    (found,) = feed.values()
    assert np.array_equal(found, first if first.ndim == len(inputs[0].shape or ()) else first[None])


def test_dropped_labels_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "quaver")
    list(feeds([X, X], ONE))
    list(feeds([{"x": X}, [X]], ONE))
    assert not caplog.messages
    list(feeds([(X, LABELS)] * 5, ONE))
    assert caplog.messages == ["values after the inputs of each calibration batch are treated as labels and ignored"]


# Two samples, or (input, label)? By half of the readings half of the data would be lost.
AMBIGUOUS: dict[str, tuple[Any, tuple[InputSpec, ...]]] = {
    "a list of two samples": ([X[0], X[1]], ONE),
    "a tuple of two samples": ((X[0], X[1]), ONE),
    "a list of two batches": ([X[:3], X[3:]], ONE),
    "batches of different length": ([X[:4], X[4:]], ONE),
    "an input and its reconstruction": ((X, X.astype(np.float64)), ONE),
    "two tensors": ([Tensor(X), Tensor(X)], ONE),
    "two plain lists": ((X.tolist(), X.tolist()), ONE),
    "images of different sizes": ([np.ones((3, 8, 8), np.float32), np.ones((3, 6, 9), np.float32)], IMAGES),
    "a text and its next words": ((SENTENCES, SENTENCES.astype(np.int32)), WORDS),
    "samples with labels that were not put together": ([(X[0], 1), (X[1], 2)], ONE),
    "samples of two inputs": ([(X[0], IDS[0]), (X[1], IDS[1])], TWO),
    "dicts": ([{"x": X[0]}, {"x": X[1]}], ONE),
    "dicts with labels": ([({"x": X[0]}, 1), ({"x": X[1]}, 2)], ONE),
}


@pytest.mark.parametrize("what", AMBIGUOUS)
def test_possible_pairs_of_samples_are_refused_with_both_readings(what: str) -> None:
    batch, inputs = AMBIGUOUS[what]
    with pytest.raises(
        CalibrationError, match=r"calibration batch 0 is a (list|tuple) of 2 .*\(input, label\).*two samples"
    ):
        list(feeds([batch], inputs))


def test_more_than_two_samples_cannot_be_labels() -> None:
    with pytest.raises(CalibrationError, match=r"is a list of 3 arrays .* for input 'x'.*put them together"):
        list(feeds([list(X[:3])], ONE))


def test_single_samples_are_all_used() -> None:
    for data in ([X[0], X[1]], (X[:1], X[1:2]), iter([X[0], X[1]])):
        assert np.array_equal(joined(list(feeds(data, ONE)), "x"), X[:2])


def test_targets_in_a_dict_or_a_tuple_are_dropped() -> None:
    for batch in (({"x": X}, {"label": LABELS}), ((X,), (LABELS, X)), ({"x": X}, LABELS, np.ones(6))):
        (feed,) = feeds([batch], ONE)
        assert np.array_equal(feed["x"], X)


def test_arrays_of_a_call_are_all_inputs() -> None:
    assert list(match_inputs((X, LABELS), ONE, "the model call")) == ["x"]
    with pytest.raises(CalibrationError, match=r"the model call has 2 array\(s\), but the model takes 1 inputs"):
        match_inputs((X, LABELS), ONE, "the model call", labels=False)


@pytest.mark.parametrize("data", ["data.npz", b"bytes", 7, None])
def test_values_that_are_no_data_are_refused(data: Any) -> None:
    with pytest.raises(CalibrationError, match=f"must be an iterable of batches.*not {type(data).__name__}"):
        list(feeds(data, ONE))


def test_an_input_of_any_shape_takes_any_array() -> None:
    anything = (InputSpec("x", FLOAT, None),)
    assert str(anything[0]) == "'x' (float32, any shape)"
    assert [feed["x"].shape for feed in feeds([X, X[0], np.float32(3)], anything)] == [(6, 3, 4), (3, 4), ()]


def test_an_array_of_batches_is_refused_with_what_to_pass() -> None:
    named = (InputSpec("x", FLOAT, (None, 3, 4), ("batch", "", "")),)
    stacked = np.stack([X, X])
    message = "shape [2, 6, 3, 4] for input 'x' (float32, [batch, 3, 4]): an array is the whole set"
    with pytest.raises(CalibrationError, match=re.escape(message) + r".* pass list\(array\)"):
        list(feeds(stacked, named))
    with pytest.raises(CalibrationError, match=r"pass \[dict\(zip\(data, rows\)\) for rows in zip"):
        list(feeds({"x": stacked, "ids": np.stack([IDS, IDS])}, TWO))
    assert [feed["x"].shape for feed in feeds(list(stacked), named)] == [(6, 3, 4), (6, 3, 4)]


def test_an_array_that_is_one_sample_is_taken_as_one_whatever_its_length() -> None:
    long = (InputSpec("x", FLOAT, (None, 100, 4)),)
    assert [feed["x"].shape for feed in feeds(np.zeros((100, 4), np.float32), long)] == [(1, 100, 4)]
    assert [feed["x"].shape for feed in feeds({"x": np.zeros((100, 4), np.float32)}, long)] == [(1, 100, 4)]
