"""Takes in one batch after the other, and forgets it: what is kept of a model does not grow with the samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from quaver.affine import QuantizedTensor
from quaver.diagnosis.statistics.activations import Activation
from quaver.diagnosis.statistics.cells import Doubles, cut, cut_form, layout, survey
from quaver.diagnosis.statistics.errors import Differences, Metric, ModelFigures
from quaver.diagnosis.statistics.histograms import LogHistogram
from quaver.introspection import ActivationContext, LocalRun, OpContext, QuantizedRun
from quaver.types import Array


class OpRecord:
    """What was seen of one op.

    Attributes:
        output: what it writes in the float model.
        local: its output in reduced precision beside its float output, both from the same float inputs.
        cumulative: its output in the running quantized model beside that in the float model.
        noise, signal: of each channel, from `local`.
    """

    def __init__(
        self,
        context: OpContext,
        limits: tuple[float, float] | None,
        metrics: Mapping[str, Metric],
        histogram: bool = True,
    ) -> None:
        self.output = Activation(context.axis, limits, histogram)
        self.local, self.cumulative = Differences(metrics), Differences(metrics)
        self.noise: Doubles = np.zeros(0)
        self.signal: Doubles = np.zeros(0)
        self._samples = LogHistogram()
        self._error: float | None = None  # known until more is added

    def add(
        self,
        before: Array,
        local: Array | QuantizedTensor | None,
        running: Array | QuantizedTensor | None,
        samples: int,
        first: int,
    ) -> None:
        """Take in what the op makes of a batch: in float, reduced from the same inputs, in the quantized model."""
        if local is not None and local.shape != before.shape:
            raise ValueError(f"an output of shape {list(local.shape)} cannot be compared with {list(before.shape)}")
        if not before.size:
            return
        if running is not None and running.shape != before.shape:  # how much there is may depend on the values
            running = None
        self._error = None
        how = layout(before.shape, samples, self.output.axis)
        pieces = cut(before, how)
        pairs = [(into, cut_form(form, how)) for into, form in ((self.local, local), (self.cumulative, running))
                 if form is not None]  # fmt: skip
        found = survey(pieces, [form for _, form in pairs], how)
        self.output.add(pieces, found, first)
        signal = float(found.signal.sum())
        for (into, form), compared in zip(pairs, found.others, strict=True):
            into.add(pieces, form, compared, signal)
        if local is not None and np.isfinite(found.others[0].noise).all():
            self._add_cells(found.others[0].noise, found.signal)

    def _add_cells(self, noise: Doubles, signal: Doubles) -> None:
        if self.noise.shape != noise.shape[1:]:
            self.noise, self.signal = np.zeros(noise.shape[1]), np.zeros(noise.shape[1])
        self.noise += noise.sum(axis=0)
        self.signal += signal.sum(axis=0)
        of_samples, power = noise.sum(axis=1), signal.sum(axis=1)
        self._samples.add(of_samples[power > 0] / power[power > 0])

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
        if self._error is None:
            found = [self.local.relative, self.channel_error, self.sample_error]
            self._error = max((value for value in found if not math.isnan(value)), default=math.nan)
        return self._error


class Recorder:
    """What was seen of all ops.

    Attributes:
        ops: by name.
        others: the same of operators that are no ops.
        read: the tensors that ops read, by name.
        wanted: those of them that no op writes; they have to be watched besides.
        outputs: the outputs of the quantized model beside those of the float model.
        samples: how many were taken in.

    Args:
        contexts: what surrounds each op.
        layer_metrics: the user's functions of an op's differences (quantized minus float).
        model_metrics: the user's functions of the outputs of the float and of the quantized model, for one sample.
        others: what surrounds operators that are no ops.
    """

    def __init__(
        self,
        contexts: Mapping[str, OpContext],
        layer_metrics: Mapping[str, Metric] | None = None,
        model_metrics: Mapping[str, Metric] | None = None,
        others: Mapping[str, OpContext] | None = None,
    ) -> None:
        self.samples = 0
        self.others = {
            name: OpRecord(context, None, layer_metrics or {}, histogram=False)
            for name, context in (others or {}).items()
        }
        limits = {
            tensor.name: tensor.parameters.limits for context in contexts.values() for tensor in _tensors(context)
        }
        self.ops = {
            name: OpRecord(context, limits.get(context.output), layer_metrics or {})
            for name, context in contexts.items()
        }
        written = {context.output: name for name, context in contexts.items()}
        # What ops read, by the name of the tensor; the output of another op is that op's.
        self.read: dict[str, Activation] = {}
        for context in contexts.values():
            for tensor in context.reads:
                if tensor.name in written:
                    self.read[tensor.name] = self.ops[written[tensor.name]].output
                elif tensor.name not in self.read:
                    self.read[tensor.name] = Activation(tensor.axis, limits[tensor.name], histogram=False)
        self.wanted = tuple(name for name in self.read if name not in written)
        self.outputs = Differences()
        self._model = ModelFigures(model_metrics)

    def add(self, local: LocalRun, quantized: QuantizedRun | None, samples: int) -> None:
        """Take in one batch. Without a quantized model there is the float one alone."""
        for name, (before, after) in local.ops.items():
            running = None if quantized is None else quantized.ops.get(name)
            record = self.ops[name] if name in self.ops else self.others[name]
            record.add(before, after, running, samples, self.samples)
        for name, values in local.tensors.items():
            if values.size:
                how = layout(values.shape, samples, self.read[name].axis)
                pieces = cut(values, how)
                self.read[name].add(pieces, survey(pieces, (), how), self.samples)
        if quantized is not None:
            self._add_outputs(local.outputs, quantized.outputs, samples)
        self.samples += samples

    def _add_outputs(self, before: Sequence[Array], after: Sequence[Array], samples: int) -> None:
        for one, other in zip(before, after, strict=True):
            if one.dtype.kind == "f" and one.shape == other.shape and one.size:
                flat = layout(one.shape, 1, None)
                pieces, form = cut(one, flat), cut(other, flat)
                found = survey(pieces, [form], flat)
                self.outputs.add(pieces, form, found.others[0], float(found.signal.sum()))
        self._model.add(before, after, samples)

    def model_figures(self) -> dict[str, float]:
        """The user's figures of the model, each the mean over all samples."""
        return self._model.figures()


def _tensors(context: OpContext) -> Iterable[ActivationContext]:
    return (*context.reads, *(() if context.writes is None else (context.writes,)))
