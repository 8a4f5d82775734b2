"""The probe that strategies get: an adapter, a few calibration samples, and a memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.adapters.base import Adapter, RunnableModel
from quaver.errors import CalibrationError
from quaver.history import History
from quaver.ops import QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.watch import Observer

Outputs = list[NDArray[np.float64]]


class AdapterProbe(Probe):
    """Measures with an adapter. Results are noted in the history, so that a resumed run sees the same figures."""

    def __init__(self, adapter: Adapter, space: TuningSpace, history: History, observer: Observer) -> None:
        self._adapter, self._space, self._history, self._observer = adapter, space, history, observer
        self._reference: list[Outputs] | None = None
        self._errors: dict[str, float] = dict(history.notes.get("probe.output_error", {}))

    def sensitivity(self) -> Mapping[str, float]:
        names = self._space.tunable
        known: dict[str, float] = dict(self._history.notes.get("probe.sensitivity", {}))
        missing = [name for name in names if name not in known]
        for done, name in enumerate(missing):
            self._observer.progress("measuring the sensitivity of ops", done, len(missing))
            config = self._space.only_int8(name)
            known[name] = self._measure(config)
        if missing:
            self._observer.progress("measuring the sensitivity of ops", len(missing), len(missing))
            self._history.note("probe.sensitivity", known)
        return {name: known[name] for name in names}

    def output_error(self, config: QuantConfig) -> float:
        key = config.fingerprint
        if key not in self._errors:
            self._errors[key] = self._measure(config)
            self._history.note("probe.output_error", dict(self._errors))
        return self._errors[key]

    def _measure(self, config: QuantConfig) -> float:
        if self._reference is None:
            self._reference = self._run(self._adapter.rebuild(None))
        return relative_error(self._reference, self._run(self._adapter.rebuild(config)))

    def _run(self, model: RunnableModel) -> list[Outputs]:
        if not self._adapter.kept:
            raise CalibrationError(
                "this strategy measures ops on calibration samples, and there are none: pass calib_dataloader, also to "
                "a resumed run"
            )
        results = [as_outputs(model.run(feed)) for feed in self._adapter.kept]
        model.close()
        return results


def as_outputs(result: Any) -> Outputs:
    """What a model gave, as a list of float arrays."""
    return [np.asarray(part, np.float64) for part in (result if isinstance(result, list) else [result])]


def relative_error(reference: list[Outputs], other: list[Outputs]) -> float:
    """Squared error over squared signal, summed over samples and averaged over outputs; inf if not finite."""
    errors = []
    for index in range(len(reference[0])):
        signal = sum(float(np.sum(np.square(sample[index]))) for sample in reference)
        noise = sum(float(np.sum(np.square(a[index] - b[index]))) for a, b in zip(reference, other, strict=True))
        errors.append(noise / signal if signal > 0 else noise)
    error = float(np.mean(errors))
    return error if np.isfinite(error) else float("inf")
