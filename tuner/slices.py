"""Slices: named parts of the evaluation samples, such as classes, languages or customers, judged by themselves."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.errors import SettingsError
from quaver.scores import Floats
from quaver.types import Array, PlainDict, PlainMapping

_RECORDED_KEYS = frozenset(("count", "names", "sizes", "members"))


@dataclass(frozen=True, slots=True)
class Slices:
    """The samples of each slice; a sample may belong to several slices, or to none.

    Attributes:
        count: the number of samples; 0 if it is not known.
        names: the names of the slices.
        sizes: the number of samples of each.
        members: the indices of the samples of each, one slice after another, as bytes (uint32, little-endian).
    """

    count: int
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    members: bytes = field(repr=False)

    @classmethod
    def of(cls, spec: Any) -> Slices:
        """Make slices from a name for each sample (None for no slice), or from a dict of indices or masks by name."""
        if isinstance(spec, Slices):
            return spec
        if isinstance(spec, Mapping):
            return cls._recorded(spec) if set(spec) == _RECORDED_KEYS else cls._by_name(spec)
        if isinstance(spec, str | bytes) or not hasattr(spec, "__len__") or not hasattr(spec, "__getitem__"):
            raise SettingsError(
                f"`slices` must be a name for each sample, or a dict of samples by name, not {spec!r:.60}"
            )
        indices: dict[str, list[int]] = {}
        for index, name in enumerate(spec):
            if name is not None:
                indices.setdefault(str(name), []).append(index)
        return cls._made(len(spec), indices)

    @classmethod
    def _by_name(cls, samples_by_name: Mapping[Any, Any]) -> Slices:
        indices: dict[str, Sequence[int] | Array] = {}
        count = 0
        for name, chosen in samples_by_name.items():
            array = np.asarray(chosen)
            if array.ndim != 1 or array.dtype.kind not in "biu" or not array.size:
                raise SettingsError(
                    f"the slice {str(name)!r} must be the indices of its samples, or True and False for each sample, "
                    f"not {chosen!r:.80}"
                )
            if array.dtype.kind == "b":
                if count not in (0, len(array)):
                    raise SettingsError(f"the slice {str(name)!r} is of {len(array)} samples, and others of {count}")
                count = len(array)
                array = np.flatnonzero(array)
            elif int(array.min()) < 0:
                raise SettingsError(f"the slice {str(name)!r} has the index {array.min()}; the first sample is 0")
            indices[str(name)] = np.unique(array)
        return cls._made(count, indices)

    @classmethod
    def _made(cls, count: int, indices: Mapping[str, Sequence[int] | Array]) -> Slices:
        if not indices:
            raise SettingsError("`slices` names no slice")
        for name, samples in indices.items():
            if not len(samples):
                raise SettingsError(f"the slice {name!r} has no samples")
        members = np.concatenate([np.asarray(samples, "<u4") for samples in indices.values()])
        if count and int(members.max()) >= count:
            raise SettingsError(f"`slices` has the index {members.max()}, and there are {count} samples")
        return cls(count, tuple(indices), tuple(map(len, indices.values())), members.astype("<u4").tobytes())

    @classmethod
    def _recorded(cls, record: PlainMapping) -> Slices:
        count, names, sizes, text = (record[key] for key in ("count", "names", "sizes", "members"))
        try:
            members = base64.b64decode(text, validate=True)
        except (TypeError, ValueError):
            members = b"?"
        if (
            type(count) is not int
            or not isinstance(names, list | tuple)
            or not isinstance(sizes, list | tuple)
            or len(names) != len(sizes)
            or any(type(name) is not str for name in names)
            or any(type(size) is not int or size < 1 for size in sizes)
            or not names
            or 4 * sum(sizes) != len(members)
        ):
            raise SettingsError("the slices of the recorded run cannot be read: pass `slices` again")
        return cls(count, tuple(names), tuple(sizes), members)

    def to_dict(self) -> PlainDict:
        """Return builtins to record with a run; `of` reads them again."""
        members = base64.b64encode(self.members).decode()
        return {"count": self.count, "names": list(self.names), "sizes": list(self.sizes), "members": members}

    @property
    def indices(self) -> NDArray[np.int64]:
        """The indices of the samples of each slice, one slice after another."""
        return np.frombuffer(self.members, "<u4").astype(np.int64)

    def each(self) -> dict[str, NDArray[np.int64]]:
        """Return the indices of the samples, by slice."""
        parts = np.split(self.indices, np.cumsum(self.sizes)[:-1])
        return dict(zip(self.names, parts, strict=True))

    def sums(self, values: Floats) -> Floats:
        """Return the sum of a figure over the samples of each slice."""
        starts = np.concatenate([[0], np.cumsum(self.sizes)[:-1]])
        return np.asarray(np.add.reduceat(values[self.indices], starts), np.float64)

    def check(self, samples: int, metric: str) -> None:
        """Refuse scores of other samples than the slices are made of."""
        if self.count not in (0, samples) or (not self.count and int(self.indices.max()) >= samples):
            named = self.count or f"at least {int(self.indices.max()) + 1}"
            raise SettingsError(
                f"`slices` is about {named} samples, and eval_func gave the scores of {samples} for {metric!r}"
            )

    def __len__(self) -> int:
        return len(self.names)
