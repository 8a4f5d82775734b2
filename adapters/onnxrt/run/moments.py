"""Second moments of what products read, from a few samples that are stored with the calibration.

They are computed again where they are needed, because they are far larger than the samples: a matrix for each input.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from quaver.adapters.onnxrt.build.affine import Float
from quaver.adapters.onnxrt.build.builder import Builder
from quaver.adapters.onnxrt.build.rounding import Source, factor
from quaver.adapters.onnxrt.run import session as sessions
from quaver.errors import CalibrationError
from quaver.types import Array, Feed, PlainDict

# Bytes of samples that a history keeps: a few megabytes, of which token numbers take kilobytes. Judgement.
MAX_SAMPLE_BYTES = 2**23
# Rows of patches from each sample of a convolution. Judgement: neighbouring patches are alike.
_PATCHES = 256
# Tokens after which no more samples are read. With all layers of SmolLM2-135M in 4 bits, 4096 tokens lead to a
# divergence of .104 and 1024 to .134, on 8 texts, for 8 seconds more.
MAX_POSITIONS = 4096
# The key of the samples in a calibration.
KEY = "rounding_samples"
# Rows that are multiplied at once: with fewer, writing the sums takes most of the time. Judgement.
_ROWS_AT_ONCE = 512
# Bits of a second moment that are dropped, so that the last bits of a sum do not decide how a weight is rounded.
_DROPPED = np.int32(~0xFF)


def to_records(feeds: Sequence[Feed]) -> list[PlainDict]:
    """Return the first samples as builtins; none if they are large."""
    records: list[PlainDict] = []
    total = positions = 0
    for feed in feeds:
        total += sum(array.nbytes for array in feed.values())
        if total > MAX_SAMPLE_BYTES or positions >= MAX_POSITIONS:
            break
        positions += max((array.size for array in feed.values() if array.dtype.kind in "iu"), default=0)
        records.append(
            {
                name: {"dtype": array.dtype.str, "shape": list(array.shape), "data": array.tobytes()}
                for name, array in feed.items()
            }
        )
    return records


def from_records(records: Any) -> list[Feed]:
    """Return the samples from `to_records`. Only plain numbers are accepted."""
    try:
        return [{name: _array(value) for name, value in record.items()} for record in records]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CalibrationError(f"the calibration holds samples that cannot be read: {error}") from error


def _array(value: Any) -> Array:
    kind = np.dtype(value["dtype"])
    if kind.kind not in "fiub":
        raise ValueError(f"numbers are of type {value['dtype']!r:.80}")
    return np.frombuffer(value["data"], kind).reshape(value["shape"])


class SecondMoments:
    """The second moments of what weights are multiplied with, on the samples; all are computed at once, on first use.

    Args:
        builder: builds the float model.
        sources: what weights are multiplied with.
        feeds: the samples.
        threads: threads of the float model.
    """

    def __init__(self, builder: Builder, sources: Sequence[Source], feeds: Sequence[Feed], threads: int) -> None:
        self._builder, self._sources = builder, tuple(dict.fromkeys(sources))
        self._feeds, self._threads = list(feeds), threads
        self.factor = functools.cache(self._factor)

    @property
    def are_available(self) -> bool:
        """True if there are samples."""
        return bool(self._feeds)

    def of(self, source: Source) -> Float:
        """Return the second moments of what a weight is multiplied with."""
        return self._all[source]

    def _factor(self, source: Source) -> Float:
        return factor(self.of(source))

    @functools.cached_property
    def _all(self) -> dict[Source, Float]:
        graph = self._builder.graph
        declared = {value.name for value in (*graph.outputs, *graph.inputs)}
        names = list(dict.fromkeys(source.tensor for source in self._sources))
        inputs = {value.name for value in graph.inputs}
        serialized = self._builder.assemble(None, tuple(name for name in names if name not in declared))
        options = sessions.options(self._threads)
        session = sessions.create(serialized.skeleton(), options, serialized.store.path.parent)
        computed = [name for name in names if name not in inputs]
        sums: dict[Source, Float] = {}
        waiting: dict[Source, list[Float]] = {source: [] for source in self._sources}
        for place, feed in enumerate(self._feeds):
            outputs = session.run(computed, feed) if computed else []
            values = dict(feed) | dict(zip(computed, outputs, strict=True))
            for source, parts in waiting.items():
                parts.append(source.rows(values[source.tensor], _PATCHES))
                if sum(map(len, parts)) < _ROWS_AT_ONCE and place + 1 < len(self._feeds):
                    continue
                rows = np.concatenate(parts)
                product = rows.T @ rows
                sums[source] = product if source not in sums else np.add(sums[source], product, out=sums[source])
                parts.clear()
        for array in sums.values():
            np.bitwise_and(array.view(np.int32), _DROPPED, out=array.view(np.int32))
        return sums
