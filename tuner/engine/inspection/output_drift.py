"""Output drift: the difference between the outputs of the best model and the float model's, whatever the score.

A rank metric can hide it: a detector keeps its AUC while its probabilities fall by half, and every threshold that was
chosen for the float model is wrong. So the drift is measured once at the end of a run, on the probe samples, and noted
in the history, where the command line, the page and the report read it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.adapters import Adapter, Model
from quaver.adapters.data import count_samples
from quaver.engine.inspection.output_error import is_array
from quaver.history import History
from quaver.history.pickle_check import MalformedRecord
from quaver.history.records.fields import Fields
from quaver.trial import Trial
from quaver.types import Array, Feed, PlainMapping

log = logging.getLogger(__name__)

# The note of the drift of the best trial.
NOTE = "output_drift"
# Seconds after which no further sample is run. The kept samples are 32 at most, so that few models reach it.
MAX_SECONDS = 10.0
# Outputs that are compared, the first ones first: a decoder may have a cache of hundreds.
MAX_OUTPUTS = 64
# A relative error of 0.3 is a signal-to-noise ratio of 10 dB: the noise has a tenth of the power of the output. Models
# that were tuned with calibrated int8 ranges have 0.01 to 0.1 (docs/scores.md).
MAX_RELATIVE_ERROR = 0.3
# Where fewer predictions than this agree and the error is not small either, predictions changed that were no near-ties.
MIN_TOP1_AGREEMENT = 0.9
SMALL_ERROR = 0.1
# A mean probability that moved by more than this moves every decision threshold with it.
MAX_MEAN_SHIFT = 0.1


@dataclass(frozen=True, slots=True)
class OutputComparison:
    """One output of the quantized model compared with the float model's, over all samples.

    Attributes:
        index: which output of the model it is, counted from 0.
        relative_error: norm of the difference divided by the norm of the float output; None if it is not made of
            floating-point numbers, or its shape depends on the data.
        agreement: share of predictions that are the same: of the largest value of class scores, of whole numbers and
            texts. None where an output is no prediction.
        float_mean: mean of the float model's output; None where there is no relative error.
        quantized_mean: mean of the quantized model's output.
        is_probability: True if all values of the float output lie between 0 and 1.
    """

    index: int
    relative_error: float | None = None
    agreement: float | None = None
    float_mean: float | None = None
    quantized_mean: float | None = None
    is_probability: bool = False

    @property
    def mean_shift(self) -> float:
        """The change of the mean of a probability; 0 for other outputs."""
        if not self.is_probability or self.float_mean is None or self.quantized_mean is None:
            return 0.0
        return abs(self.quantized_mean - self.float_mean)

    @property
    def is_far_off(self) -> bool:
        """True if the output differs so much that a good score must not be trusted without checking it."""
        error = self.relative_error
        if error is not None and (error > MAX_RELATIVE_ERROR or self.mean_shift > MAX_MEAN_SHIFT):
            return True
        is_small = error is not None and error <= SMALL_ERROR
        return self.agreement is not None and self.agreement < MIN_TOP1_AGREEMENT and not is_small


@dataclass(frozen=True, slots=True)
class OutputDrift:
    """The difference between the outputs of a trial and the float model's, on calibration samples.

    Attributes:
        trial: number of the trial.
        samples: the number of samples that both models ran.
        outputs: each output that could be compared.
    """

    trial: int
    samples: int
    outputs: tuple[OutputComparison, ...] = field(default=())

    @property
    def relative_error(self) -> float | None:
        """The relative error of the worst output; None if no output is made of floating-point numbers."""
        return max((item.relative_error for item in self.outputs if item.relative_error is not None), default=None)

    @property
    def top1_agreement(self) -> float | None:
        """The share of predictions that both models agree on, of the worst output; None if there are none."""
        return min((item.agreement for item in self.outputs if item.agreement is not None), default=None)

    @property
    def far_off(self) -> tuple[OutputComparison, ...]:
        """The outputs that differ so much from the float model's that the user must know."""
        return tuple(item for item in self.outputs if item.is_far_off)


def note_drift(adapter: Adapter, best: Trial, model: Model, history: History) -> None:
    """Measure the drift of the best trial and record it, unless it is recorded, or there are no samples.

    A failure does not end the run: the drift is missing, and the log says why.

    Args:
        adapter: builds the float model, and holds the probe samples.
        best: the trial.
        model: the model of the trial. Its session is closed afterwards.
        history: where the drift is noted.
    """
    if not adapter.probe_samples or drift_of(history.notes, best) is not None:
        return
    try:
        drift = measure_drift(adapter.assemble(None), model, adapter.probe_samples, best.number)
        outputs = [asdict(item) for item in drift.outputs]
        record = {"trial": best.number, "fingerprint": best.config.fingerprint, "samples": drift.samples}
        history.note(NOTE, {**record, "outputs": outputs})
    except Exception:
        log.warning("the outputs of the best model could not be compared with the float model's", exc_info=True)


def measure_drift(float_model: Model, quantized: Model, feeds: Sequence[Feed], trial: int = 0) -> OutputDrift:
    """Run both models on the same samples and compare each output.

    Args:
        float_model: the float model.
        quantized: the quantized model.
        feeds: the samples, in batches.
        trial: the number of the trial.
    """
    expected, count, begin = [], 0, time.monotonic()
    for feed in feeds:
        expected.append(_outputs(float_model.run(feed)))
        count += count_samples(feed)
        if time.monotonic() - begin > MAX_SECONDS / 2:
            break
    float_model.close()
    actual = [_outputs(quantized.run(feed)) for feed in feeds[: len(expected)]]
    quantized.close()
    width = min(len(outputs) for outputs in (*expected, *actual))
    compared = (
        compare_output(
            index,
            [outputs[index] for outputs in expected],
            [outputs[index] for outputs in actual],
            [count_samples(feed) for feed in feeds],
        )
        for index in range(min(width, MAX_OUTPUTS))
    )
    return OutputDrift(trial, count, tuple(item for item in compared if item is not None))


