"""`DataLoader`: batches of a dataset, as Neural Compressor's scripts make them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from quaver.errors import SettingsError


class DataLoader:
    """Goes through a dataset (`dataset[i]`, or an iterable), `batch_size` samples at a time."""

    def __init__(self, framework: str = "", dataset: Any = None, batch_size: int = 1, **more: Any) -> None:
        used = {name: value for name, value in more.items() if value not in (None, False, 0, "rollover")}
        if used:
            raise SettingsError(
                f"DataLoader: {', '.join(used)} cannot be used; calibration needs `dataset` and `batch_size`"
            )
        if dataset is None:
            raise SettingsError("DataLoader needs a `dataset`: items by number, or an iterable of samples")
        self.framework, self.dataset, self.batch_size = framework, dataset, batch_size

    def __iter__(self) -> Iterator[Any]:
        batch: list[Any] = []
        for sample in self._samples():
            batch.append(sample)
            if len(batch) == self.batch_size:
                yield stacked(batch)
                batch = []
        if batch:
            yield stacked(batch)

    def _samples(self) -> Iterator[Any]:
        if hasattr(self.dataset, "__getitem__") and hasattr(self.dataset, "__len__"):
            return (self.dataset[index] for index in range(len(self.dataset)))
        return iter(self.dataset)


def stacked(samples: list[Any]) -> Any:
    """Samples as one batch: tuples and dicts part by part, arrays on top of each other."""
    first = samples[0]
    if isinstance(first, tuple | list):
        return tuple(stacked([sample[part] for sample in samples]) for part in range(len(first)))
    if isinstance(first, dict):
        return {name: stacked([sample[name] for sample in samples]) for name in first}
    return np.stack([np.asarray(sample) for sample in samples])
