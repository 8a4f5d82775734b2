"""The answers of a probe about the weights of a language model: its table, and the divergence of a configuration."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from quaver.adapters import Adapter, abilities
from quaver.adapters.weight_study import SupportsWeightStudy
from quaver.engine.event_base import Stage
from quaver.engine.events import Progressed, StageStarted
from quaver.engine.measurement_runner import MeasurementRunner, ProcessDied
from quaver.engine.measurements import DIVERGENCE, Measurement
from quaver.engine.observers import Observer
from quaver.history import History
from quaver.history.records.choices import from_choice, to_choices
from quaver.ops import QuantConfig
from quaver.probe import Probe
from quaver.types import PlainDict, PlainMapping
from quaver.weight_table import WeightOption, WeightTable

TABLE, GROUPS, CONFIGS = "probe.weight_table", "probe.weight_groups", "probe.divergence"
# Seconds between notes while groups are measured, so that a crash loses little. Judgement.
_NOTE_SECONDS = 10.0


class WeightProbe(Probe):
    """Measures divergences with an adapter that supports it, and records them in the history."""

    _adapter: Adapter
    _history: History
    _observer: Observer
    _runner: MeasurementRunner

    @abstractmethod
    def check_time(self) -> None:
        """Raise if the run has no time for another measurement."""

    def weight_table(self) -> WeightTable | None:
        if TABLE not in self._history.notes:
            if not self._adapter.probe_samples or not abilities.supports(self._adapter, SupportsWeightStudy):
                return None
            adapter: SupportsWeightStudy = self._adapter
            groups = adapter.weight_groups()
            if not groups:
                return None
            table = adapter.weight_table(self._group_divergences(adapter, groups))
            self._history.note(TABLE, _to_records(table))
        return _from_records(self._history.notes[TABLE])

    def _group_divergences(self, adapter: SupportsWeightStudy, groups: Sequence[Sequence[str]]) -> list[float]:
        """Measure the groups that the history does not hold yet."""
        self._observer(StageStarted(Stage.WEIGHTS))
        measured: list[float] = list(self._history.notes.get(GROUPS, ()))
        last_note = time.monotonic()
        try:
            for done in range(len(measured), len(groups)):
                self.check_time()
                measured.append(adapter.group_divergence(groups[done]))
                self._observer(Progressed(Stage.WEIGHTS, done + 1, len(groups)))
                if time.monotonic() - last_note > _NOTE_SECONDS:
                    self._history.note(GROUPS, list(measured))
                    last_note = time.monotonic()
        finally:
            self._history.note(GROUPS, list(measured))
        return measured

    def divergence(self, config: QuantConfig) -> float:
        key = config.fingerprint
        if key not in self._history.notes.get(CONFIGS, {}):
            self.check_time()
            try:
                divergence = float(self._runner.run(Measurement(DIVERGENCE, (config,))))
            except ProcessDied:
                divergence = math.inf
            self._history.extend_note(CONFIGS, {key: divergence})
        return float(self._history.notes[CONFIGS][key])


def recorded_table(notes: PlainMapping) -> WeightTable | None:
    """Return the weight table of a run from the notes of its history; None if it tuned no language model."""
    return _from_records(notes[TABLE]) if TABLE in notes else None


def _to_records(table: WeightTable) -> list[list[PlainDict]]:
    return [
        [
            {
                "picks": {name: from_choice(choice) for name, choice in option.picks.items()},
                "bytes": option.bytes,
                "divergence": option.divergence,
            }
            for option in options
        ]
        for options in table.weights
    ]


def _from_records(records: Any) -> WeightTable:
    return WeightTable([[_option(record) for record in options] for options in records])


def _option(record: Any) -> WeightOption:
    picks = {name: to_choices([choice])[0] for name, choice in record["picks"].items()}
    return WeightOption(picks, int(record["bytes"]), float(record["divergence"]))