def compare_output(
    index: int, expected: Sequence[Any], actual: Sequence[Any], sizes: Sequence[int]
) -> OutputComparison | None:
    """Compare one output of two models, batch by batch.

    Args:
        index: which output it is.
        expected: the arrays of the float model.
        actual: those of the quantized model.
        sizes: the number of samples of each batch.

    Returns:
        None where nothing can be compared: maps, sequences, empty outputs, and outputs whose shape depends on the data
        (the boxes that a detector keeps), which say nothing about single values.
    """
    pairs = list(zip(expected, actual, strict=True))
    if not all(is_array(a) and is_array(b) for a, b in pairs):
        return None
    arrays = [(np.asarray(a), np.asarray(b)) for a, b in pairs]
    if any(a.shape != b.shape or not a.size or a.dtype.kind != b.dtype.kind for a, b in arrays):
        return None
    kind = arrays[0][0].dtype.kind
    if kind in "iubUSO":
        same = sum(int(np.count_nonzero(a == b)) for a, b in arrays)
        return OutputComparison(index, agreement=same / sum(a.size for a, _ in arrays))
    if kind != "f":
        return None
    with np.errstate(all="ignore"):  # what is not finite is found below
        return _compare_numbers(index, arrays, sizes)


def _compare_numbers(
    index: int, arrays: Sequence[tuple[Array, Array]], sizes: Sequence[int]
) -> OutputComparison | None:
    wide = [(a.astype(np.float64), b.astype(np.float64)) for a, b in arrays]
    signal = math.sqrt(sum(float(np.square(a).sum()) for a, _ in wide))
    noise = math.sqrt(sum(float(np.square(a - b).sum()) for a, b in wide))
    error = noise / signal if signal > 0 else noise
    total = sum(a.size for a, _ in wide)
    means = [sum(float(pair[side].sum()) for pair in wide) / total for side in (0, 1)]
    if not all(map(math.isfinite, (signal, error, *means))):
        return OutputComparison(index, relative_error=math.inf) if math.isfinite(signal) else None
    return OutputComparison(
        index,
        relative_error=error,
        agreement=_top1_agreement(wide, sizes),
        float_mean=means[0],
        quantized_mean=means[1],
        is_probability=all(bool((a >= 0).all() and (a <= 1).all()) for a, _ in wide),
    )


def _top1_agreement(pairs: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]], sizes: Sequence[int]) -> Any:
    """Return how often the largest class score is the same; None if the output does not look like class scores."""
    axis = _class_axis([a for a, _ in pairs], sizes)
    if axis is None:
        return None
    same = [a.argmax(axis=axis) == b.argmax(axis=axis) for a, b in pairs]
    return float(sum(int(part.sum()) for part in same) / sum(part.size for part in same))


def _class_axis(arrays: Sequence[NDArray[np.float64]], sizes: Sequence[int]) -> int | None:
    """Return the axis along which an output has a score for each class; None if it has none.

    Probabilities that add up to 1 are class scores, at any rank: along the last axis, or along the second one as in a
    segmentation with channels first. A table with a row for each sample holds class scores too, also logits, unless
    every row has the length 1: that is an embedding.
    """
    rank = arrays[0].ndim
    if rank < 2 or any(array.ndim != rank for array in arrays):
        return None
    for axis in dict.fromkeys((rank - 1, 1)):
        if all(array.shape[axis] > 1 and (array >= 0).all() for array in arrays) and all(
            np.allclose(array.sum(axis=axis), 1.0, atol=1e-2) for array in arrays
        ):
            return axis
    is_table = rank == 2 and all(
        array.shape[0] == size and array.shape[1] > 1 for array, size in zip(arrays, sizes, strict=False)
    )
    if not is_table or all(np.allclose(np.linalg.norm(array, axis=1), 1.0, atol=1e-2) for array in arrays):
        return None
    return 1


def _outputs(result: Any) -> list[Any]:
    return result if isinstance(result, list) else [result]


def drift_of(notes: PlainMapping, best: Trial | None) -> OutputDrift | None:
    """Return the recorded drift of a trial; None if there is none of it, or it cannot be read."""
    noted = notes.get(NOTE)
    if best is None or not isinstance(noted, dict) or noted.get("fingerprint") != best.config.fingerprint:
        return None
    try:
        fields = Fields({name: value for name, value in noted.items() if name != "fingerprint"}, NOTE)
        number, count, outputs = fields.take("trial", int), fields.take("samples", int), fields.take("outputs", list)
        if number != best.number or count < 0:
            return None
        return OutputDrift(number, count, tuple(map(_comparison, outputs[:MAX_OUTPUTS])))
    except (MalformedRecord, AttributeError, TypeError, ValueError) as error:
        log.warning("the recorded output drift cannot be read: %s", error)
        return None


def _comparison(record: Any) -> OutputComparison:
    fields = Fields(record, NOTE)
    figures = {}
    for name in ("relative_error", "agreement", "float_mean", "quantized_mean"):
        value = fields.take_any(name)
        if value is not None and not isinstance(value, float):
            raise MalformedRecord(f"{name} must be a number, not {value!r:.40}")
        figures[name] = None if value is None or math.isnan(value) else value
    return OutputComparison(fields.take("index", int), is_probability=fields.take("is_probability", bool), **figures)
