"""The float model that latencies are compared with."""

from __future__ import annotations

from quaver.adapters import Adapter, Model, abilities
from quaver.adapters.data import samples
from quaver.engine.timing.latency import measure
from quaver.engine.timing.objective import as_deployed
from quaver.history import History


class FloatBaseline:
    """The faster one of the float model as given and as it was optimised; the same one if nothing was rewritten.

    What both take is recorded with the baseline: `latency_ms` and `latency_spread` of the optimised model,
    `as_given_ms` of the one given if that is another, and `batch` and `threads` of all latencies.
    """

    def __init__(self, adapter: Adapter, history: History) -> None:
        self._adapter, self._history = adapter, history
        self._model: Model | None = None

    def __call__(self) -> Model:
        """The model, built and measured when it is first asked for."""
        if self._model is None:
            self._model = self._faster()
        return self._model

    def close(self) -> None:
        """Let go of it."""
        self._model = None

    def _faster(self) -> Model:
        models = [as_deployed(self._adapter.assemble(None))]
        if not self._adapter.probe_samples:
            return models[0]
        if abilities.rewrites(self._adapter):
            models.append(as_deployed(abilities.build_unmodified(self._adapter)))
        feed = self._adapter.timing_feed
        taken = measure(models, feed)
        figures = {
            "latency_ms": 1e3 * taken[0].seconds,
            "latency_spread": taken[0].spread,
            "batch": float(samples(feed)),
            "threads": float(models[0].threads),
        }
        if len(taken) > 1:
            figures["as_given_ms"] = 1e3 * taken[1].seconds
        self._history.measure(0, figures)
        return models[-1] if taken[-1].seconds < taken[0].seconds else models[0]
