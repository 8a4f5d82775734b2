"""What `diagnose` and `profile` are asked to look at: a configuration of a run, or a quantized model."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from quaver.adapters.calibration.stored import stored_skipped_rewrites
from quaver.api.result import TuneResult
from quaver.engine.compatibility import ops_version_of, was_optimised, was_portable
from quaver.errors import SettingsError
from quaver.files.paths import expanded
from quaver.history import Snapshot, read_snapshot
from quaver.ops import QuantConfig
from quaver.trial import Trial
from quaver.types import PlainMapping


@dataclass(frozen=True, slots=True)
class Target:
    """What is meant.

    Attributes:
        config: a configuration; None if a quantized model is meant, or nothing in particular.
        file: an already quantized model, in a form that the adapter knows; None if there is none.
        snapshot: the run that trials and calibration come from; None if there is none.
    """

    config: QuantConfig | None
    file: Any
    snapshot: Snapshot | None

    @property
    def settings(self) -> PlainMapping:
        """The settings of the run, as it recorded them; empty without one."""
        return {} if self.snapshot is None else self.snapshot.run.settings

    @property
    def left_out(self) -> tuple[str, ...]:
        """Rewrites of the float graph that the run was made without."""
        return () if self.snapshot is None else stored_skipped_rewrites(self.snapshot.header.calibration)

    @property
    def optimised(self) -> bool:
        """Whether the float graph is rewritten: as the run did it; without one, unless a quantized model is meant."""
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


def find_target(given: Any, history: str | os.PathLike[str] | None, verb: str) -> Target:
    """Turn a result, a trial, its number, a configuration or a quantized model into what is meant by it."""
    if isinstance(given, TuneResult):
        if given.best is None:
            raise SettingsError(f"the result has no best trial to {verb}: none of its trials has a score")
        history = given.history_path if history is None else history
        given = given.best
    trial = isinstance(given, int) and not isinstance(given, bool)
    if trial and history is None:
        raise SettingsError(f"trial {given} of which run? Pass its workspace as history")
    if history is not None and given is not None and not trial and not isinstance(given, Trial | QuantConfig):
        raise SettingsError(
            f"give a quantized model or a history to {verb} one of its trials, not both: the model needs no calibration"
        )
    snapshot = None if history is None else read_snapshot(expanded(history))
    if trial and snapshot is not None:
        given = snapshot.trial(given)
    if isinstance(given, Trial):
        given = given.config
    if isinstance(given, QuantConfig):
        return Target(given, None, snapshot)
    return Target(None, expanded(given), snapshot)
