"""Ops, the choices of how an op runs, and configurations: a choice for every op."""

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
    """The precision of an op, such as "fp32" or "int8". Any name of this form is valid. Ordered by width.

    It is a `str`, so that "fp32" in a YAML file is equal to it; there is one object for each name.

    Attributes:
        bits: the bits of one number.
        quantized: True if it is narrower than the floats that kernels compute in: integers, and floats below 16 bits.
    """

    bits: int
    quantized: bool

    _FORM = re.compile(r"(?:u?int|fp|bf)([0-9]{1,2})")
    _instances: dict[str, Precision] = {}  # noqa: RUF012 - the one object of each name

    def __new__(cls, name: str) -> Precision:
        precision = cls._instances.get(name)
        if precision is None:
            form = cls._FORM.fullmatch(name) if isinstance(name, str) else None
            if form is None:
                raise ValueError(f"{name!r} is not a precision; names are like 'fp32' or 'int8'")
            precision = super().__new__(cls, name)
            precision.bits = int(form[1])
            precision.quantized = precision.bits < 16 or "int" in name
            cls._instances[str(name)] = precision
        return precision

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
BF16 = Precision("bf16")
INT8 = Precision("int8")
INT4 = Precision("int4")

MODES = ("static", "dynamic", "weight_only")
CALIBRATIONS = ("minmax", "percentile", "entropy")
GRANULARITIES = ("per_channel", "per_tensor")
# One scale and zero point for each block of a channel: how weights of less than 8 bits are stored.
PER_BLOCK = "per_block"
# The numbers in a block, by granularity.
BLOCK_SIZES: Mapping[str, int] = MappingProxyType({PER_BLOCK: 64, "per_block_32": 32, "per_block_128": 128})
SCHEMES = ("asym", "sym")
# The details of a quantized op: each field of `OpConfig`, and its values.
DETAILS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"mode": MODES, "calibration": CALIBRATIONS, "granularity": (*GRANULARITIES, *BLOCK_SIZES), "scheme": SCHEMES}
)
# The fields that do not apply to an op in this mode.
_UNUSED = {"dynamic": ("calibration",), "weight_only": ("calibration", "scheme")}


@dataclass(frozen=True, slots=True)
class OpConfig:
    """A choice: how one op is run.

    Attributes:
        precision: FP32, INT8 or another `Precision`.
        calibration: how the range of its activations is chosen: minmax, percentile or entropy.
        granularity: one weight scale per output channel, per tensor, or per block of a channel.
        scheme: the zero point of activations: free (asym) or fixed (sym). Weights are symmetric, except in blocks.
        mode: how activations are treated: quantized with calibrated ranges (static), with ranges computed while the
            model runs (dynamic), or not at all (weight_only).
        repairs: label-free changes of the model that go with it, by name; see `quaver.adapters.Repair`.

    Fields that do not apply are empty, so that equal choices compare equal: all but the precision of an fp32 op, the
    calibration of an op with dynamic activations.
    """

    precision: Precision
    calibration: str = "minmax"
    granularity: str = "per_channel"
    scheme: str = "asym"
    mode: str = "static"
    repairs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "precision", Precision(self.precision))
        for field in DETAILS if not self.precision.quantized else _UNUSED.get(self.mode, ()):
            object.__setattr__(self, field, "")
        object.__setattr__(self, "repairs", tuple(self.repairs) if self.precision.quantized else ())

    @property
    def quantized(self) -> bool:
        """True if the op does not compute in fp32 or bf16."""
        return self.precision.quantized

    @property
    def calibrated(self) -> bool:
        """True if its activations are quantized with calibrated ranges."""
        return self.quantized and self.mode == "static"

    @property
    def block_size(self) -> int:
        """The numbers of a weight that share a scale and a zero point; 0 if the weight is not stored in blocks."""
        return BLOCK_SIZES.get(self.granularity, 0)

    def __str__(self) -> str:
        mode = "" if self.mode == "static" else self.mode
        parts = (self.precision, mode, self.calibration, self.granularity, self.scheme, *self.repairs)
        return " ".join(part for part in parts if part)

    def to_dict(self) -> PlainDict:
        """Return the fields by name, as builtins."""
        return {
            item.name: list(value) if isinstance(value := getattr(self, item.name), tuple) else str(value)
            for item in fields(self)
        }


FLOAT = OpConfig(FP32)
# Float with 16 bits, for runtimes and processors that compute in it. It needs no calibration.
BFLOAT = OpConfig(BF16)


