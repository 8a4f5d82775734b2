"""A run without eval_func: the one model that needs no score, recorded as a trial that nobody evaluated."""

from __future__ import annotations

import time
from collections.abc import Callable

from quaver.adapters import Adapter, Model
from quaver.engine.dialogue import Dialogue
from quaver.engine.probing import OutOfTime
from quaver.history import Storage
from quaver.ops import QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies import Strategy
from quaver.trial import Trial, TrialState


def first_proposal(strategy: Strategy, space: TuningSpace, probe: Probe) -> QuantConfig:
    """What a strategy proposes before it has heard of any score; all int8 if it has no time to measure."""
    dialogue = Dialogue(strategy, space, probe)
    try:
        proposed = dialogue.ask()
    except OutOfTime:
        proposed = []
    finally:
        dialogue.close()
    return proposed[0] if proposed else space.all_int8()


def record_unscored(
    config: QuantConfig,
    space: TuningSpace,
    adapter: Adapter,
    history: Storage,
    measured: Callable[[Trial, Model], Trial],
) -> Trial:
    """Build a configuration, and record it beside the float model, which is trial 0."""
    if history.baseline is None:
        history.append(_built(0, space.float_config(), adapter, None)[0])
    number = max((trial.number for trial in history.trials), default=0) + 1
    trial, model = _built(number, config, adapter, config)
    history.append(trial)
    try:
        return measured(trial, model)
    finally:
        model.close()


def _built(number: int, config: QuantConfig, adapter: Adapter, picked: QuantConfig | None) -> tuple[Trial, Model]:
    begin = time.monotonic()
    model = adapter.build(picked)
    trial = Trial(
        number,
        config,
        TrialState.UNSCORED,
        model_hash=model.sha256,
        model_size=model.size,
        build_seconds=time.monotonic() - begin,
    )
    return trial, model
