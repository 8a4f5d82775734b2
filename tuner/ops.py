"""The nouns of tuning: how one op runs, what an op is, and one configuration of all of them."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType


class Precision(enum.StrEnum):
    """What an op computes in. A `StrEnum`, so that "fp32" in a YAML file is the same thing."""

    FP32 = "fp32"
    INT8 = "int8"


FP32 = Precision.FP32
INT8 = Precision.INT8

CALIBRATIONS = ("minmax", "percentile", "entropy")
GRANULARITIES = ("per_channel", "per_tensor")
SCHEMES = ("asym", "sym")


@dataclass(frozen=True, slots=True)
class OpConfig:
    """How one op is run.

    Attributes:
        precision: FP32 or INT8.
        calibration: how the range of its activations is chosen: minmax, percentile or entropy.
        granularity: one weight scale per output channel or one per tensor.
        scheme: whether the activations' zero point is free (asym) or fixed (sym). Weights are symmetric.

    The last three say nothing about an fp32 op; they are empty there, so that equal configs compare equal.
    """

    precision: Precision
    calibration: str = "minmax"
    granularity: str = "per_channel"
    scheme: str = "asym"

    def __post_init__(self) -> None:
        object.__setattr__(self, "precision", Precision(self.precision))
        if self.precision is Precision.FP32:
            for field in ("calibration", "granularity", "scheme"):
                object.__setattr__(self, field, "")

    def __str__(self) -> str:
        return " ".join(part for part in (self.precision, self.calibration, self.granularity, self.scheme) if part)


FLOAT = OpConfig(Precision.FP32)


@dataclass(frozen=True, slots=True)
class Op:
    """What a user toggles: a fused unit of graph nodes that a runtime executes as one kernel.

    Attributes:
        name: the name of the node that does the arithmetic; unique in the model.
        kind: its op type, as the framework spells it ("Conv", "MatMul", ...).
        nodes: the names of all graph nodes the op covers, in order.
        choices: the ways to run it, the default first. `FLOAT` is among them unless the user's rules forbid it.
    """

    name: str
    kind: str
    nodes: tuple[str, ...]
    choices: tuple[OpConfig, ...]

    @property
    def quantizable(self) -> bool:
        """Whether any choice is int8; the user's rules may have left none."""
        return any(choice.precision is Precision.INT8 for choice in self.choices)

    @property
    def tunable(self) -> bool:
        """Whether there is a decision to take: both int8 and fp32 are among the choices."""
        return self.quantizable and FLOAT in self.choices


class QuantConfig(Mapping[str, OpConfig]):
    """One immutable answer for every op: op name -> `OpConfig`."""

    __slots__ = ("_fingerprint", "_ops")

    def __init__(self, ops: Mapping[str, OpConfig] | Iterable[tuple[str, OpConfig]]) -> None:
        self._ops: Mapping[str, OpConfig] = MappingProxyType(dict(ops))
        self._fingerprint: str | None = None

    def __getitem__(self, name: str) -> OpConfig:
        return self._ops[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._ops)

    def __len__(self) -> int:
        return len(self._ops)

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, QuantConfig):
            return self.fingerprint == other.fingerprint
        return NotImplemented

    def __repr__(self) -> str:
        return f"QuantConfig({len(self.int8_ops)} int8, {len(self.fp32_ops)} fp32, {self.fingerprint[:8]})"

    def __reduce__(self) -> tuple[type[QuantConfig], tuple[dict[str, OpConfig]]]:
        return QuantConfig, (dict(self._ops),)

    @property
    def int8_ops(self) -> tuple[str, ...]:
        """Names of the ops that run in int8, in graph order."""
        return tuple(name for name, op in self._ops.items() if op.precision is Precision.INT8)

    @property
    def fp32_ops(self) -> tuple[str, ...]:
        """Names of the ops that run in fp32, in graph order."""
        return tuple(name for name, op in self._ops.items() if op.precision is Precision.FP32)

    @property
    def fingerprint(self) -> str:
        """A hash of the content alone: the same in every process and whatever the order of the ops."""
        if self._fingerprint is None:
            digest = hashlib.sha256()
            for name in sorted(self._ops):
                digest.update(f"{name}\0{self._ops[name]}\0".encode())
            self._fingerprint = digest.hexdigest()
        return self._fingerprint

    def fallback(self, *names: str) -> QuantConfig:
        """The same configuration with these ops sent back to fp32."""
        return self.replace(dict.fromkeys(names, FLOAT))

    def replace(self, changes: Mapping[str, OpConfig]) -> QuantConfig:
        """The same configuration with some ops run in another way."""
        unknown = [name for name in changes if name not in self._ops]
        if unknown:
            raise KeyError(f"no op called {unknown[0]!r} in this configuration")
        return QuantConfig({**self._ops, **changes})
