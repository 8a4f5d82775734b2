"""Repairs: changes of an op without labels that reduce its quantization error, such as smoothing or bias correction.

A repair leaves the float model alone. It is recorded in `OpConfig.repairs`, so that a trial is rebuilt with it.

"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from quaver.adapters.calibration.channel_statistics import Channels, Statistic
from quaver.adapters.repairs.rescaling import Rescaling, SharedInput, weight_peak
from quaver.errors import BuildError, SettingsError
from quaver.ops import QuantConfig
from quaver.repairs import name_of, strength_of
from quaver.suggestions import hint

Float = NDArray[np.float32]
Rounding = Callable[[Float], Float]
R = TypeVar("R", bound="type[Repair] | type[Rescaling]")


@dataclass(frozen=True, slots=True, eq=False)
class RepairableOp:
    """An op with a weight, in one layout for all frameworks.

    Attributes:
        name: of the op.
        kind: its type, as the framework spells it.
        reads: the tensor that the weight multiplies with.
        axis: the axis of that tensor which holds channels.
        weight: (output channels, input channels of a group, places...).
        groups: into how many groups the channels are divided; 1 but for grouped convolutions.
        bias: one value for each output channel; None where there is none.
        takes_bias: whether one can be given to it.
        rescalable: whether the channels that it reads can be rescaled; see `Rescaling`.
        written_peak: for each channel that it reads, the largest absolute weight of the op that computes it, if that
            op's weight is divided when the channels are rescaled; None elsewhere.
    """

    name: str
    kind: str
    reads: str
    axis: int
    weight: Float
    groups: int = 1
    bias: Float | None = None
    takes_bias: bool = True
    rescalable: bool = False
    written_peak: Float | None = None


class Repair(ABC):
    """A change of an op's float weight and bias before they are quantized.

    Write both methods, give it a `name`, and register it with `register_repair`: adapters collect the statistics in the
    one calibration pass, and ops whose `OpConfig.repairs` names the repair are built with it. It must give the same for
    the same arguments, so that a trial is rebuilt byte for byte.
    """

    name: ClassVar[str]

    @abstractmethod
    def statistics(self, op: RepairableOp) -> Iterable[Statistic]:
        """Return the tensor statistics that the repair needs, such as `Statistic(op.reads, "mean", op.axis)`.

        Return none for an op that cannot be repaired in this way.
        """

    @abstractmethod
    def apply(self, op: RepairableOp, statistics: Mapping[Statistic, Channels], quantized: Rounding) -> RepairableOp:
        """Return the op with another weight or bias: `dataclasses.replace(op, bias=...)`.

        Args:
            op: the op.
            statistics: the statistics that `statistics` asked for.
            quantized: returns a weight as the quantized op will have it, as real numbers.
        """


_registered: dict[str, Repair | Rescaling] = {}


def register_repair(cls: R) -> R:
    """Make a repair available under its `name`, as a class decorator."""
    if not getattr(cls, "name", ""):
        raise SettingsError(f"repair class {cls.__name__} needs a `name` to be registered under")
    _registered[cls.name] = cls()
    return cls


def repairs() -> tuple[Repair | Rescaling, ...]:
    """Return all registered repairs, by name."""
    return tuple(_registered[name] for name in sorted(_registered))


def find_repair(spelled: str) -> Repair | Rescaling:
    """Return the repair that a configuration spells as a name, or as a name and a strength."""
    name = name_of(spelled)
    repair = _registered.get(name)
    if repair is None:
        raise BuildError(f"no repair is called {name!r}; {hint(name, _registered)}")
    if strength_of(spelled) is not None and not (isinstance(repair, Rescaling) and repair.strengths):
        raise BuildError(f"repair {spelled!r}: {name!r} is done or not, there is no strength to choose")
    return repair


def offered_repairs(op: RepairableOp) -> tuple[str, ...]:
    """Return the repairs that help this op as configurations spell them: a name, or one for each strength to try."""
    spellings: list[str] = []
    for repair in repairs():
        if any(True for _ in repair.statistics(op)):
            strengths = repair.strengths if isinstance(repair, Rescaling) else ()
            spellings += [f"{repair.name}:{strength}" for strength in strengths] or [repair.name]
    return tuple(spellings)


def wanted_statistics(ops: Iterable[RepairableOp]) -> list[Statistic]:
    """Return the statistics that any registered repair may need of these ops."""
    statistics = (statistic for op in ops for repair in repairs() for statistic in repair.statistics(op))
    return list(dict.fromkeys(statistics)) if _registered else []


def known_statistics(
    op: RepairableOp, spelled: str, collected: Mapping[Statistic, Channels]
) -> dict[Statistic, Channels]:
    """Return the statistics that a repair asked for."""
    wanted = list(find_repair(spelled).statistics(op))
    missing = next((statistic for statistic in wanted if statistic not in collected), None)
    if missing is not None:
        raise BuildError(
            f"repair {spelled!r} of op {op.name!r} needs the {missing.kind} of tensor {missing.tensor!r}, which "
            "calibration did not take: register the repair before the run, and calibrate again"
        )
    return {statistic: collected[statistic] for statistic in wanted}


def shared_factors(ops: Sequence[RepairableOp], spelled: str, collected: Mapping[Statistic, Channels]) -> Float:
    """Return the factors that a rescaling divides the channels of a tensor by, for the ops that read it."""
    repair, first = find_repair(spelled), ops[0]
    assert isinstance(repair, Rescaling)
    peak = np.asarray(np.max([weight_peak(op) for op in ops], axis=0), np.float32)
    shared = SharedInput(first.reads, first.axis, peak, first.written_peak)
    strength = strength_of(spelled)
    statistics = known_statistics(first, spelled, collected)
    factors = repair.factors(shared, statistics, repair.strength if strength is None else strength)
    if np.shape(factors) != peak.shape or not np.all(np.isfinite(factors)) or not np.all(factors > 0):
        raise BuildError(
            f"repair {spelled!r} of what op {first.name!r} reads must give a factor above 0 for each channel"
        )
    return np.asarray(factors, np.float32)


def repaired(
    op: RepairableOp, names: Iterable[str], collected: Mapping[Statistic, Channels], quantized: Rounding
) -> RepairableOp:
    """Return the op after these repairs, in order, except rescalings, which concern several ops."""
    for name in names:
        repair = find_repair(name)
        if isinstance(repair, Repair):
            op = repair.apply(op, known_statistics(op, name, collected), quantized)
    return op


def refuse_repairs(config: QuantConfig | None, adapter: str) -> None:
    """Raise if a configuration wants a repair, for an adapter that has none."""
    for name, pick in (config or {}).items():
        if pick.repairs:
            raise BuildError(f"op {name!r} is to be built with repair {pick.repairs[0]!r}, which {adapter} cannot do")
