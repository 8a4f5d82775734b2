"""The nouns of tuning: how one op runs, what an op is, and one configuration of all of them."""

from __future__ import annotations

import hashlib
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass, fields, replace
from types import MappingProxyType

from quaver.repairs import name_of, order
from quaver.types import PlainDict


class Precision(str):
    """What an op computes in, such as "fp32" or "int8". Open: any name of this form is one. Ordered by width.

    It is a `str`, so that "fp32" in a YAML file is the same thing; there is one object for each name.

    Attributes:
        bits: of one number.
        reduced: whether that is less than fp32 has.
    """

    bits: int
    quantized: bool

    _FORM = re.compile(r"(?:u?int|fp|bf)([0-9]{1,2})")
    _known: dict[str, Precision] = {}  # noqa: RUF012 - the one object of each name

    def __new__(cls, name: str) -> Precision:
        known = cls._known.get(name)
        if known is None:
            form = cls._FORM.fullmatch(name) if isinstance(name, str) else None
            if form is None:
                raise ValueError(f"{name!r} is not a precision; names are like 'fp32' or 'int8'")
            known = super().__new__(cls, name)
            known.bits = int(form[1])
            known.quantized = known.bits < 32
            cls._known[str(name)] = known
        return known

    def __lt__(self, other: str) -> bool:
        return self._rank() < Precision(other)._rank()

    def __le__(self, other: str) -> bool:
        return self._rank() <= Precision(other)._rank()

    def __gt__(self, other: str) -> bool:
        return self._rank() > Precision(other)._rank()

    def __ge__(self, other: str) -> bool:
        return self._rank() >= Precision(other)._rank()

    def _rank(self) -> tuple[int, str]:
        return self.bits, str(self)

    def __repr__(self) -> str:
        return f"Precision({str(self)!r})"

    def __str__(self) -> str:
        return str.__str__(self)


FP32 = Precision("fp32")
INT8 = Precision("int8")
INT4 = Precision("int4")

MODES = ("static", "dynamic", "weight_only")
CALIBRATIONS = ("minmax", "percentile", "entropy")
GRANULARITIES = ("per_channel", "per_tensor")
# One scale and zero point for each few numbers of a channel: how weights of less than 8 bits are stored.
PER_BLOCK = "per_block"
SCHEMES = ("asym", "sym")
# What can be chosen for an op of reduced precision: each field of `OpConfig`, and its values.
DETAILS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"mode": MODES, "calibration": CALIBRATIONS, "granularity": (*GRANULARITIES, PER_BLOCK), "scheme": SCHEMES}
)
# What says nothing about an op that is run in this mode.
_IDLE = {"dynamic": ("calibration",), "weight_only": ("calibration", "scheme")}


@dataclass(frozen=True, slots=True)
class OpConfig:
    """How one op is run.

    Attributes:
        precision: FP32, INT8 or another `Precision`.
        calibration: how the range of its activations is chosen: minmax, percentile or entropy.
        granularity: one weight scale per output channel, per tensor, or per block of a channel.
        scheme: whether the activations' zero point is free (asym) or fixed (sym). Weights are symmetric, but in blocks.
        mode: how activations are treated: quantized with calibrated ranges (static), with ranges taken while the
            model runs (dynamic), or not at all (weight_only).
        repairs: label-free changes of the model that go with it, by name; see `quaver.adapters.Repair`.

    What says nothing about an op is empty, so that equal configs compare equal: all but the precision of an fp32 op,
    the calibration of one with dynamic activations.
    """

    precision: Precision
    calibration: str = "minmax"
    granularity: str = "per_channel"
    scheme: str = "asym"
    mode: str = "static"
    repairs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "precision", Precision(self.precision))
        for field in DETAILS if not self.precision.quantized else _IDLE.get(self.mode, ()):
            object.__setattr__(self, field, "")
        object.__setattr__(self, "repairs", tuple(self.repairs) if self.precision.quantized else ())

    @property
    def quantized(self) -> bool:
        """Whether it computes in less than fp32."""
        return self.precision.quantized

    @property
    def calibrated(self) -> bool:
        """Whether its activations are quantized by ranges that were found beforehand."""
        return self.quantized and self.mode == "static"

    def __str__(self) -> str:
        mode = "" if self.mode == "static" else self.mode
        parts = (self.precision, mode, self.calibration, self.granularity, self.scheme, *self.repairs)
        return " ".join(part for part in parts if part)

    def to_dict(self) -> PlainDict:
        """The fields by name, as builtins."""
        return {
            item.name: list(value) if isinstance(value := getattr(self, item.name), tuple) else str(value)
            for item in fields(self)
        }


FLOAT = OpConfig(FP32)


