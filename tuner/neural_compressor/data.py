"""`DataLoader` of Neural Compressor: batches of a dataset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from quaver.errors import SettingsError
from quaver.neural_compressor.absent import absent_names


class DataLoader:
    """Iterate over a dataset (`dataset[i]`, or an iterable), `batch_size` samples at a time."""

    def __init__(self, framework: str = "", dataset: Any = None, batch_size: int = 1, **options: Any) -> None:
        used = {name: value for name, value in options.items() if value not in (None, False, 0, "rollover")}
        if used:
            raise SettingsError(
                f"DataLoader does not support {', '.join(used)}; calibration needs only `dataset` and `batch_size`"
            )
        if dataset is None:
            raise SettingsError("DataLoader needs a `dataset`: a sequence or an iterable of samples")
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
    """Stack samples into one batch; tuples and dicts are stacked part by part."""
    first = samples[0]
    if isinstance(first, tuple | list):
        return tuple(stacked([sample[part] for sample in samples]) for part in range(len(first)))
    if isinstance(first, dict):
        return {name: stacked([sample[name] for sample in samples]) for name in first}
    return np.stack([np.asarray(sample) for sample in samples])


__getattr__ = absent_names(__name__)
