"""One batch to run a model on for its time: from the user's data, or made up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.adapters.batches import Feed, InputSpec, feeds, open_batch, samples
from quaver.adapters.rebatching import check_batch
from quaver.errors import CalibrationError, SettingsError


def one_batch(data: Any, inputs: Sequence[InputSpec], size: int) -> Feed:
    """A feed of `size` samples, where the model leaves that open. Too few samples are repeated.

    Raises `SettingsError` if the model fixes another batch, unless `size` is 1, the default.
    """
    check_batch(inputs, size)
    if data is None:
        rng = np.random.default_rng(0)
        return {spec.name: _made_up(spec, size, rng) for spec in inputs}
    parts = list(feeds(data, inputs, size))
    if not parts:
        raise CalibrationError("the data to run the model on gave no samples; pass a list or an array")
    if not open_batch(inputs):
        return parts[0]
    batched = [spec.name for spec in inputs if parts[0][spec.name].ndim]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in batched}
    count = samples(joined)
    rows = np.arange(size) % count
    return {name: array[rows] if len(array) == count else parts[0][name] for name, array in joined.items()} | {
        name: array for name, array in parts[0].items() if name not in joined
    }


def _made_up(spec: InputSpec, size: int, rng: np.random.Generator) -> NDArray[Any]:
    """Random values for an input. Integers are 0 and 1, which every table of embeddings has."""
    if spec.shape is None or any(dim is None for dim in spec.shape[1:]):
        raise SettingsError(f"input {spec} leaves more than the batch open: give data to run the model on")
    shape = [size if dim is None else dim for dim in spec.shape]
    if spec.dtype.kind == "f":
        return rng.standard_normal(shape).astype(spec.dtype)
    if spec.dtype.kind in "iub":
        return rng.integers(0, 2, shape).astype(spec.dtype)
    raise SettingsError(f"input {spec} takes {spec.dtype}: give data to run the model on")
