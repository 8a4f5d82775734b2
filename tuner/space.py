"""The tuning space that a strategy searches: the ops and their choices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from quaver.errors import SettingsError, StrategyError
from quaver.ops import BFLOAT, DETAILS, FLOAT, Op, OpConfig, QuantConfig
from quaver.repairs import name_of
from quaver.suggestions import hint


class TuningSpace:
    """The choices of each op, after the user's rules were applied."""

    def __init__(self, ops: Iterable[Op]) -> None:
        self.ops: tuple[Op, ...] = tuple(ops)
        self._by_name = {op.name: op for op in self.ops}
        self._choices = {op.name: frozenset(op.choices) for op in self.ops}
        self._names = [op.name for op in self.ops]
        self._offering_ops: dict[OpConfig, NDArray[np.bool_]] = {}

    def __len__(self) -> int:
        return len(self.ops)

    def __getitem__(self, name: str) -> Op:
        return self._by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __repr__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(op.kind for op in self.ops).most_common())
        return f"TuningSpace({kinds or 'no ops'})"

    @property
    def quantizable(self) -> tuple[str, ...]:
        """Names of the ops that may run in less than fp32, in graph order."""
        return tuple(op.name for op in self.ops if op.quantizable)

    @property
    def tunable(self) -> tuple[str, ...]:
        """Names of the ops that may run in less than fp32 or in fp32, in graph order: those that can fall back."""
        return tuple(op.name for op in self.ops if op.tunable)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of the quantizable ops, the most frequent first."""
        return tuple(kind for kind, _ in Counter(op.kind for op in self.ops if op.quantizable).most_common())

    def of_kind(self, kind: str) -> tuple[str, ...]:
        """Names of the quantizable ops of one kind, in graph order."""
        return tuple(op.name for op in self.ops if op.kind == kind and op.quantizable)

    def able_to_fall_back(self, config: QuantConfig) -> list[str]:
        """Names of the ops that a configuration runs in less than fp32 and that may run in fp32, in graph order."""
        return [name for name in self.tunable if config[name].quantized]

    def without(self, names: Iterable[str]) -> TuningSpace:
        """Return a smaller space, in which these ops stay in float where the rules allow it."""
        stay_float = {name for name in names if FLOAT in self._choices[name]}
        floats = {name: tuple(choice for choice in self[name].choices if not choice.quantized) for name in stay_float}
        return TuningSpace(replace(op, choices=floats.get(op.name, op.choices)) for op in self.ops)

    @property
    def repairs(self) -> tuple[str, ...]:
        """Each kind of repair that ops offer, once and of medium strength: for strategies that try them on all ops."""
        offered = dict.fromkeys(repair for op in self.ops for repair in op.repairs)
        kinds: dict[str, list[str]] = {}
        for repair in offered:
            kinds.setdefault(name_of(repair), []).append(repair)
        return tuple(strengths[len(strengths) // 2] for strengths in kinds.values())

    def repair(self, config: QuantConfig, *repairs: str) -> QuantConfig:
        """Return a configuration with these repairs added, on all ops that offer them."""
        return config.replace(
            {
                op.name: op.repaired(pick, *_joined(pick.repairs, repairs))
                for op in self.ops
                if op.repairs and (pick := config[op.name]).quantized
            }
        )

    def keep_fp32(self, *names: str) -> TuningSpace:
        """Return a smaller space, in which these ops stay in fp32. Its configurations lie in this one, too."""
        stay_fp32 = frozenset(names)
        return TuningSpace(replace(op, choices=(FLOAT,)) if op.name in stay_fp32 else op for op in self.ops)

    def default_config(self, **wanted: str) -> QuantConfig:
        """Return each op's default choice, or with `mode=`, `calibration=`, ... the choice closest to these values."""
        for field, value in wanted.items():
            if value not in DETAILS.get(field, ()):
                raise StrategyError(f"default_config({field}={value!r}): {hint(value, DETAILS.get(field, DETAILS))}")
        return self.configure(lambda op: closest(op.choices, wanted))

    def all_fp32(self) -> QuantConfig:
        """Return the configuration with every op in fp32 where the rules allow it."""
        return self.configure(lambda op: FLOAT)

    def float_config(self) -> QuantConfig:
        """Return the configuration of the float model: every op in fp32, whatever the rules say."""
        return QuantConfig((op.name, FLOAT) for op in self.ops)

    def only_int8(self, *names: str) -> QuantConfig:
        """Return the configuration with these ops in their first quantized choice, and all others in fp32."""
        chosen = {name: self[name] for name in names}
        return self.configure(lambda op: op.quantized_choices[0] if op.name in chosen and op.quantizable else FLOAT)

    def configure(self, choose: Callable[[Op], OpConfig]) -> QuantConfig:
        """Return a configuration from a function that picks for each op; a pick not offered becomes the default."""
        picks = ((op, choose(op)) for op in self.ops)
        return QuantConfig((op.name, pick if self._offers(op, pick) else op.choices[0]) for op, pick in picks)

    def allows(self, config: QuantConfig) -> bool:
        """Return True if a configuration lies in this space; vectorized, because thousands are checked."""
        if list(config) != self._names:
            same_ops = config.keys() == self._choices.keys()
            return same_ops and all(self._offers(self[name], pick) for name, pick in config.items())
        choices, picks = config.coded()
        codes = np.frombuffer(picks, np.uint8) if isinstance(picks, bytes) else np.array(picks, np.intp)
        return all(bool(self._offering(choice)[codes == number].all()) for number, choice in enumerate(choices))

    def _offering(self, choice: OpConfig) -> NDArray[np.bool_]:
        """Return, for each op, True if it offers a choice."""
        if choice not in self._offering_ops:
            self._offering_ops[choice] = np.array([self._offers(op, choice) for op in self.ops], np.bool_)
        return self._offering_ops[choice]

    def _offers(self, op: Op, pick: OpConfig) -> bool:
        return pick in self._choices[op.name] or (bool(pick.repairs or op.smaller) and op.offers(pick))

    def check(self, config: object) -> QuantConfig:
        """Return `config` if it lies in this space; otherwise raise an error that names the first op that does not."""
        if not isinstance(config, QuantConfig):
            raise StrategyError(
                f"a strategy must yield QuantConfig objects, not {type(config).__name__}: {config!r:.80}"
            )
        if len(config) != len(self.ops) or any(name not in self._by_name for name in config):
            unknown = [name for name in config if name not in self._by_name]
            missing = [name for name in self._by_name if name not in config]
            detail = f"unknown op {unknown[0]!r}" if unknown else f"op {missing[0]!r} is missing"
            raise StrategyError(f"a proposed configuration does not cover this model's ops: {detail}")
        for name, pick in config.items():
            if not self._offers(self[name], pick):
                offered = ", ".join(str(choice) for choice in (*self[name].choices, *self[name].repairs))
                raise StrategyError(f"op {name!r} cannot run as '{pick}'; its choices are: {offered}")
        return config


