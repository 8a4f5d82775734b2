"""Type the settings as keywords, so that editors complete them and mypy checks them.

Written by `python docs/settings.py` from `quaver.Config`; do not edit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from quaver.engine.timing.objective import Objective
from quaver.strategies import Strategy
from quaver.types import PlainMapping


class Settings(TypedDict, total=False):
    """The settings of `quaver.Config`, each of them optional."""

    relative: float | Mapping[str, float] | None
    absolute: float | Mapping[str, float] | None
    higher_is_better: bool | Mapping[str, bool]
    slices: Any
    slice_limit: float | Mapping[str, float] | None
    confidence: float | None
    allow_any_loss: bool
    max_latency: float | None
    max_size: float | str | None
    max_bits: float | None
    early_stop: bool
    early_stop_delta: float
    confirm_tries: int
    strategy: str | type[Strategy] | Strategy
    strategy_options: PlainMapping
    objective: str | Callable[[Any], float] | Objective | type[Objective]
    timeout: float
    max_trials: int
    seed: int
    effort: str
    start_from: str | os.PathLike[str] | None
    width: int | None
    calibration_sampling_size: int | Sequence[int] | None
    op_name_dict: PlainMapping
    op_type_dict: PlainMapping
    quant_format: str | None
    optimise_float: bool
    portable: bool | None
    framework: str | None
    runtime: str | None
    threads: int
    batch: int
    timing_cache: bool
    cost_model: str | os.PathLike[str] | None
    n_jobs: int | None
    backend: str | None
    scheduler: str | None
    isolate: bool
    trial_timeout: float | str | None
    workspace: str | os.PathLike[str] | None
    resume: str | os.PathLike[str] | None
    report: bool
    insights: bool
    diagnosis: bool
    provenance: bool
