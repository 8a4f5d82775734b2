"""The keywords of `fit`, for editors and type checkers. A test keeps them equal to the fields of `Config`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from quaver.engine.objective import Objective
from quaver.strategies import Strategy


class Settings(TypedDict, total=False):
    """Every field of `quaver.Config`, none of them needed."""

    strategy: str | type[Strategy] | Strategy
    strategy_options: Mapping[str, Any]
    relative: float | Mapping[str, float] | None
    absolute: float | Mapping[str, float] | None
    higher_is_better: bool | Mapping[str, bool]
    slices: Any
    slice_limit: float | Mapping[str, float] | None
    confidence: float | None
    early_stop: bool
    early_stop_delta: float
    confirm_tries: int
    start_from: str | os.PathLike[str] | None
    allow_any_loss: bool
    timeout: float
    max_trials: int
    objective: str | Callable[[Any], float] | Objective | type[Objective]
    max_latency: float | None
    max_size: float | None
    cost_model: str | os.PathLike[str] | None
    seed: int
    calibration_sampling_size: int | Sequence[int] | None
    op_name_dict: Mapping[str, Any]
    op_type_dict: Mapping[str, Any]
    quant_format: str | None
    optimise_float: bool
    portable: bool | None
    timing_cache: bool
    threads: int
    batch: int
    diagnosis: bool
    report: bool
    insights: bool
    provenance: bool
    workspace: str | os.PathLike[str] | None
    resume: str | os.PathLike[str] | None
    framework: str | None
    n_jobs: int | None
    backend: str | None
    scheduler: str | None
    isolate: bool
    trial_timeout: float | str | None
    width: int | None
