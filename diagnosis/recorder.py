"""Takes in one batch after the other, and forgets it: what is kept of a model does not grow with the samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from quaver.diagnosis.activations import Activation
from quaver.diagnosis.cells import Array, Compared, Doubles, Layout, cut, layout
from quaver.diagnosis.differences import Differences, Metric
from quaver.diagnosis.histograms import LogHistogram
from quaver.inside import LocalRun, OpInside, Tensor8, WholeRun


class OpRecord:
    """What was seen of one op.

    Attributes:
        output: what it writes in the float model.
        local: its int8 output beside its float output, both from the same float inputs.
        whole: its output in the running quantized model beside that in the float model.
        noise, signal: of each channel, from `local`.
    """

    def __init__(self, inside: OpInside, limits: tuple[float, float] | None, metrics: Mapping[str, Metric]) -> None:
        self.output = Activation(inside.axis, limits)
        self.local, self.whole = Differences(metrics), Differences(metrics)
        self.noise: Doubles = np.zeros(0)
        self.signal: Doubles = np.zeros(0)
        self._samples = LogHistogram()

    def add(self, before: Array, local: Array | None, whole: Array | None, samples: int, first: int) -> None:
        """Take in what the op makes of a batch: in float, in int8 from the same inputs, in the quantized model."""
        how = layout(before.shape, samples, self.output.axis)
        pieces = cut(before, how)
        self.output.add(pieces, how, first)
        if local is not None:
            self._add_cells(self.local.add(pieces, cut(local, how), how))
        if whole is not None and whole.shape == before.shape:  # how much there is may depend on the values
            flat = Layout(1, 1, 1)
            self.whole.add(cut(before, flat), cut(whole, flat), flat)

    def _add_cells(self, found: Compared | None) -> None:
        if found is None or not np.isfinite(found.noise).all():
            return
        if self.noise.shape != found.noise.shape[1:]:
            self.noise, self.signal = np.zeros(found.noise.shape[1]), np.zeros(found.noise.shape[1])
        self.noise += found.noise.sum(axis=0)
        self.signal += found.signal.sum(axis=0)
        noise, signal = found.noise.sum(axis=1), found.signal.sum(axis=1)
        self._samples.add(noise[signal > 0] / signal[signal > 0])

    @property
    def channel_error(self) -> float:
        """Squared error over squared signal in the median channel; channels that are always zero do not count."""
        alive = self.signal > 0
        return float(np.median(self.noise[alive] / self.signal[alive])) if alive.any() else math.nan

    @property
    def sample_error(self) -> float:
        """The same in the median sample."""
        return self._samples.median()

    @property
    def error(self) -> float:
        """The op's own error: of all its values, of its median channel or its median sample, whichever is worst.

        One channel or sample that outshines the others hides what becomes of them.
        """
        found = [self.local.relative, self.channel_error, self.sample_error]
        return max((value for value in found if not math.isnan(value)), default=math.nan)


class Recorder:
    """What was seen of all ops.

    Attributes:
        ops: by name.
        read: the tensors that ops read, by name.
        wanted: those of them that no op writes; they have to be watched besides.
        outputs: the outputs of the quantized model beside those of the float model.
        samples: how many were taken in.

    Args:
        insides: what surrounds each op.
        layer_metrics: the user's functions of an op's differences (quantized minus float).
        model_metrics: the user's functions of the outputs of the float and of the quantized model, for one sample.
    """

    def __init__(
        self,
        insides: Mapping[str, OpInside],
        layer_metrics: Mapping[str, Metric] | None = None,
        model_metrics: Mapping[str, Metric] | None = None,
    ) -> None:
        self.samples = 0
        self._insides = insides
        limits = {tensor.name: (tensor.low, tensor.high) for inside in insides.values() for tensor in _tensors(inside)}
        self.ops = {
            name: OpRecord(inside, limits.get(inside.output), layer_metrics or {}) for name, inside in insides.items()
        }
        written = {inside.output: name for name, inside in insides.items()}
        # What ops read, by the name of the tensor; the output of another op is that op's.
        self.read: dict[str, Activation] = {}
        for inside in insides.values():
            for tensor in inside.reads:
                if tensor.name in written:
                    self.read[tensor.name] = self.ops[written[tensor.name]].output
                elif tensor.name not in self.read:
                    self.read[tensor.name] = Activation(tensor.axis, limits[tensor.name], histogram=False)
        self.wanted = tuple(name for name in self.read if name not in written)
        self.outputs = Differences()
        self._model_metrics = dict(model_metrics or {})
        self._model_sums = dict.fromkeys(self._model_metrics, 0.0)

    def add(self, local: LocalRun, whole: WholeRun | None, samples: int) -> None:
        """Take in one batch. Without a quantized model there is the float one alone."""
        for name, (before, after) in local.ops.items():
            self.ops[name].add(before, after, None if whole is None else whole.ops.get(name), samples, self.samples)
        for name, values in local.tensors.items():
            seen = self.read[name]
            how = layout(values.shape, samples, seen.axis)
            seen.add(cut(values, how), how, self.samples)
        if whole is not None:
            self._add_outputs(local.outputs, whole.outputs, samples)
        self.samples += samples

    def _add_outputs(self, before: Sequence[Array], after: Sequence[Array], samples: int) -> None:
        for one, other in zip(before, after, strict=True):
            if one.dtype.kind == "f" and one.shape == other.shape:
                flat = Layout(1, 1, 1)
                self.outputs.add(cut(one, flat), cut(other, flat), flat)
        for index in range(samples if self._model_metrics else 0):
            pair = _sample(before, index, samples), _sample(after, index, samples)
            for name, metric in self._model_metrics.items():
                self._model_sums[name] += float(metric(*pair))  # type: ignore[call-arg]

    def model_figures(self) -> dict[str, float]:
        """The user's figures of the model, each the mean over all samples."""
        return {name: total / self.samples if self.samples else math.nan for name, total in self._model_sums.items()}


def _tensors(inside: OpInside) -> Iterable[Tensor8]:
    return (*inside.reads, *(() if inside.writes is None else (inside.writes,)))


def _sample(outputs: Sequence[Array], index: int, samples: int) -> list[Array]:
    """The outputs of one sample, as a batch of one; what has no batch axis stays whole."""
    return [array[index : index + 1] if array.ndim and len(array) == samples else array for array in outputs]
