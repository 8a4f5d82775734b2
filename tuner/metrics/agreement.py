"""Scores without labels: how well a model agrees with the fp32 model it was made from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.adapters import Model, open_given
from quaver.errors import EvaluationError, SettingsError
from quaver.metrics.inference import Data
from quaver.metrics.metric import Metric, Scores
from quaver.suggestions import check_known
from quaver.types import Array, ModelLike, PlainDict

# What the ratio of signal and noise is called that has none, in decibels.
NOISELESS = 100.0


def agreement(data: Any, kind: str = "top1", *, model: ModelLike = None, output: int = 0) -> Metric:
    """How well a model agrees with the fp32 model, sample by sample. Needs no labels.

    `fit` and `check` tell it which model is fp32; whoever calls it gives `model`, or uses `against`.

    Args:
        data: samples, as for `top1`; what follows the inputs in a batch is left out.
        kind: "top1" is whether the largest output is the same, "cosine" that of the angle between both outputs, "sqnr"
            the ratio of signal and quantization noise in decibels, 100 at most. The fp32 model scores 1, 1 and 100.
        model: the fp32 model: a path, bytes, whatever `fit` takes.
        output: which output of the model to look at.
    """
    check_known("kind", kind, KINDS)
    return _Agreement(kind, Data(data, needs_labels=False), output, None if model is None else _Opened(model))


class _Opened:
    """A model that is opened when it is needed; nothing that is open is sent to another process."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def __call__(self) -> Model:
        """The model."""
        return open_given(self._source)


class _Agreement(Metric):
    def __init__(self, kind: str, data: Data, output: int, fp32: Callable[[], Model] | None) -> None:
        super().__init__(f"agreement_{kind}", data, output)
        self._kind, self._fp32 = kind, fp32
        self._reference: list[Array] | None = None

    @property
    def sample_scores(self) -> int | None:
        """Return how many samples there are, if that can be told before they are run: each has a score."""
        return self._data.count

    def against(self, fp32: Callable[[], Model]) -> Metric:
        """The same metric for another fp32 model, which is run once, when it is needed."""
        return _Agreement(self._kind, self._data, self._output, fp32)

    def __call__(self, model: Model) -> Iterator[dict[str, Scores]]:
        """How each sample agrees, batch by batch."""
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
            made = [self._chosen(batch) for batch in self._data.run(self._fp32())]
            self._reference = [one.argmax(axis=-1) for one in made] if self._kind == "top1" else made
        return iter(self._reference)

    def __getstate__(self) -> PlainDict:
        """What another process gets: it finds the outputs of the fp32 model by itself."""
        return {**self.__dict__, "_reference": None}


def _top1(expected: Array, output: Array) -> Any:
    """`expected` are the classes already."""
    same = output.argmax(axis=-1) == expected
    return same.reshape(len(same), -1).mean(axis=1)


def _cosine(expected: Array, output: Array) -> Any:
    one, other = (side.reshape(len(side), -1).astype(np.float64) for side in (expected, output))
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    zero = (one == other).all(axis=1)
    return np.where(zero, 1.0, (one * other).sum(axis=1) / np.maximum(lengths, 1e-300)).clip(-1, 1)


def _sqnr(expected: Array, output: Array) -> Any:
    one, other = (side.reshape(len(side), -1).astype(np.float64) for side in (expected, output))
    signal, noise = np.square(one).sum(axis=1), np.square(one - other).sum(axis=1)
    ratio = 10 * np.log10(np.maximum(signal, 1e-300) / np.maximum(noise, 1e-300))
    return np.where(noise == 0, NOISELESS, np.clip(ratio, 0.0, NOISELESS))


KINDS: dict[str, Callable[[Array, Array], Any]] = {"top1": _top1, "cosine": _cosine, "sqnr": _sqnr}


def disagreements(data: Any, model: ModelLike, *quantized: Any, output: int = 0) -> NDArray[np.int64]:
    """The numbers of the samples on which a quantized model says another class than the fp32 model.

    On all others both are right or both are wrong, whatever the label: what is lost, in samples, depends on these
    alone. So label them, give all others any label (0), and judge by `top1` with `absolute=`.

    Args:
        data: samples, as for `top1`; what follows the inputs in a batch is left out.
        model: the fp32 model: what `fit` takes, or a `quaver.Model`.
        quantized: one or more quantized models, of any maker.
        output: which output of the models holds the classes, along its last axis.
    """
    if not quantized:
        raise SettingsError("disagreements needs a quantized model besides the fp32 one")
    samples = Data(data, needs_labels=False)
    expected = _classes(samples, model, output)
    differ = np.zeros(len(expected), bool)
    for one in quantized:
        found = _classes(samples, one, output)
        if found.shape != expected.shape:
            raise SettingsError(f"the models give classes of shapes {expected.shape} and {found.shape}")
        differ |= (found != expected).reshape(len(found), -1).any(axis=1)
    return np.flatnonzero(differ)


def _classes(data: Data, model: ModelLike, output: int) -> NDArray[np.int64]:
    opened = model if isinstance(model, Model) else open_given(model)
    return np.concatenate([batch.outputs[output].argmax(axis=-1) for batch in data.run(opened)])
