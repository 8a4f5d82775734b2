"""The subject of `diagnose` and `profile`: a configuration of a run, or a quantized model."""

from __future__ import annotations

import os
from dataclasses import dataclass

from quaver.adapters.calibration.stored import stored_skipped_rewrites
from quaver.api.result import TuneResult
from quaver.engine.compatibility import ops_version_of, was_optimised, was_portable
from quaver.errors import SettingsError
from quaver.files.paths import expanded
from quaver.history import Snapshot, read_snapshot
from quaver.ops import QuantConfig
from quaver.trial import Trial
from quaver.types import ModelLike, PlainMapping


@dataclass(frozen=True, slots=True)
class Subject:
    """A configuration or a quantized model, and the run that it belongs to.

    Attributes:
        config: the configuration; None for a quantized model, or if nothing is named.
        file: the quantized model, in a form that the adapter accepts; None for a configuration.
        snapshot: the run that the calibration comes from; None without one.
    """

    config: QuantConfig | None
    file: ModelLike
    snapshot: Snapshot | None

    @property
    def settings(self) -> PlainMapping:
        """Return the settings that the run recorded; empty without a run."""
        return {} if self.snapshot is None else self.snapshot.run.settings

    @property
    def left_out(self) -> tuple[str, ...]:
        """Return the rewrites of the float graph that the run left out."""
        return () if self.snapshot is None else stored_skipped_rewrites(self.snapshot.header.calibration)

    @property
    def optimised(self) -> bool:
        """Return whether to rewrite the float graph: as the run did, else for a configuration only."""
        return self.file is None if self.snapshot is None else was_optimised(self.settings)

    @property
    def ops_version(self) -> int:
        """Return which ops to find: those of the run; in a file of another tool also ops with mask values."""
        if self.snapshot is None:
            return ops_version_of(None, {}) if self.file is None else 1
        return ops_version_of(self.snapshot.header, self.settings)

    @property
    def portable(self) -> bool:
        """Return whether int8 weights are bounded for processors without VNNI, as the run did it or by default."""
        return self.file is None if self.snapshot is None else was_portable(self.settings)


def find_subject(value: ModelLike, history: str | os.PathLike[str] | None, verb: str) -> Subject:
    """Return the subject that a result, a trial, its number, a configuration or a quantized model stands for."""
    if isinstance(value, TuneResult):
        if value.best is None:
            raise SettingsError(f"the result has no best trial to {verb}: none of its trials has a score")
        history = value.history_path if history is None else history
        value = value.best
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_number and history is None:
        raise SettingsError(f"trial {value} of which run? Pass its workspace as history")
    if history is not None and value is not None and not is_number and not isinstance(value, Trial | QuantConfig):
        raise SettingsError(
            f"pass a quantized model, or a history to {verb} one of its trials, not both: a model needs no run"
        )
    snapshot = None if history is None else read_snapshot(expanded(history))
    if is_number and snapshot is not None:
        value = snapshot.trial(value)
    if isinstance(value, Trial):
        value = value.config
    if isinstance(value, QuantConfig):
        return Subject(value, None, snapshot)
    return Subject(None, expanded(value), snapshot)
