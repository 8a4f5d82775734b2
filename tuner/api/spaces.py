"""The space of a run: the ops of a model, narrowed by rules and by what is known of it."""

from __future__ import annotations

from dataclasses import replace

from quaver.adapters import Adapter
from quaver.api.settings import Config
from quaver.engine.objective import Objective, Size
from quaver.errors import SettingsError
from quaver.rules import apply_rules
from quaver.space import TuningSpace, smallest_first, without_calibration


def space_of(adapter: Adapter, config: Config, objective: Objective, calibrated: bool) -> TuningSpace:
    """What may be chosen. Where size counts, by default all that gets smaller is reduced, and nothing else."""
    offered = adapter.inspect()
    if isinstance(objective, Size):  # before the rules, which may leave no choice by which a weight is known
        offered = smallest_first(offered)
    ops = apply_rules(offered, config.op_name_dict, config.op_type_dict)
    if not any(op.quantizable for op in ops):
        raise SettingsError("op_name_dict and op_type_dict leave nothing to quantize")
    ops = tuple(replace(op, smaller=()) for op in ops)  # who did not ask for what only gets smaller does not get it
    space = TuningSpace(ops if calibrated else without_calibration(ops))
    if not calibrated and not space.quantizable:
        raise SettingsError(
            "calib_dataloader is needed for this model: none of its ops can run in 8 bits without calibrated ranges. A "
            "few hundred typical inputs will do, without labels"
        )
    if not calibrated and not space.all_int8().reduced_ops:
        raise SettingsError(
            "without calibration data nothing in this model gets faster in 8 bits, only smaller: pass calib_dataloader "
            '(a few hundred typical inputs, without labels), or objective="size"'
        )
    return space