@dataclass(frozen=True, slots=True)
class Op:
    """What a user toggles: a fused unit of graph nodes that a runtime executes as one kernel.

    Attributes:
        name: the name of the node that does the arithmetic; unique in the model.
        kind: its op type, as the framework spells it ("Conv", "MatMul", ...).
        nodes: the names of all graph nodes the op covers, in order.
        choices: the ways to run it, the default first. `FLOAT` is among them unless the user's rules forbid it.
        repairs: what its static choices may be given besides, in any combination of different names.
        reads: the tensor that its weight multiplies with, where that can be repaired. Ops that read the same one are
            best repaired together.
        smaller: choices that make the file smaller and nothing faster: on offer where size counts, or a rule asks.
    """

    name: str
    kind: str
    nodes: tuple[str, ...]
    choices: tuple[OpConfig, ...]
    repairs: tuple[str, ...] = ()
    reads: str = ""
    smaller: tuple[OpConfig, ...] = ()

    @property
    def quantizable(self) -> bool:
        """Whether any choice is reduced; the user's rules may have left none."""
        return any(choice.quantized for choice in self.choices)

    @property
    def tunable(self) -> bool:
        """Whether there is a decision to take: both fp32 and something less are among the choices."""
        return self.quantizable and FLOAT in self.choices

    def offers(self, pick: OpConfig) -> bool:
        """Whether it may run so: as one of its choices, or as one that is repaired."""
        if pick in self.choices or not pick.repairs or pick.mode != MODES[0]:
            return pick in self.choices or pick in self.smaller
        names = [name_of(spelled) for spelled in pick.repairs]
        known = all(spelled in self.repairs for spelled in pick.repairs) and len(set(names)) == len(names)
        return known and replace(pick, repairs=()) in self.choices

    def repaired(self, pick: OpConfig, *spelled: str) -> OpConfig:
        """A choice with those of these repairs that this op offers; as it is if that cannot be.

        They are named in the order in which they are done: those that change the weight before those that look at it.
        """
        wanted = tuple(sorted((one for one in spelled if one in self.repairs), key=order))
        made = replace(pick, repairs=wanted)
        return made if wanted and self.offers(made) else pick

    def with_smaller(self) -> Op:
        """The op with those choices on offer, behind all others, that only make the file smaller."""
        return replace(self, choices=(*self.choices, *self.smaller), smaller=()) if self.smaller else self

    @property
    def quantized_choices(self) -> tuple[OpConfig, ...]:
        """The choices that compute in less than fp32, the default first."""
        return tuple(choice for choice in self.choices if choice.quantized)


class Coded(Mapping[str, OpConfig]):
    """A mapping of ops that knows its distinct choices."""

    __slots__ = ()

    @abstractmethod
    def coded(self) -> tuple[Sequence[OpConfig], Sequence[int]]:
        """The choices, and for each op, in order, which of them it takes."""


def _by_name(item: tuple[str, OpConfig]) -> str:
    return item[0]


class QuantConfig(Mapping[str, OpConfig]):
    """One immutable answer for every op: op name -> `OpConfig`."""

    __slots__ = ("_fingerprint", "_ops")

    def __init__(self, ops: Mapping[str, OpConfig] | Iterable[tuple[str, OpConfig]]) -> None:
        self._ops: Mapping[str, OpConfig] = MappingProxyType(dict(ops))
        self._fingerprint: str | None = None

    @classmethod
    def adopt(cls, ops: Mapping[str, OpConfig]) -> QuantConfig:
        """A configuration around a mapping that nobody changes, which is not copied."""
        config = cls(())
        config._ops = ops
        return config

    def __getitem__(self, name: str) -> OpConfig:
        return self._ops[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._ops)

    def __len__(self) -> int:
        return len(self._ops)

    def values(self) -> ValuesView[OpConfig]:
        """How each op is run, in graph order; at the speed of a dict, for those who compare thousands."""
        return self._ops.values()

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, QuantConfig):
            return self.fingerprint == other.fingerprint
        return NotImplemented

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {precision}" for precision, count in self.counts.items())
        return f"QuantConfig({counts}, {self.fingerprint[:8]})"

    def __reduce__(self) -> tuple[type[QuantConfig], tuple[dict[str, OpConfig]]]:
        return QuantConfig, (dict(self._ops),)

    def coded(self) -> tuple[Sequence[OpConfig], Sequence[int]]:
        """The distinct choices, and for each op, in order, which of them it takes."""
        if isinstance(self._ops, Coded):
            return self._ops.coded()
        table: dict[OpConfig, int] = {}
        picks = [table.setdefault(choice, len(table)) for choice in self._ops.values()]
        return tuple(table), picks

    def ops_in(self, precision: str) -> tuple[str, ...]:
        """Names of the ops that run in a precision, in graph order."""
        return tuple(name for name, op in self._ops.items() if op.precision == precision)

    @property
    def int8_ops(self) -> tuple[str, ...]:
        """Names of the ops that run in int8, in graph order."""
        return self.ops_in(INT8)

    @property
    def fp32_ops(self) -> tuple[str, ...]:
        """Names of the ops that run in fp32, in graph order."""
        return self.ops_in(FP32)

    @property
    def quantized_ops(self) -> tuple[str, ...]:
        """Names of the ops that run in less than fp32, in graph order."""
        return tuple(name for name, op in self._ops.items() if op.quantized)

    @property
    def quantized_count(self) -> int:
        """How many ops run in less than fp32; at the speed of counting bytes, for those who compare thousands."""
        choices, picks = self.coded()
        return sum(count for pick, count in Counter(picks).items() if choices[pick].quantized)

    @property
    def counts(self) -> dict[Precision, int]:
        """How many ops run in each precision, the narrowest first; int8 and fp32 are always there."""
        choices, picks = self.coded()
        found: Counter[Precision] = Counter()
        for pick, count in Counter(picks).items():
            found[choices[pick].precision] += count
        return {precision: found[precision] for precision in sorted({*found, INT8, FP32})}

    @property
    def fingerprint(self) -> str:
        """A hash of the content alone: the same in every process and whatever the order of the ops."""
        if self._fingerprint is None:
            texts: dict[int, str] = {}  # most ops share a few choices
            parts = []
            for name, op in sorted(self._ops.items(), key=_by_name):
                text = texts.get(id(op)) or texts.setdefault(id(op), str(op))
                parts.append(f"{name}\0{text}\0")
            self._fingerprint = hashlib.sha256("".join(parts).encode()).hexdigest()
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
