"""A run without eval_func: the one model that needs no score, recorded as a trial that nobody evaluated."""

from __future__ import annotations

import time
from collections.abc import Callable

from quaver.adapters import Adapter, Model
from quaver.engine.crashes import check_baseline, let_go
from quaver.engine.dialogue import Dialogue
from quaver.engine.probing import OutOfTime
from quaver.errors import BuildError
from quaver.history import RETRIES, Storage
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
        check_baseline(history, space.float_config())
        history.append(_built(0, space.float_config(), adapter, history, None)[0])
    number = max((trial.number for trial in history.trials), default=0) + 1
    crashes = history.crashes(config)
    if crashes > RETRIES:
        raise BuildError(
            f"the process ended {crashes} times while the configuration that the strategy proposes was built (a crash, "
            "a kill, or no memory left), so it is not tried again: keep some ops in fp32 with op_name_dict or "
            "op_type_dict, or pass eval_func to let the strategy try others"
        )
    trial, model = _built(number, config, adapter, history, config)
    history.append(trial)
    try:
        return measured(trial, model)
    finally:
        model.close()


def _built(
    number: int, config: QuantConfig, adapter: Adapter, history: Storage, picked: QuantConfig | None
) -> tuple[Trial, Model]:
    """Build a model that is recorded as begun meanwhile; recording its trial ends that."""
    begin = time.monotonic()
    history.begin_trial(number, config)
    try:
        model = adapter.build(picked)
        digest, size = model.sha256, model.size
    except BaseException:
        let_go(history, number)
        raise
    trial = Trial(
        number,
        config,
        TrialState.UNSCORED,
        model_hash=digest,
        model_size=size,
        build_seconds=time.monotonic() - begin,
    )
    return trial, model
