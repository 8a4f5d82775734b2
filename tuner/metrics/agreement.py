"""Metrics without labels: how well a quantized model agrees with its fp32 model, and which samples need labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from quaver.adapters import Model, load_unmodified
from quaver.errors import EvaluationError, SettingsError
from quaver.metrics.inference import Data, SampleData
from quaver.metrics.metric import Metric, Scores
from quaver.suggestions import check_known
from quaver.types import Array, ModelLike, PlainDict

# The signal-to-noise ratio, in decibels, of an output without any noise, where the true ratio is infinite.
MAX_SQNR = 100.0


def agreement(data: SampleData, kind: str = "top1", *, model: ModelLike = None, output: int = 0) -> Metric:
    """Score how well a model agrees with the fp32 model, sample by sample; no labels are needed.

    `fit` and `check` set the fp32 model. To call the metric yourself, pass `model` or use `against`.

    Args:
        data: samples, as for `top1`; labels in a batch are ignored.
        kind: "top1" compares the class with the largest output, "cosine" is the cosine similarity of both outputs,
            and "sqnr" is the signal-to-quantization-noise ratio in decibels, capped at 100. The fp32 model itself
            scores 1, 1 and 100.
        model: the fp32 model, in any form that `fit` accepts.
        output: index of the model output to compare.
    """
    check_known("kind", kind, KINDS)
    return _Agreement(kind, Data(data, needs_labels=False), output, None if model is None else _Opened(model))


class _Opened:
    """A model that is opened on first use, so that no open session is sent to another process."""

    def __init__(self, source: ModelLike) -> None:
        self._source = source

    def __call__(self) -> Model:
        """Open the model."""
        return load_unmodified(self._source)


class _Agreement(Metric):
    def __init__(self, kind: str, data: Data, output: int, fp32: Callable[[], Model] | None) -> None:
        super().__init__(f"agreement_{kind}", data, output)
        self._kind, self._fp32 = kind, fp32
        self._reference: list[Array] | None = None

    @property
    def sample_scores(self) -> int | None:
        """Return the number of samples if it is known before they run; each has a score."""
        return self._data.count

    def against(self, fp32: Callable[[], Model]) -> Metric:
        """Return this metric for another fp32 model, which runs once, on first use."""
        return _Agreement(self._kind, self._data, self._output, fp32)

    def __call__(self, model: Model) -> Iterator[dict[str, Scores]]:
        """Yield the agreement of each sample, batch by batch."""
        reference = self._expected()
        for batch in self._data.run(model):
            expected = next(reference, None)
            output = self._chosen(batch)
            if expected is None or len(expected) != batch.size or len(output) != batch.size:
                raise EvaluationError(
                    f"{self.name}: an output of shape {output.shape} for {batch.size} samples does not match fp32's"
                )
            yield {self.name: np.asarray(KINDS[self._kind](expected, output), dtype=np.float64)}

    def _expected(self) -> Iterator[Array]:
        if self._reference is None:
            if self._fp32 is None:
                raise EvaluationError(
                    f"{self.name} does not know the fp32 model: give agreement(data, model=...), or call "
                    "`metric.against(lambda: fp32_model)`"
                )
            outputs = [self._chosen(batch) for batch in self._data.run(self._fp32())]
            self._reference = [output.argmax(axis=-1) for output in outputs] if self._kind == "top1" else outputs
        return iter(self._reference)

    def __getstate__(self) -> PlainDict:
        """Leave out the outputs of the fp32 model, which another process computes by itself."""
        return {**self.__dict__, "_reference": None}


def _top1(expected: Array, output: Array) -> Array:
    """Compare classes; `expected` holds those of the fp32 model."""
    same = output.argmax(axis=-1) == expected
    shares: Array = same.reshape(len(same), -1).mean(axis=1)
    return shares


def _cosine(expected: Array, output: Array) -> Array:
    fp32, quantized = (side.reshape(len(side), -1).astype(np.float64) for side in (expected, output))
    lengths = np.linalg.norm(fp32, axis=1) * np.linalg.norm(quantized, axis=1)
    is_equal = (fp32 == quantized).all(axis=1)
    return np.where(is_equal, 1.0, (fp32 * quantized).sum(axis=1) / np.maximum(lengths, 1e-300)).clip(-1, 1)


def _sqnr(expected: Array, output: Array) -> Array:
    fp32, quantized = (side.reshape(len(side), -1).astype(np.float64) for side in (expected, output))
    signal, noise = np.square(fp32).sum(axis=1), np.square(fp32 - quantized).sum(axis=1)
    ratio = 10 * np.log10(np.maximum(signal, 1e-300) / np.maximum(noise, 1e-300))
    return np.where(noise == 0, MAX_SQNR, np.clip(ratio, 0.0, MAX_SQNR))


KINDS: dict[str, Callable[[Array, Array], Array]] = {"top1": _top1, "cosine": _cosine, "sqnr": _sqnr}


def disagreements(data: SampleData, model: ModelLike, *quantized: ModelLike, output: int = 0) -> NDArray[np.int64]:
    """Return the indexes of the samples that a quantized model classifies differently from the fp32 model.

    On every other sample both models are right or both are wrong, so the loss depends on these samples alone. Label
    them, give all others any label (0), and judge by `top1` with `absolute=`.

    Args:
        data: samples, as for `top1`; labels in a batch are ignored.
        model: the fp32 model, in any form that `fit` accepts, or a `quaver.Model`.
        quantized: one or more quantized models, made by any tool.
        output: index of the output that holds the classes along its last axis.
    """
    if not quantized:
        raise SettingsError("disagreements needs at least one quantized model after the fp32 model")
    samples = Data(data, needs_labels=False)
    expected = _classes(samples, model, output)
    differ = np.zeros(len(expected), bool)
    for source in quantized:
        classes = _classes(samples, source, output)
        if classes.shape != expected.shape:
            raise SettingsError(f"the models give classes of shapes {expected.shape} and {classes.shape}")
        differ |= (classes != expected).reshape(len(classes), -1).any(axis=1)
    return np.flatnonzero(differ)


def _classes(data: Data, model: ModelLike, output: int) -> NDArray[np.int64]:
    opened = model if isinstance(model, Model) else load_unmodified(model)
    return np.concatenate([batch.outputs[output].argmax(axis=-1) for batch in data.run(opened)])
