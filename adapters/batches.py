"""The user's calibration data, whatever its form, as a stream of {input name: array} feeds that fit the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.errors import CalibrationError

Feed = dict[str, NDArray[Any]]

# How an array or a dict of arrays, given as a whole, is cut when the model leaves the batch open.
BATCH = 32


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input of a model. Shape entries are None where the model leaves them open; shape None is any rank."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...] | None

    def __str__(self) -> str:
        dims = "any shape" if self.shape is None else str([("?" if dim is None else dim) for dim in self.shape])
        return f"{self.name!r} ({self.dtype}, {dims})"


def feeds(data: Any, inputs: Sequence[InputSpec], limit: int | None = None) -> Iterator[Feed]:
    """Turn `data` into feeds, at most `limit` samples in all. Samples are counted along the first axis.

    A model that fixes its batch gets whole batches only, and one at least.

    `data` is an iterable of batches (arrays, tuples, lists, dicts by input name, or (input, label) pairs; anything
    with `.numpy()` counts as an array), or one array or dict of arrays that holds the whole set. It is iterated once.
    """
    taken = 0
    for index, batch in enumerate(_batches(data, inputs)):
        feed = match(batch, inputs, where=f"calibration batch {index}")
        size = samples(feed)
        if limit is not None and taken + size > limit:
            if open_batch(inputs):
                feed, size = head(feed, limit - taken), limit - taken
            elif taken:
                return
        if size:
            yield feed
        taken += size
        if limit is not None and taken >= limit:
            return


def samples(feed: Feed) -> int:
    """How many samples a feed holds."""
    first = next(iter(feed.values()))
    return first.shape[0] if first.ndim else 1


def open_batch(inputs: Sequence[InputSpec]) -> bool:
    """Whether a model takes batches of any size."""
    return all(not spec.shape or spec.shape[0] is None for spec in inputs)


def head(feed: Feed, count: int) -> Feed:
    """The first `count` samples of a feed. Inputs without that batch axis stay whole."""
    return next(split(feed, count))


def tail(feed: Feed, start: int) -> Feed:
    """What `head` leaves over."""
    total = samples(feed)
    return {name: array[start:] if array.ndim and array.shape[0] == total else array for name, array in feed.items()}


def split(feed: Feed, size: int) -> Iterator[Feed]:
    """Cut a feed into feeds of at most `size` samples. Inputs without that batch axis are repeated."""
    total = samples(feed)
    if total <= size:
        yield feed
        return
    for start in range(0, total, size):
        yield {
            name: array[start : start + size] if array.ndim and array.shape[0] == total else array
            for name, array in feed.items()
        }


def match(batch: Any, inputs: Sequence[InputSpec], where: str) -> Feed:
    """One batch in any of the accepted forms, by input name, checked against the model's inputs."""
    named = _by_name(batch, inputs, where)
    return {spec.name: _fit(named[spec.name], spec, where) for spec in inputs}


def _batches(data: Any, inputs: Sequence[InputSpec]) -> Iterator[Any]:
    whole = data
    if hasattr(whole, "files") and isinstance(whole, Mapping):  # an open .npz
        whole = {name: whole[name] for name in whole}
    if isinstance(whole, Mapping):
        yield from _cut({name: _array(value) for name, value in whole.items()}, inputs)
    elif _is_array(whole):
        yield from (next(iter(part.values())) for part in _cut({"": _array(whole)}, inputs))
    elif isinstance(whole, str | bytes) or not isinstance(whole, Iterable):
        raise CalibrationError(
            f"calib_dataloader must be an iterable of batches, an array or a dict of arrays, not {type(data).__name__}"
        )
    else:
        yield from whole


def _cut(whole: Feed, inputs: Sequence[InputSpec]) -> Iterator[Feed]:
    fixed = next((spec.shape[0] for spec in inputs if spec.shape and spec.shape[0] is not None), None)
    size = fixed or BATCH
    for part in split(whole, size):
        if fixed is None or samples(part) == fixed:
            yield part


def _by_name(batch: Any, inputs: Sequence[InputSpec], where: str) -> Mapping[str, Any]:
    names = [spec.name for spec in inputs]
    batch = _without_label(batch, inputs)
    if _is_nested_list(batch):
        batch = np.asarray(batch)
    if isinstance(batch, Mapping):
        unknown = [name for name in batch if name not in names]
        missing = [name for name in names if name not in batch]
        if missing:
            extra = f"; it has {', '.join(map(repr, unknown))}" if unknown else ""
            raise CalibrationError(
                f"{where} lacks the model input {missing[0]!r}{extra}. The inputs are: {', '.join(map(str, inputs))}"
            )
        return batch
    if _is_array(batch):
        batch = (batch,)
    if isinstance(batch, Sequence) and not isinstance(batch, str | bytes):
        if len(batch) != len(names):
            raise CalibrationError(
                f"{where} has {len(batch)} array(s), but the model takes {len(names)} inputs: "
                f"{', '.join(map(str, inputs))}. Give a dict by input name to be sure of the order"
            )
        return dict(zip(names, batch, strict=True))
    raise CalibrationError(f"{where} is a {type(batch).__name__}; an array, a tuple, a list or a dict is needed")


def _without_label(batch: Any, inputs: Sequence[InputSpec]) -> Any:
    """(input, label) pairs: keep the input. A pair of arrays is two inputs only if the model takes two."""
    if not isinstance(batch, tuple | list) or not batch:
        return batch
    if _is_nested_list(batch):
        return batch
    first = batch[0]
    if isinstance(first, Mapping) or (isinstance(first, tuple | list) and not _is_nested_list(first)):
        return first
    if len(batch) == len(inputs) + 1:
        return first if len(inputs) == 1 else batch[:-1]
    return batch


def _is_nested_list(value: Any) -> bool:
    """Whether this is plain numbers in lists, an array in all but type."""
    while isinstance(value, list) and value:
        value = value[0]
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic) or hasattr(value, "numpy") or hasattr(value, "__array__")


def _array(value: Any) -> NDArray[Any]:
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach"):  # a torch tensor that may want gradients
        value = value.detach()
    if hasattr(value, "numpy"):
        value = value.numpy()
    return np.asarray(value)


def _fit(value: Any, spec: InputSpec, where: str) -> NDArray[Any]:
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


def _converts(given: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Whether values keep their meaning: floats to floats, integers to integers, text to strings."""
    integers = given.kind in "iu" and wanted.kind in "iu"
    return integers or given.kind == wanted.kind or (wanted.kind == "O" and given.kind in "US")


def _shape_fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(shape) == len(wanted) and all(
        want is None or have == want for have, want in zip(shape, wanted, strict=True)
    )
