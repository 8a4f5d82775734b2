"""The user's calibration data, in any form, as a stream of {input name: array} feeds that fit the model."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quaver.adapters.decoder_inputs import completed
from quaver.errors import CalibrationError
from quaver.types import Array, CalibrationData, Feed, PlainMapping

log = logging.getLogger(__name__)


# Samples of a batch cut from a whole array, where the model leaves the batch open. Judgement: results do not depend on
# it, because samples are split and joined again.
BATCH = 32


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input of a model.

    Attributes:
        name: its name.
        dtype: the type of its values.
        shape: its shape, with None where the model leaves a size open; None for any rank.
        dim_names: the names of its dimensions, as far as the model has them; for messages only.
        follows: what it holds if it follows from the token numbers of a decoder; data may leave it out.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...] | None
    dim_names: tuple[str, ...] = field(default=(), compare=False)
    follows: str = field(default="", compare=False)

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.name!r} ({self.dtype}, any shape)"
        names = (*self.dim_names, *[""] * len(self.shape))
        dims = [(name or "?") if dim is None else str(dim) for dim, name in zip(self.shape, names, strict=False)]
        return f"{self.name!r} ({self.dtype}, [{', '.join(dims)}])"


@dataclass(slots=True)
class RemainingData:
    """Tells whether `feeds` left data over."""

    more: bool = False


def feeds(
    data: CalibrationData, inputs: Sequence[InputSpec], limit: int | None = None, remaining: RemainingData | None = None
) -> Iterator[Feed]:
    """Turn `data` into feeds, at most `limit` samples in all. Samples are counted along the first axis.

    A model that fixes its batch gets only whole batches, and at least one.

    `data` is an iterable of batches, one array or dict of arrays that holds the whole set, a function that returns any
    of these, or an object with a length and items by number. It is iterated once; an iterator with `reset()` is rewound
    first. Objects with `.numpy()` or `.asnumpy()`, and numbers in nested lists, count as arrays. A batch is one of:

    - `x`, `(x,)`, `[x]`: the only input. One sample may come without its batch axis.
    - `{"x": x, "ids": ids}`: inputs by name. Names that the model does not have are dropped.
    - `(x, ids)`, `[x, ids]`: all inputs, by position.
    - `(x, label)`, `(x, ids, label)`, also as lists: all inputs and one more value, which is dropped.
    - `((x, ids), label, ...)`, `({"x": x}, label, ...)`: the inputs together. The values after them are dropped.
    - an object with the lists `data` and `label`: the inputs are its data.

    `[x1, x2]`, `[(x1, y1), (x2, y2)]` and `[{"x": x1}, {"x": x2}]`, where the second could be an input as well, are
    refused: they may be samples that were not joined, of which all but the first would be lost. A value could be an
    input if it has the input's type and rank and a shape that the model takes, unless it is one number for each sample.

    Args:
        data: calibration data.
        inputs: inputs of the model.
        limit: largest number of samples; None for all.
        remaining: gets `more` set if the limit left data over. It stays unset for data of unknown length, which is not
            asked for another batch.
    """
    total, remaining = 0, RemainingData() if remaining is None else remaining
    for index, batch in enumerate(batches_of(data, inputs)):
        where = f"calibration batch {index}"
        if index == 0 and _is_group(batch) and len(batch) > 1 and _without_label(batch, inputs, where) is not batch:
            log.info("values after the inputs of each calibration batch are treated as labels and ignored")
        feed = match_inputs(batch, inputs, where)
        size = count_samples(feed)
        if limit is not None and total + size > limit:
            remaining.more = True
            if has_open_batch(inputs):
                feed, size = head(feed, limit - total), limit - total
            elif total:
                return
        if size:
            yield feed
        total += size
        if limit is not None and total >= limit:
            remaining.more = remaining.more or index + 1 < _count(data, inputs)
            return


def count_samples(feed: Feed) -> int:
    """Return the number of samples in a feed."""
    first = next(iter(feed.values()))
    return first.shape[0] if first.ndim else 1


def is_finite(feed: Feed) -> bool:
    """Return whether a feed holds neither NaN nor infinity."""
    return all(array.dtype.kind != "f" or bool(np.isfinite(array).all()) for array in feed.values())


def has_open_batch(inputs: Sequence[InputSpec]) -> bool:
    """Return True if a model takes batches of any size."""
    return all(not spec.shape or spec.shape[0] is None for spec in inputs)


def head(feed: Feed, count: int) -> Feed:
    """Return the first `count` samples of a feed. Inputs without that batch axis stay whole."""
    return next(split(feed, count))


def tail(feed: Feed, start: int) -> Feed:
    """Return the samples of a feed from `start` on. Inputs without that batch axis stay whole."""
    total = count_samples(feed)
    return {name: array[start:] if array.ndim and array.shape[0] == total else array for name, array in feed.items()}


def split(feed: Feed, size: int) -> Iterator[Feed]:
    """Cut a feed into feeds of at most `size` samples. Inputs without that batch axis are repeated."""
    total = count_samples(feed)
    if total <= size:
        yield feed
        return
    for start in range(0, total, size):
        yield {
            name: array[start : start + size] if array.ndim and array.shape[0] == total else array
            for name, array in feed.items()
        }


def match_inputs(batch: Any, inputs: Sequence[InputSpec], where: str, labels: bool = True) -> Feed:
    """Return one batch in any of the accepted forms by input name, checked against the model's inputs.

    Args:
        batch: the batch.
        inputs: inputs of the model.
        where: names the batch in error messages.
        labels: allow a label after the inputs.
    """
    named = _by_name(_without_label(batch, inputs, where) if labels else batch, inputs, where)
    return {spec.name: _fit(named[spec.name], spec, where) for spec in inputs}


def batches_of(data: CalibrationData, inputs: Sequence[InputSpec]) -> Iterator[Any]:
    """Yield the batches of data in any form. An array, or a dict of arrays, is cut into batches."""
    whole = call_if_function(data)
    if hasattr(whole, "files") and isinstance(whole, Mapping):  # an open .npz
        whole = {name: whole[name] for name in whole}
    if isinstance(whole, Mapping):
        arrays = {name: _array(value) for name, value in whole.items()}
        yield from [arrays] if _is_one_sample(arrays, inputs) else _cut(arrays, inputs)
    elif _is_array(whole):
        own = [spec.name for spec in inputs if not spec.follows]
        name = own[0] if len(own) == 1 else ""
        arrays = {name: _array(whole)}
        yield from [arrays[name]] if _is_one_sample(arrays, inputs) else (part[name] for part in _cut(arrays, inputs))
    elif hasattr(whole, "__getitem__") and hasattr(whole, "__len__") and not hasattr(whole, "__iter__"):
        yield from (whole[index] for index in range(len(whole)))
    elif isinstance(whole, str | bytes) or not isinstance(whole, Iterable):
        raise CalibrationError(
            f"calib_dataloader must be an iterable of batches, an array or a dict of arrays, not {type(data).__name__}"
        )
    else:
        if callable(reset := getattr(whole, "reset", None)):
            reset()
        yield from map(_unpacked, whole)


def _is_one_sample(whole: Feed, inputs: Sequence[InputSpec]) -> bool:
    """Return True if arrays are one sample without its batch axis, and False if they are the whole set.

    Raises:
        CalibrationError: each array holds batches, along an axis of its own in front.
    """
    shapes = [(spec, whole[spec.name].shape) for spec in inputs if spec.name in whole and spec.shape is not None]
    for spec, shape in shapes:
        assert spec.shape is not None
        if len(shape) == len(spec.shape) + 1 and _shape_fits(shape[1:], spec.shape):
            rows = "list(array)" if len(inputs) == 1 else "[dict(zip(data, rows)) for rows in zip(*data.values())]"
            raise CalibrationError(
                f"calib_dataloader has an array of shape {list(shape)} for input {spec}: an array is the whole set, a "
                f"sample in each row. If its rows are batches, pass {rows}"
            )
    return bool(shapes) and all(
        spec.shape is not None and len(shape) == len(spec.shape) - 1 and _shape_fits(shape, spec.shape[1:])
        for spec, shape in shapes
    )


def _unpacked(batch: Any) -> Any:
    """Return the inputs of a batch that has them in `data` and its labels in `label`; any other batch as it is."""
    data = getattr(batch, "data", None)
    if not isinstance(data, list | tuple) or not hasattr(batch, "label"):
        return batch
    return data[0] if len(data) == 1 else tuple(data)


def call_if_function(data: CalibrationData) -> Any:
    """Call a function without arguments, such as TFLite's representative_dataset; return other data as it is."""
    return data() if callable(data) and not isinstance(data, Iterable) and not _is_array(data) else data


