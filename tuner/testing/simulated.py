"""A model without a framework: its score follows from the configuration by a formula, so a whole run takes no time.

`SimulatedModel(ops=50, culprits=3, ranking="weak")` has a `space` to search, a `probe` that answers what a strategy may
ask, and a `score` in the place of eval_func.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from quaver.ops import CALIBRATIONS, FLOAT, GRANULARITIES, INT4, INT8, PER_BLOCK, SCHEMES, Op, OpConfig, QuantConfig
from quaver.probe import Observed, OpTime, Probe
from quaver.rules import apply_rules
from quaver.space import TuningSpace
from quaver.time_model import TimeModel
from quaver.types import PlainMapping

RANKINGS = ("right", "weak", "useless")
# Op kinds by frequency, and those that have weights and so a choice of granularity.
KINDS = ("Conv", "Conv", "MatMul", "Add")
WITH_WEIGHTS = ("Conv", "MatMul")
# The kind of ops that run in fp32 unless asked otherwise.
RELUCTANT = "Softmax"

# What harmless ops do to the outputs, as a relative error: around 1e-5, a few ten times that. Culprits do `damage`.
BACKGROUND = 1e-5
SPREAD = 1.0
# How far a weak ranking moves an op from its place, as a share of all places.
WEAKNESS = 1 / 8
# What all the harmless ops take from the score together, and below what no score falls.
TOGETHER = 0.002
CHANCE_LEVEL = 0.1


@dataclass(frozen=True)
class SimulatedModel:
    """A model in which a few ops, the culprits, cost accuracy in int8.

    Attributes:
        ops: how many there are, called op000, op001, ...
        culprits: how many of them, placed by `seed`, or their names.
        pairs: how many culprits come with a second one: the damage is done until both are back in fp32, as when two
            ops share a quantized tensor. Each pair counts for two culprits.
        damage: what a culprit, or a pair, takes from the score.
        noise: the standard deviation of the score. It is drawn from the configuration, so that the same one always
            scores the same.
        ranking: how far the probe can be trusted. "right": it sees the culprits; "weak": every op is moved from its
            rank by up to an eighth of all ranks, or so; "useless": the figures belong to other ops.
        relief: calibration, granularity or mode -> the factor it takes damage by.
        repairs: repair -> the factor it takes damage by. Ops with weights offer them.
        modes: other modes that ops with weights have -> the part of the fp32 time that they take there.
        four_bits: whether ops with weights may have those in four bits; `relief` of per_block says what that does.
        slow: how many ops take longer in int8.
        reluctant: how many more ops there are whose default is fp32.
        rules: an `op_name_dict` that narrows the space.
        baseline: the score of the fp32 model.
        seed: where all chance comes from.
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
    slow: int = 0
    reluctant: int = 0
    rules: PlainMapping = field(default_factory=dict)
    baseline: float = 0.8
    seed: int = 0

    def __post_init__(self) -> None:
        if self.ranking not in RANKINGS:
            raise ValueError(f"ranking must be one of {', '.join(RANKINGS)}, not {self.ranking!r}")
        if len(self.guilty) > self.ops:
            raise ValueError(f"{len(self.guilty)} culprits among {self.ops} ops")

    @cached_property
    def space(self) -> TuningSpace:
        """What may be chosen, after the rules."""
        return TuningSpace(apply_rules(self._ops(), self.rules))

    @cached_property
    def probe(self) -> SimulatedProbe:
        """What a strategy may ask."""
        return SimulatedProbe(self)

    @cached_property
    def units(self) -> tuple[tuple[str, ...], ...]:
        """The culprits: one name, or two that only help together."""
        names = [f"op{index:03}" for index in range(self.ops)]
        if not isinstance(self.culprits, int):
            return tuple((name,) for name in self.culprits)
        drawn = self._rng("culprits").sample(names, min(self.culprits + self.pairs, self.ops))
        first, second = drawn[: self.culprits], drawn[self.culprits :]
        return tuple((name, *second[index : index + 1]) for index, name in enumerate(first))

    @property
    def guilty(self) -> tuple[str, ...]:
        """The names of all culprits, those of pairs too."""
        return tuple(itertools.chain.from_iterable(self.units))

    def score(self, config: QuantConfig) -> float:
        """What eval_func would return for a configuration."""
        lost = TOGETHER * config.quantized_count / max(len(config), 1)
        for names in self.units:
            lost += self.damage * max(self.share(config[name]) for name in names)
        score = max(self.baseline - lost, CHANCE_LEVEL)
        if self.noise:
            score += self._rng(config.fingerprint).gauss(0.0, self.noise)
        return score

    @cached_property
    def sensitivity(self) -> Mapping[str, float]:
        """What the probe takes for the relative output error of each op alone in int8: the truth if it is right."""
        names = [op.name for op in self.space.ops]
        rng = self._rng("harm")
        truth = {name: BACKGROUND * rng.lognormvariate(0.0, SPREAD) for name in names}
        truth |= {name: self.damage * rng.uniform(0.5, 1.5) for name in self.guilty}
        order = sorted(names, key=lambda name: -truth[name])
        far = {"right": 0.0, "weak": WEAKNESS, "useless": 0.0}[self.ranking] * len(names)
        moved = sorted(range(len(names)), key=lambda rank: rank + far * rng.gauss(0.0, 1.0))
        if self.ranking == "useless":
            rng.shuffle(moved)
        figures = [truth[name] for name in order]
        return {order[rank]: figure for rank, figure in zip(moved, figures, strict=True)}

    @cached_property
    def seconds(self) -> Mapping[str, OpTime]:
        """What each op takes."""
        names = [op.name for op in self.space.ops]
        rng = self._rng("seconds")
        slow = frozenset(rng.sample(names, self.slow))
        times = {}
        for name in names:
            fp32 = 1e-3 * rng.lognormvariate(0.0, 0.5)
            times[name] = OpTime(fp32, fp32 * (1.5 if name in slow else 1 / rng.uniform(2.0, 4.0)))
        return times

    def share(self, pick: OpConfig) -> float:
        """How much of its damage an op does when it is run in a certain way."""
        if not pick.quantized:
            return 0.0
        repaired = math.prod(self.repairs.get(spelled, 1.0) for spelled in pick.repairs)
        said = (pick.calibration, pick.granularity, pick.mode)
        return repaired * math.prod(self.relief.get(one, 1.0) for one in said)

    def taken(self, name: str, pick: OpConfig) -> float:
        """Seconds of an op that is run in a certain way."""
        if not pick.quantized:
            return self.seconds[name].fp32
        if pick.mode in self.modes:
            return self.modes[pick.mode] * self.seconds[name].fp32
        return self.seconds[name].int8

    def _ops(self) -> list[Op]:
        rng = self._rng("kinds")
        kinds = [rng.choice(KINDS) for _ in range(self.ops)] + [RELUCTANT] * self.reluctant
        names = (f"op{index:03}" for index in range(len(kinds)))
        offered = {kind: tuple(self.repairs) if kind in WITH_WEIGHTS else () for kind in kinds}
        ways = {kind: choices(kind, tuple(self.modes), self.four_bits) for kind in kinds}
        return [
            Op(name, kind, (name,), ways[kind], offered[kind], name if offered[kind] else "")
            for name, kind in zip(names, kinds, strict=True)
        ]

    def _rng(self, what: str) -> random.Random:
        return random.Random(f"{self.seed} {what}")  # a string is hashed alike in every process