def _joined(before: Sequence[str], more: Sequence[str]) -> list[str]:
    """Return repairs with more added; of two of the same name the later one."""
    names = {name_of(repair) for repair in more}
    return [*(repair for repair in before if name_of(repair) not in names), *more]


def without_calibration(ops: Iterable[Op]) -> tuple[Op, ...]:
    """Return the ops with only the choices that need no calibration data."""
    uncalibrated = []
    for op in ops:
        choices = tuple(choice for choice in op.choices if not choice.calibrated and not choice.repairs)
        if not choices:
            raise SettingsError(
                f"op_name_dict or op_type_dict lets op {op.name!r} ({op.kind}) run with calibrated ranges only, and "
                "there is no calibration data: pass calib_dataloader, or allow fp32 for it"
            )
        uncalibrated.append(replace(op, choices=choices, repairs=()))
    return tuple(uncalibrated)


def without_bf16(ops: Iterable[Op]) -> tuple[Op, ...]:
    """Return the ops without bf16, except for those that may run in nothing else."""
    left = ((op, tuple(choice for choice in op.choices if choice != BFLOAT)) for op in ops)
    return tuple(replace(op, choices=choices or op.choices) for op, choices in left)


def smallest_first(ops: Iterable[Op]) -> tuple[Op, ...]:
    """Reorder choices for the objective size: fp32 comes last for ops with a weight, and first for all others.

    This also offers the choices that only make the file smaller. Quantizing an op without a weight does not
    make it smaller. If no op is known to have a weight, all ops stay as they are.
    """
    if not any(map(_has_weight, ops := tuple(ops))):
        return ops
    reordered = []
    for op in map(Op.with_smaller, ops):
        order = sorted(op.choices, key=lambda choice: choice.quantized, reverse=_has_weight(op))
        reordered.append(replace(op, choices=tuple(order)))
    return tuple(reordered)


def _has_weight(op: Op) -> bool:
    """Return True if an op is known to have a weight: by its granularity, or because it can run uncalibrated."""
    return any(choice.granularity == "per_channel" or not choice.calibrated for choice in op.quantized_choices)


def closest(choices: Sequence[OpConfig], wanted: dict[str, str]) -> OpConfig:
    """Return the quantized choice that agrees with most of `wanted`; in a tie the earlier one, nearer the default.

    An op whose default is fp32, because quantizing it gains nothing, stays in fp32.
    """
    quantized = [choice for choice in choices if choice.quantized]
    if not quantized or not choices[0].quantized:
        return FLOAT
    return max(quantized, key=lambda choice: sum(getattr(choice, key) == value for key, value in wanted.items()))
