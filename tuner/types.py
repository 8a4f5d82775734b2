"""Type aliases that all packages share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
"""An array of any element type."""

Feed: TypeAlias = dict[str, Array]
"""One batch: an array for each input of a model."""

PlainDict: TypeAlias = dict[str, Any]
"""Builtins by name, as a snapshot, a JSON file or a YAML file holds them."""

PlainMapping: TypeAlias = Mapping[str, Any]
"""The read-only form of `PlainDict`."""

ModelLike: TypeAlias = Any
"""A model in any form that an adapter accepts, or the model object that eval_func gets."""

CalibrationData: TypeAlias = Any
"""Calibration data in any form that `fit` accepts: an iterable of batches, or an array."""

EvalFunc: TypeAlias = Callable[[Any], Any]
"""The user's function that scores a model."""

PlainValue: TypeAlias = Any
"""A value as a YAML or JSON file, a keyword or a snapshot holds it, before it is checked."""

ExecutorLike: TypeAlias = Any
"""A `concurrent.futures.Executor` or a `dask.distributed.Client`; None for a backend that quaver opens."""

ScoreLike: TypeAlias = Any
"""A score in any form that eval_func may return: a number, scores of samples, a dict of metrics, or a generator."""