def choices(kind: str, modes: Sequence[str] = (), four_bits: bool = False) -> tuple[OpConfig, ...]:
    """The ways to run an op, as for ONNX Runtime: every int8 variant, other modes and fp32, the default first."""
    granularities = GRANULARITIES if kind in WITH_WEIGHTS else ("per_tensor",)
    variants = itertools.product(SCHEMES, granularities, CALIBRATIONS)
    int8 = [OpConfig(INT8, calibration, granularity, scheme) for scheme, granularity, calibration in variants]
    int8 += [OpConfig(INT8, mode=mode) for mode in modes if kind in WITH_WEIGHTS]
    int8 += [OpConfig(INT4, granularity=PER_BLOCK, mode="weight_only")] if four_bits and kind in WITH_WEIGHTS else []
    return (FLOAT, *int8) if kind == RELUCTANT else (*int8, FLOAT)


class SimulatedProbe(Probe):
    """Answers as far as the model's `ranking` lets it see."""

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
        return sum(self._model.sensitivity[name] * self._model.share(pick) for name, pick in config.items())

    def time_model(self, config: QuantConfig) -> TimeModel:
        times = self._model.seconds
        quantized = {
            name: self._model.taken(name, config[name]) if config[name].quantized else time.int8
            for name, time in times.items()
        }
        return TimeModel({name: time.fp32 for name, time in times.items()}, quantized)

    def speed(self, config: QuantConfig) -> float:
        times = self._model.seconds
        taken = sum(self._model.taken(name, pick) for name, pick in config.items())
        return taken / sum(time.fp32 for time in times.values())

    def size(self, config: QuantConfig) -> float:
        bits = sum(pick.precision.bits for pick in config.values())
        return bits / (32 * max(len(config), 1))

    def inspect(self, config: QuantConfig, ops: Sequence[str]) -> Mapping[str, Observed]:
        seen = {}
        for name in ops:
            error = np.sqrt(self._model.sensitivity[name] * self._model.share(config[name]))
            seen[name] = Observed([np.ones(4)], [np.ones(4) + error])
        return seen