def _count(data: CalibrationData, inputs: Sequence[InputSpec]) -> float:
    """Return the number of batches; infinity for data that does not tell."""
    whole = next(iter(data.values()), ()) if isinstance(data, Mapping) else data
    try:
        count = len(whole)
    except Exception:  # an iterator, or a loader without a length
        return math.inf
    return -(-count // (fixed_batch(inputs) or BATCH)) if isinstance(data, Mapping) or _is_array(data) else count


def fixed_batch(inputs: Sequence[InputSpec]) -> int | None:
    """Return the batch size that the model fixes; None if it leaves that open."""
    return next((spec.shape[0] for spec in inputs if spec.shape and spec.shape[0] is not None), None)


def _cut(whole: Feed, inputs: Sequence[InputSpec]) -> Iterator[Feed]:
    fixed = fixed_batch(inputs)
    size = fixed or BATCH
    for part in split(whole, size):
        if fixed is None or count_samples(part) == fixed:
            yield part


def _by_name(batch: Any, inputs: Sequence[InputSpec], where: str) -> PlainMapping:
    names = [spec.name for spec in inputs]
    if _is_nested_list(batch):
        batch = np.asarray(batch)
    if isinstance(batch, Mapping):
        named = completed(batch, inputs)
        unknown = [name for name in named if name not in names]
        missing = [name for name in names if name not in named]
        if missing:
            extra = f"; it has {', '.join(map(repr, unknown))}" if unknown else ""
            raise CalibrationError(
                f"{where} lacks the model input {missing[0]!r}{extra}. The inputs are: {', '.join(map(str, inputs))}"
            )
        return named
    if _is_array(batch):
        batch = (batch,)
    if isinstance(batch, Sequence) and not isinstance(batch, str | bytes):
        own = [spec.name for spec in inputs if not spec.follows]
        if len(batch) == len(own) < len(names):
            return completed(dict(zip(own, batch, strict=True)), inputs)
        if len(batch) != len(names):
            raise CalibrationError(
                f"{where} has {len(batch)} array(s), but the model takes {len(names)} inputs: "
                f"{', '.join(map(str, inputs))}. Give a dict by input name to be sure of the order"
            )
        return dict(zip(names, batch, strict=True))
    raise CalibrationError(f"{where} is a {type(batch).__name__}; an array, a tuple, a list or a dict is needed")


def _without_label(batch: Any, inputs: Sequence[InputSpec], where: str) -> Any:
    """Return the batch without the label that may follow the inputs; a batch without one as it is."""
    if not _is_group(batch):
        return batch
    first, following = batch[0], batch[1:]
    grouped = isinstance(first, Mapping) or _is_group(first)
    if not grouped and len(inputs) > 1:
        return batch[:-1] if len(batch) == len(inputs) + 1 else batch
    could_be_samples = [_is_alike(other, first, inputs) for other in following]
    if could_be_samples and (all(could_be_samples) or (grouped and any(could_be_samples))):
        raise CalibrationError(_two_readings(batch, inputs, where))
    return first if grouped or len(batch) == 2 else batch


def _is_alike(value: Any, first: Any, inputs: Sequence[InputSpec]) -> bool:
    """Return True if what should be a label could be another sample like the first."""
    if isinstance(first, Mapping):
        return isinstance(value, Mapping) and all(spec.name in value for spec in inputs)
    if _is_group(first):
        return _is_group(value) and _is_alike(value[0], first[0], inputs)
    if isinstance(value, Mapping) or _is_group(value):
        return False
    try:
        array, beside = _array(value), _array(first)
    except ValueError:  # lists of different lengths
        return False
    spec = inputs[0]
    if not _converts(array.dtype, spec.dtype) or array.ndim != beside.ndim:
        return False
    if array.ndim and array.size == len(array) == len(beside) < beside.size:
        return False  # one number for each sample
    shape = spec.shape
    return shape is None or _shape_fits(array.shape, shape) or _shape_fits(array.shape, shape[1:])


def _two_readings(batch: Sequence[Any], inputs: Sequence[InputSpec], where: str) -> str:
    count = len(batch)
    what = "dicts" if isinstance(batch[0], Mapping) else "tuples" if _is_group(batch[0]) else "arrays"
    takes = f"input {inputs[0]}" if len(inputs) == 1 else f"{len(inputs)} inputs"
    advice = "If they are samples, put them together into one batch, or give them one by one"
    statement = f"{where} is a {type(batch).__name__} of {count} {what} that the model could each take for {takes}"
    if count > 2:
        return f"{statement}. {advice}"
    return (
        f"{statement}: it may be (input, label), or two samples. If the second is a label, give the input alone, as in "
        f"`[x for x, _ in data]`. {advice}"
    )


def _is_group(value: Any) -> bool:
    """Return True for a tuple or a list of things other than plain numbers."""
    return isinstance(value, tuple | list) and len(value) > 0 and not _is_nested_list(value)


def _is_nested_list(value: Any) -> bool:
    """Return True for plain numbers in lists, an array in all but type."""
    while isinstance(value, list) and value:
        value = value[0]
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic) or any(
        hasattr(value, name) for name in ("numpy", "asnumpy", "__array__")
    )


