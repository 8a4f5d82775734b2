"""A simulated model whose score is a formula of the configuration, so a whole run takes milliseconds.

`SimulatedModel(ops=50, culprits=3, ranking="weak")` has a `space` to search, a `probe` for the strategy, and a `score`
in place of eval_func.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from quaver.ops import (
    BFLOAT,
    CALIBRATIONS,
    FLOAT,
    GRANULARITIES,
    INT4,
    INT8,
    PER_BLOCK,
    SCHEMES,
    Op,
    OpConfig,
    QuantConfig,
)
from quaver.probe import Observed, OpTime, Probe
from quaver.rules import apply_rules
from quaver.space import TuningSpace
from quaver.time_model import TimeModel
from quaver.types import PlainMapping

RANKINGS = ("right", "weak", "useless")
# Op types by frequency, and those that have weights and therefore a choice of granularity.
KINDS = ("Conv", "Conv", "MatMul", "Add")
WITH_WEIGHTS = ("Conv", "MatMul")
# The type of ops whose default choice is fp32.
FP32_BY_DEFAULT = "Softmax"

# Relative output error of ops that are not culprits: log-normal around 1e-5, as measured on ResNet-like networks
# (docs/strategies.md). Culprits have an error of `damage`.
BACKGROUND_ERROR = 1e-5
BACKGROUND_SPREAD = 1.0
# Standard deviation by which a weak ranking moves an op, as a share of all ranks (judgement).
WEAK_RANKING_SHIFT = 1 / 8
# Score that all other ops cost together, and the lowest score: guessing among ten classes.
BACKGROUND_LOSS = 0.002
CHANCE_LEVEL = 0.1


@dataclass(frozen=True)
class SimulatedModel:
    """A model in which a few ops, the culprits, cost accuracy in int8.

    Attributes:
        ops: number of ops, named op000, op001, ...
        culprits: number of ops that cost accuracy in int8, placed by `seed`; or their names.
        pairs: number of culprits that have a partner: the damage remains until both run in fp32, as when two ops share
            a quantized tensor. Each pair counts as two culprits.
        damage: score that a culprit, or a pair, costs.
        noise: standard deviation of the score. It is drawn from the configuration, so the same configuration always
            has the same score.
        ranking: quality of the probe. "right" ranks the culprits first; "weak" moves every op by about an eighth of
            all ranks; "useless" shuffles the ranking.
        relief: factor on the damage, by calibration, granularity or mode.
        repairs: factor on the damage, by repair. Ops with weights offer them.
        modes: latency relative to fp32, by other mode; ops with weights offer them.
        four_bits: True if ops with weights may store them in 4 bits; `relief["per_block"]` is the factor on damage.
        bf16: latency of an op in bf16 relative to fp32; 0 if bf16 is not offered.
        bf16_culprits: names of the ops that cost accuracy in bf16, too.
        slow: number of ops that are slower in int8.
        reluctant: number of further ops whose default choice is fp32.
        rules: an `op_name_dict` that narrows the space.
        baseline: score of the fp32 model.
        seed: seed of all random choices.
    """

    ops: int = 20
    culprits: int | Sequence[str] = 1
    pairs: int = 0
    damage: float = 0.05
    noise: float = 0.0
    ranking: str = "right"
    relief: Mapping[str, float] = field(default_factory=dict)
    repairs: Mapping[str, float] = field(default_factory=dict)
    modes: Mapping[str, float] = field(default_factory=dict)
    four_bits: bool = False
    bf16: float = 0.0
    bf16_culprits: Sequence[str] = ()
    slow: int = 0
    reluctant: int = 0
    rules: PlainMapping = field(default_factory=dict)
    baseline: float = 0.8
    seed: int = 0

    def __post_init__(self) -> None:
        if self.ranking not in RANKINGS:
            raise ValueError(f"ranking must be one of {', '.join(RANKINGS)}, not {self.ranking!r}")
        if len(self.guilty) > self.ops:
            raise ValueError(f"{len(self.guilty)} culprits do not fit into {self.ops} ops")

    @cached_property
    def space(self) -> TuningSpace:
        """Return the tuning space after the rules."""
        return TuningSpace(apply_rules(self._ops(), self.rules))

    @cached_property
    def probe(self) -> SimulatedProbe:
        """Return the probe of the strategy."""
        return SimulatedProbe(self)

    @cached_property
    def units(self) -> tuple[tuple[str, ...], ...]:
        """Return the culprits, each a name or a pair that must fall back together."""
        names = [f"op{index:03}" for index in range(self.ops)]
        if not isinstance(self.culprits, int):
            return tuple((name,) for name in self.culprits)
        drawn = self._rng("culprits").sample(names, min(self.culprits + self.pairs, self.ops))
        first, second = drawn[: self.culprits], drawn[self.culprits :]
        return tuple((name, *second[index : index + 1]) for index, name in enumerate(first))

    @property
    def guilty(self) -> tuple[str, ...]:
        """Return the names of all culprits, pairs included."""
        return tuple(itertools.chain.from_iterable(self.units))

    def score(self, config: QuantConfig) -> float:
        """Return the score of a configuration."""
        loss = BACKGROUND_LOSS * config.quantized_count / max(len(config), 1)
        for names in self.units:
            loss += self.damage * max(self.share(config[name]) for name in names)
        loss += self.damage * sum(config[name] == BFLOAT for name in self.bf16_culprits)
        score = max(self.baseline - loss, CHANCE_LEVEL)
        if self.noise:
            score += self._rng(config.fingerprint).gauss(0.0, self.noise)
        return score

    @cached_property
    def sensitivity(self) -> Mapping[str, float]:
        """Return the relative output error of each op alone in int8, as the probe sees it with its `ranking`."""
        names = [op.name for op in self.space.ops]
        rng = self._rng("harm")
        truth = {name: BACKGROUND_ERROR * rng.lognormvariate(0.0, BACKGROUND_SPREAD) for name in names}
        truth |= {name: self.damage * rng.uniform(0.5, 1.5) for name in self.guilty}
        order = sorted(names, key=lambda name: -truth[name])
        shift = {"right": 0.0, "weak": WEAK_RANKING_SHIFT, "useless": 0.0}[self.ranking] * len(names)
        moved = sorted(range(len(names)), key=lambda rank: rank + shift * rng.gauss(0.0, 1.0))
        if self.ranking == "useless":
            rng.shuffle(moved)
        errors = [truth[name] for name in order]
        return {order[rank]: error for rank, error in zip(moved, errors, strict=True)}

    @cached_property
    def seconds(self) -> Mapping[str, OpTime]:
        """Return the seconds of each op in fp32 and in int8."""
        names = [op.name for op in self.space.ops]
        rng = self._rng("seconds")
        slow = frozenset(rng.sample(names, self.slow))
        times = {}
        for name in names:
            fp32 = 1e-3 * rng.lognormvariate(0.0, 0.5)
            times[name] = OpTime(fp32, fp32 * (1.5 if name in slow else 1 / rng.uniform(2.0, 4.0)))
        return times

    def share(self, pick: OpConfig) -> float:
        """Return the share of its damage that an op does with a choice."""
        if not pick.quantized:
            return 0.0
        repaired = math.prod(self.repairs.get(repair, 1.0) for repair in pick.repairs)
        properties = (pick.calibration, pick.granularity, pick.mode)
        return repaired * math.prod(self.relief.get(value, 1.0) for value in properties)

    def op_seconds(self, name: str, pick: OpConfig) -> float:
        """Return the seconds of an op with a choice."""
        if not pick.quantized:
            return self.seconds[name].fp32 * (self.bf16 if pick == BFLOAT else 1.0)
        if pick.mode in self.modes:
            return self.modes[pick.mode] * self.seconds[name].fp32
        return self.seconds[name].int8

    def _ops(self) -> list[Op]:
        rng = self._rng("kinds")
        kinds = [rng.choice(KINDS) for _ in range(self.ops)] + [FP32_BY_DEFAULT] * self.reluctant
        names = (f"op{index:03}" for index in range(len(kinds)))
        repairs = {kind: tuple(self.repairs) if kind in WITH_WEIGHTS else () for kind in kinds}
        op_choices = {kind: choices(kind, tuple(self.modes), self.four_bits) for kind in kinds}
        if self.bf16:
            op_choices = {kind: (*offered, BFLOAT) for kind, offered in op_choices.items()}
        return [
            Op(name, kind, (name,), op_choices[kind], repairs[kind], name if repairs[kind] else "")
            for name, kind in zip(names, kinds, strict=True)
        ]

    def _rng(self, purpose: str) -> random.Random:
        return random.Random(f"{self.seed} {purpose}")  # a string seeds equally in every process


def choices(kind: str, modes: Sequence[str] = (), four_bits: bool = False) -> tuple[OpConfig, ...]:
    """Return the choices of an op as ONNX Runtime has them: int8 variants, other modes and fp32, the default first."""
    granularities = GRANULARITIES if kind in WITH_WEIGHTS else ("per_tensor",)
    variants = itertools.product(SCHEMES, granularities, CALIBRATIONS)
    int8 = [OpConfig(INT8, calibration, granularity, scheme) for scheme, granularity, calibration in variants]
    int8 += [OpConfig(INT8, mode=mode) for mode in modes if kind in WITH_WEIGHTS]
    int8 += [OpConfig(INT4, granularity=PER_BLOCK, mode="weight_only")] if four_bits and kind in WITH_WEIGHTS else []
    return (FLOAT, *int8) if kind == FP32_BY_DEFAULT else (*int8, FLOAT)


class SimulatedProbe(Probe):
    """A probe that is as accurate as the model's `ranking`."""

    def __init__(self, model: SimulatedModel) -> None:
        self._model = model

    def sensitivity(self, config: QuantConfig | None = None) -> Mapping[str, float]:
        config = config or self._model.space.default_config()
        names = [name for name in self._model.space.tunable if config[name].quantized]
        return {name: self._model.sensitivity[name] * self._model.share(config[name]) for name in names}

    def mse(self) -> Mapping[str, float]:
        return {name: self._model.sensitivity[name] for name in self._model.space.quantizable}

    def local_error(self, config: QuantConfig | None = None) -> Mapping[str, float]:
        if config is None:
            return {name: self._model.sensitivity[name] for name in self._model.space.default_config().quantized_ops}
        return {name: self._model.sensitivity[name] * self._model.share(config[name]) for name in config.quantized_ops}

    def latency(self) -> Mapping[str, OpTime]:
        return {name: self._model.seconds[name] for name in self._model.space.quantizable}

    def output_error(self, config: QuantConfig) -> float:
        in_bf16 = sum(self._model.damage for name in self._model.bf16_culprits if config[name] == BFLOAT)
        return in_bf16 + sum(self._model.sensitivity[name] * self._model.share(pick) for name, pick in config.items())

    def time_model(self, config: QuantConfig) -> TimeModel:
        times = self._model.seconds
        quantized = {
            name: self._model.op_seconds(name, config[name]) if config[name].quantized else time.int8
            for name, time in times.items()
        }
        return TimeModel({name: time.fp32 for name, time in times.items()}, quantized)

    def time_model_beside(self, config: QuantConfig, float_config: QuantConfig) -> TimeModel:
        model, seconds = self.time_model(config), self._model.op_seconds
        floats = {name: seconds(name, float_config[name]) for name in model.fp32}
        return replace(model, fp32=floats, fp32_model=sum(model.fp32.values()))

    def speed(self, config: QuantConfig) -> float:
        times = self._model.seconds
        seconds = sum(self._model.op_seconds(name, pick) for name, pick in config.items())
        return seconds / sum(time.fp32 for time in times.values())

    def size(self, config: QuantConfig) -> float:
        bits = sum(pick.precision.bits for pick in config.values())
        return bits / (32 * max(len(config), 1))

    def inspect(self, config: QuantConfig, ops: Sequence[str]) -> Mapping[str, Observed]:
        observed = {}
        for name in ops:
            error = np.sqrt(self._model.sensitivity[name] * self._model.share(config[name]))
            observed[name] = Observed([np.ones(4)], [np.ones(4) + error])
        return observed
