"""Metrics of language models: perplexity, and how far the next token is from that of the fp32 model."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from quaver.adapters import Model, load_unmodified
from quaver.errors import EvaluationError, SettingsError
from quaver.metrics.inference import Batch, Data, SampleData
from quaver.metrics.metric import Metric, Scores
from quaver.types import Array, Feed, ModelLike, PlainDict

_KINDS = ("kl_divergence", "same_top_token")


def perplexity(data: SampleData, *, output: int = 0, tokens: str = "input_ids") -> Metric:
    """Score how well a language model predicts a text: the exponential of the mean loss of a token. Lower is better.

    Each position predicts the token after it. Positions that the attention mask leaves out do not count.

    Args:
        data: texts as token numbers, in any form that `calib_dataloader` has; no labels are needed.
        output: index of the output with the scores of all tokens.
        tokens: name of the input with token numbers.
    """
    return _Perplexity(Data(data, needs_labels=False), output, tokens)


def kl_divergence(data: SampleData, *, model: ModelLike = None, output: int = 0) -> Metric:
    """Score how far the next token of a model is from that of the fp32 model: the Kullback-Leibler divergence in nats.

    It is 0 for the fp32 model, and needs no labels. Use it with `absolute=`. `fit` and `check` set the fp32 model.

    Args:
        data: texts as token numbers, in any form that `calib_dataloader` has.
        model: the fp32 model, in any form that `fit` accepts.
        output: index of the output with the scores of all tokens.
    """
    return _Divergence("kl_divergence", Data(data, needs_labels=False), output, _opener(model))


def same_top_token(data: SampleData, *, model: ModelLike = None, output: int = 0) -> Metric:
    """Score how often the most probable next token is that of the fp32 model. The fp32 model scores 1.

    Args:
        data: texts as token numbers, in any form that `calib_dataloader` has.
        model: the fp32 model, in any form that `fit` accepts.
        output: index of the output with the scores of all tokens.
    """
    return _Divergence("same_top_token", Data(data, needs_labels=False), output, _opener(model))


def log_probabilities(scores: Array) -> Array:
    """Return the log probability of each token from scores, along the last axis."""
    shifted = np.asarray(scores, np.float32)
    shifted = shifted - shifted.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return np.asarray(shifted)


def _opener(model: ModelLike) -> Callable[[], Model] | None:
    return None if model is None else lambda: load_unmodified(model)


def _real_positions(feed: Feed, shape: tuple[int, ...]) -> Array:
    """Return which positions hold tokens: those of the attention mask, if there is one of this shape."""
    mask = feed.get("attention_mask")
    return np.asarray(mask, bool) if mask is not None and np.shape(mask) == shape else np.ones(shape, bool)


class _LanguageMetric(Metric):
    def scores_of(self, batch: Batch) -> Array:
        scores = self._chosen(batch)
        if scores.ndim != 3:
            raise EvaluationError(
                f"{self.name} needs scores of shape (texts, positions, tokens), not {scores.shape}: set `output=`"
            )
        return scores


class _Perplexity(_LanguageMetric):
    def __init__(self, data: Data, output: int, tokens: str) -> None:
        super().__init__("perplexity", data, output, higher_is_better=False)
        self._tokens = tokens

    def __call__(self, model: Model) -> dict[str, float]:
        """Score all texts together: perplexity is no mean of samples."""
        loss, count = 0.0, 0
        for feed, batch in self._data.run_with_feeds(model):
            scores = self.scores_of(batch)
            if self._tokens not in feed:
                raise SettingsError(
                    f"perplexity reads token numbers from the input {self._tokens!r}, and the model has: "
                    f"{', '.join(feed)}; set `tokens=`"
                )
            ids = np.asarray(feed[self._tokens])
            if ids.shape != scores.shape[:2]:
                raise EvaluationError(f"perplexity: {ids.shape} tokens do not fit scores of shape {scores.shape}")
            counted = _real_positions(feed, ids.shape)[:, 1:]
            chosen = np.take_along_axis(log_probabilities(scores[:, :-1]), ids[:, 1:, None], -1)[..., 0]
            loss -= float(chosen[counted].sum(dtype=np.float64))
            count += int(counted.sum())
        if not count:
            raise EvaluationError("perplexity: there are no tokens to predict; a text needs two at least")
        return {self.name: float(np.exp(loss / count))}


class _Divergence(_LanguageMetric):
    def __init__(self, kind: str, data: Data, output: int, fp32: Callable[[], Model] | None) -> None:
        super().__init__(kind, data, output, higher_is_better=kind != "kl_divergence")
        self._fp32 = fp32
        self._reference: list[Array] | None = None

    @property
    def sample_scores(self) -> int | None:
        """Return the number of texts if it is known before they run; each has a score."""
        return self._data.count

    def against(self, fp32: Callable[[], Model]) -> Metric:
        """Return this metric for another fp32 model, which runs once, on first use."""
        return _Divergence(self.name, self._data, self._output, fp32)

    def __call__(self, model: Model) -> Iterator[dict[str, Scores]]:
        """Yield the score of each text, batch by batch."""
        reference = iter(self._expected())
        for feed, batch in self._data.run_with_feeds(model):
            expected, scores = next(reference, None), self.scores_of(batch)
            if expected is None or expected.shape[:2] != scores.shape[:2]:
                raise EvaluationError(f"{self.name}: scores of shape {scores.shape} do not match fp32's")
            if self.name == "kl_divergence":
                wide = expected.astype(np.float32)
                tokens = (np.exp(wide) * (wide - log_probabilities(scores))).sum(axis=-1)
            else:
                tokens = (scores.argmax(axis=-1) == expected).astype(np.float64)
            real = _real_positions(feed, tokens.shape)
            means = np.where(real, tokens, 0).sum(axis=1) / np.maximum(real.sum(axis=1), 1)
            yield {self.name: np.asarray(means, np.float64)}

    def _expected(self) -> list[Array]:
        """Return what the fp32 model says: log probabilities in half precision, or the most probable tokens."""
        if self._reference is None:
            if self._fp32 is None:
                raise EvaluationError(
                    f"{self.name} does not know the fp32 model: give {self.name}(data, model=...), or call "
                    "`metric.against(lambda: fp32_model)`"
                )
            scores = [self.scores_of(batch) for _, batch in self._data.run_with_feeds(self._fp32())]
            is_divergence = self.name == "kl_divergence"
            self._reference = [
                log_probabilities(array).astype(np.float32) if is_divergence else array.argmax(axis=-1)
                for array in scores
            ]
        return self._reference

    def __getstate__(self) -> PlainDict:
        """Leave out the outputs of the fp32 model, which another process computes by itself."""
        return {**self.__dict__, "_reference": None}