def _array(value: Any) -> Array:
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach"):  # a torch tensor that may require gradients
        value = value.detach()
    if hasattr(value, "numpy"):
        value = value.numpy()
    elif hasattr(value, "asnumpy"):
        value = value.asnumpy()
    return np.asarray(value)


def _fit(value: Any, spec: InputSpec, where: str) -> Array:
    array = _array(value)
    if array.dtype != spec.dtype:
        if not _converts(array.dtype, spec.dtype):
            raise CalibrationError(
                f"{where} gives {array.dtype} for input {spec}: convert it to {spec.dtype} "
                "the same way as the data the model is evaluated on"
            )
        array = array.astype(spec.dtype)
    if spec.shape is None:
        return array
    if array.ndim == len(spec.shape) - 1 and _shape_fits(array.shape, spec.shape[1:]):
        array = array[None]  # one sample without its batch axis
    if not _shape_fits(array.shape, spec.shape):
        raise CalibrationError(f"{where} has shape {list(array.shape)} for input {spec}")
    return array


def _converts(actual: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Return True if values keep their meaning: floats to floats, integers to integers, text to strings."""
    integers = actual.kind in "iu" and wanted.kind in "iu"
    return integers or actual.kind == wanted.kind or (wanted.kind == "O" and actual.kind in "US")


def _shape_fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(shape) == len(wanted) and all(
        want is None or have == want for have, want in zip(shape, wanted, strict=True)
    )
