"""Record batch after batch in constant memory, however many samples there are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from quaver.affine import QuantizedTensor
from quaver.diagnosis.statistics.activations import Activation
from quaver.diagnosis.statistics.cells import Doubles, cut, cut_form, layout, survey
from quaver.diagnosis.statistics.errors import ErrorStatistics, Metric, ModelFigures
from quaver.diagnosis.statistics.histograms import LogHistogram
from quaver.introspection import ActivationContext, LocalRun, OpContext, QuantizedRun
from quaver.types import Array


class OpRecord:
    """The statistics of one op.

    Attributes:
        output: its output in the float model.
        local: the error of its quantized output against its float output, both from the same float inputs.
        cumulative: the error of its output in the running quantized model against the float model.
        noise, signal: squared error and squared signal of each channel, from `local`.
    """

    def __init__(
        self,
        context: OpContext,
        limits: tuple[float, float] | None,
        metrics: Mapping[str, Metric],
        histogram: bool = True,
    ) -> None:
        self.output = Activation(context.axis, limits, histogram)
        self.local, self.cumulative = ErrorStatistics(metrics), ErrorStatistics(metrics)
        self.noise: Doubles = np.zeros(0)
        self.signal: Doubles = np.zeros(0)
        self._samples = LogHistogram()
        self._error: float | None = None  # cached until the next batch

    def add(
        self,
        before: Array,
        local: Array | QuantizedTensor | None,
        running: Array | QuantizedTensor | None,
        samples: int,
        first: int,
    ) -> None:
        """Add the outputs of a batch.

        Args:
            before: the output of the float model.
            local: the quantized output from the same float inputs; None if the op stays float.
            running: the output in the running quantized model; None without one.
            samples: the number of samples in the batch.
            first: the number of the first sample.
        """
        if local is not None and local.shape != before.shape:
            raise ValueError(f"an output of shape {list(local.shape)} cannot be compared with {list(before.shape)}")
        if not before.size:
            return
        if running is not None and running.shape != before.shape:  # a shape may depend on the values
            running = None
        self._error = None
        cut_layout = layout(before.shape, samples, self.output.axis)
        pieces = cut(before, cut_layout)
        pairs = [
            (statistics, cut_form(form, cut_layout))
            for statistics, form in ((self.local, local), (self.cumulative, running))
            if form is not None
        ]
        survey_result = survey(pieces, [form for _, form in pairs], cut_layout)
        self.output.add(pieces, survey_result, first)
        signal = float(survey_result.signal.sum())
        for (statistics, form), compared in zip(pairs, survey_result.differences, strict=True):
            statistics.add(pieces, form, compared, signal)
        if local is not None and np.isfinite(survey_result.differences[0].noise).all():
            self._add_cells(survey_result.differences[0].noise, survey_result.signal)

    def _add_cells(self, noise: Doubles, signal: Doubles) -> None:
        if self.noise.shape != noise.shape[1:]:
            self.noise, self.signal = np.zeros(noise.shape[1]), np.zeros(noise.shape[1])
        self.noise += noise.sum(axis=0)
        self.signal += signal.sum(axis=0)
        sample_noise, sample_signal = noise.sum(axis=1), signal.sum(axis=1)
        self._samples.add(sample_noise[sample_signal > 0] / sample_signal[sample_signal > 0])

    @property
    def channel_error(self) -> float:
        """Squared error over squared signal in the median channel. Channels of zeros do not count."""
        nonzero = self.signal > 0
        return float(np.median(self.noise[nonzero] / self.signal[nonzero])) if nonzero.any() else math.nan

    @property
    def sample_error(self) -> float:
        """Squared error over squared signal in the median sample."""
        return self._samples.median()

    @property
    def error(self) -> float:
        """The op's own error: over all values, in its median channel or in its median sample, whichever is largest.

        A single large channel or sample would otherwise hide the errors of the others.
        """
        if self._error is None:
            errors = [self.local.relative, self.channel_error, self.sample_error]
            self._error = max((value for value in errors if not math.isnan(value)), default=math.nan)
        return self._error


class Recorder:
    """The statistics of all ops.

    Attributes:
        ops: the statistics of each op, by name.
        other_operators: the statistics of operators that are not tunable ops, by name.
        read: the tensors that ops read, by name.
        wanted: the tensors among them that no op writes; the adapter has to record them in addition.
        outputs: the error of the quantized model's outputs against those of the float model.
        samples: the number of samples so far.

    Args:
        contexts: the tensors and ops around each op.
        layer_metrics: the user's functions of an op's differences (quantized minus float).
        model_metrics: the user's functions of the outputs of the float and of the quantized model, for one sample.
        other_operators: the tensors around operators that are not tunable ops.
    """

    def __init__(
        self,
        contexts: Mapping[str, OpContext],
        layer_metrics: Mapping[str, Metric] | None = None,
        model_metrics: Mapping[str, Metric] | None = None,
        other_operators: Mapping[str, OpContext] | None = None,
    ) -> None:
        self.samples = 0
        self.other_operators = {
            name: OpRecord(context, None, layer_metrics or {}, histogram=False)
            for name, context in (other_operators or {}).items()
        }
        limits = {
            tensor.name: tensor.parameters.limits for context in contexts.values() for tensor in _tensors(context)
        }
        self.ops = {
            name: OpRecord(context, limits.get(context.output), layer_metrics or {})
            for name, context in contexts.items()
        }
        written = {context.output: name for name, context in contexts.items()}
        # A tensor that another op writes shares the statistics of that op's output.
        self.read: dict[str, Activation] = {}
        for context in contexts.values():
            for tensor in context.reads:
                if tensor.name in written:
                    self.read[tensor.name] = self.ops[written[tensor.name]].output
                elif tensor.name not in self.read:
                    self.read[tensor.name] = Activation(tensor.axis, limits[tensor.name], histogram=False)
        self.wanted = tuple(name for name in self.read if name not in written)
        self.outputs = ErrorStatistics()
        self._model = ModelFigures(model_metrics)

    def add(self, local: LocalRun, quantized: QuantizedRun | None, samples: int) -> None:
        """Add one batch. Without a quantized model there are only float values."""
        for name, (before, after) in local.ops.items():
            running = None if quantized is None else quantized.ops.get(name)
            record = self.ops[name] if name in self.ops else self.other_operators[name]
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
        for float_output, quantized_output in zip(before, after, strict=True):
            if float_output.dtype.kind == "f" and float_output.shape == quantized_output.shape and float_output.size:
                cut_layout = layout(float_output.shape, 1, None)
                pieces, form = cut(float_output, cut_layout), cut(quantized_output, cut_layout)
                survey_result = survey(pieces, [form], cut_layout)
                self.outputs.add(pieces, form, survey_result.differences[0], float(survey_result.signal.sum()))
        self._model.add(before, after, samples)

    def model_figures(self) -> dict[str, float]:
        """Return the user's figures of the model, each the mean over all samples."""
        return self._model.figures()


def _tensors(context: OpContext) -> Iterable[ActivationContext]:
    return (*context.reads, *(() if context.writes is None else (context.writes,)))
