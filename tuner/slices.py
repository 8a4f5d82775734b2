"""Named parts of the evaluation samples, such as classes, languages or customers, that are judged by themselves."""

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

_PLAIN = frozenset(("count", "names", "sizes", "members"))


@dataclass(frozen=True, slots=True)
class Slices:
    """Which samples belong to which slice; a sample may belong to several, or to none.

    Attributes:
        count: how many samples there are; 0 if that was not said.
        names: of the slices.
        sizes: how many samples each has.
        members: the indices of the samples of each, one slice after another, as bytes (uint32, little-endian).
    """

    count: int
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    members: bytes = field(repr=False)

    @classmethod
    def of(cls, given: Any) -> Slices:
        """Slices from a name for each sample (None for no slice), or from a dict of indices or masks by name."""
        if isinstance(given, Slices):
            return given
        if isinstance(given, Mapping):
            return cls._recorded(given) if set(given) == _PLAIN else cls._by_name(given)
        if isinstance(given, str | bytes) or not hasattr(given, "__len__") or not hasattr(given, "__getitem__"):
            raise SettingsError(
                f"`slices` must be a name for each sample, or a dict of samples by name, not {given!r:.60}"
            )
        found: dict[str, list[int]] = {}
        for index, name in enumerate(given):
            if name is not None:
                found.setdefault(str(name), []).append(index)
        return cls._made(len(given), found)

    @classmethod
    def _by_name(cls, given: Mapping[Any, Any]) -> Slices:
        found: dict[str, Sequence[int] | Array] = {}
        count = 0
        for name, chosen in given.items():
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
            found[str(name)] = np.unique(array)
        return cls._made(count, found)

    @classmethod
    def _made(cls, count: int, found: Mapping[str, Sequence[int] | Array]) -> Slices:
        if not found:
            raise SettingsError("`slices` names no slice")
        for name, indices in found.items():
            if not len(indices):
                raise SettingsError(f"the slice {name!r} has no samples")
        members = np.concatenate([np.asarray(indices, "<u4") for indices in found.values()])
        if count and int(members.max()) >= count:
            raise SettingsError(f"`slices` has the index {members.max()}, and there are {count} samples")
        return cls(count, tuple(found), tuple(map(len, found.values())), members.astype("<u4").tobytes())

    @classmethod
    def _recorded(cls, plain: PlainMapping) -> Slices:
        count, names, sizes, text = (plain[key] for key in ("count", "names", "sizes", "members"))
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
            raise SettingsError("the slices of the run that was recorded cannot be read: give `slices` again")
        return cls(count, tuple(names), tuple(sizes), members)

    def to_dict(self) -> PlainDict:
        """As builtins, to be kept with a run; `of` reads it again."""
        members = base64.b64encode(self.members).decode()
        return {"count": self.count, "names": list(self.names), "sizes": list(self.sizes), "members": members}

    @property
    def indices(self) -> NDArray[np.int64]:
        """Of the samples of each slice, one slice after another."""
        return np.frombuffer(self.members, "<u4").astype(np.int64)

    def each(self) -> dict[str, NDArray[np.int64]]:
        """The indices of the samples, by slice."""
        parts = np.split(self.indices, np.cumsum(self.sizes)[:-1])
        return dict(zip(self.names, parts, strict=True))

    def sums(self, values: Floats) -> Floats:
        """The sum of a figure over the samples of each slice."""
        starts = np.concatenate([[0], np.cumsum(self.sizes)[:-1]])
        return np.asarray(np.add.reduceat(values[self.indices], starts), np.float64)

    def check(self, samples: int, metric: str) -> None:
        """The samples that eval_func scores must be those that were named."""
        if self.count not in (0, samples) or (not self.count and int(self.indices.max()) >= samples):
            named = self.count or f"at least {int(self.indices.max()) + 1}"
            raise SettingsError(
                f"`slices` is about {named} samples, and eval_func gave the scores of {samples} for {metric!r}"
            )

    def __len__(self) -> int:
        return len(self.names)