@dataclass(frozen=True, slots=True)
class Op:
    """The unit of tuning: graph nodes that a runtime fuses into one kernel.

    Attributes:
        name: the name of the node that does the arithmetic; unique in the model.
        kind: its op type, as the framework spells it ("Conv", "MatMul", ...).
        nodes: the names of all graph nodes the op covers, in order.
        choices: its choices, the default first. `FLOAT` is among them unless the user's rules forbid it.
        repairs: the repairs that its static choices may have, in any combination of different names.
        reads: the tensor that its weight is multiplied with, where that can be repaired. Ops that read the same tensor
            are best repaired together.
        smaller: choices that make the file smaller and nothing faster: on offer if size counts, or a rule asks.
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
        """True if any choice is quantized; the user's rules may have left none."""
        return any(choice.quantized for choice in self.choices)

    @property
    def tunable(self) -> bool:
        """True if there is a decision: both fp32 and a quantized choice are on offer."""
        return self.quantizable and FLOAT in self.choices

    def offers(self, pick: OpConfig) -> bool:
        """Return True if `pick` is one of the choices, or one of them with repairs."""
        if pick in self.choices or not pick.repairs or pick.mode != MODES[0]:
            return pick in self.choices or pick in self.smaller
        names = [name_of(repair) for repair in pick.repairs]
        is_offered = all(repair in self.repairs for repair in pick.repairs) and len(set(names)) == len(names)
        return is_offered and replace(pick, repairs=()) in self.choices

    def repaired(self, pick: OpConfig, *repairs: str) -> OpConfig:
        """Return a choice with those of these repairs that this op offers; unchanged if it cannot have them.

        Repairs are named in the order in which they are applied: those that change the weight before those that read
        it.
        """
        offered = tuple(sorted((repair for repair in repairs if repair in self.repairs), key=order))
        changed = replace(pick, repairs=offered)
        return changed if offered and self.offers(changed) else pick

    def with_smaller(self) -> Op:
        """Return the op with its `smaller` choices offered, after all others."""
        return replace(self, choices=(*self.choices, *self.smaller), smaller=()) if self.smaller else self

    @property
    def quantized_choices(self) -> tuple[OpConfig, ...]:
        """The choices that compute in less than fp32, the default first."""
        return tuple(choice for choice in self.choices if choice.quantized)


class Coded(Mapping[str, OpConfig]):
    """A mapping of ops that holds its distinct choices in a table."""

    __slots__ = ()

    @abstractmethod
    def coded(self) -> tuple[Sequence[OpConfig], Sequence[int]]:
        """Return the distinct choices, and for each op, in order, the index of its choice."""


def _by_name(item: tuple[str, OpConfig]) -> str:
    return item[0]


class QuantConfig(Mapping[str, OpConfig]):
    """A configuration: an immutable mapping of op name to `OpConfig`, for every op."""

    __slots__ = ("_fingerprint", "_ops")

    def __init__(self, ops: Mapping[str, OpConfig] | Iterable[tuple[str, OpConfig]]) -> None:
        self._ops: Mapping[str, OpConfig] = MappingProxyType(dict(ops))
        self._fingerprint: str | None = None

    @classmethod
    def adopt(cls, ops: Mapping[str, OpConfig]) -> QuantConfig:
        """Return a configuration around a mapping that nobody changes; it is not copied."""
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
        """Return the choice of each op, in graph order; as fast as a dict, for comparing thousands."""
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
        """Return the distinct choices, and for each op, in order, the index of its choice."""
        if isinstance(self._ops, Coded):
            return self._ops.coded()
        table: dict[OpConfig, int] = {}
        picks = [table.setdefault(choice, len(table)) for choice in self._ops.values()]
        return tuple(table), picks

    def ops_in(self, precision: str) -> tuple[str, ...]:
        """Return the names of the ops that run in a precision, in graph order."""
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
    def bf16_ops(self) -> tuple[str, ...]:
        """Names of the ops that run in bf16, in graph order."""
        return self.ops_in(BF16)

    @property
    def is_fp32(self) -> bool:
        """True if every op runs in fp32."""
        choices, picks = self.coded()
        return all(choices[pick].precision == FP32 for pick in set(picks))

    @property
    def quantized_ops(self) -> tuple[str, ...]:
        """Names of the ops that run in less than fp32, in graph order."""
        return tuple(name for name, op in self._ops.items() if op.quantized)

    @property
    def quantized_count(self) -> int:
        """The number of ops that run in less than fp32; as fast as counting bytes, for comparing thousands."""
        choices, picks = self.coded()
        return sum(count for pick, count in Counter(picks).items() if choices[pick].quantized)

    @property
    def counts(self) -> dict[Precision, int]:
        """The number of ops in each precision, the narrowest first; int8 and fp32 are always there."""
        choices, picks = self.coded()
        counts: Counter[Precision] = Counter()
        for pick, count in Counter(picks).items():
            counts[choices[pick].precision] += count
        return {precision: counts[precision] for precision in sorted({*counts, INT8, FP32})}

    @property
    def fingerprint(self) -> str:
        """A hash of the content: the same in every process and for any order of the ops."""
        if self._fingerprint is None:
            texts: dict[int, str] = {}  # most ops share a few choices
            parts = []
            for name, op in sorted(self._ops.items(), key=_by_name):
                text = texts.get(id(op)) or texts.setdefault(id(op), str(op))
                parts.append(f"{name}\0{text}\0")
            self._fingerprint = hashlib.sha256("".join(parts).encode()).hexdigest()
        return self._fingerprint

    def fallback(self, *names: str) -> QuantConfig:
        """Return the configuration with these ops in fp32."""
        return self.replace(dict.fromkeys(names, FLOAT))

    def replace(self, changes: Mapping[str, OpConfig]) -> QuantConfig:
        """Return the configuration with other choices for some ops."""
        unknown = [name for name in changes if name not in self._ops]
        if unknown:
            raise KeyError(f"no op called {unknown[0]!r} in this configuration")
        return QuantConfig({**self._ops, **changes})
