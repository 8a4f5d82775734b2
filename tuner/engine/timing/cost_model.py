"""What ops take on another machine, from a file: a target that this machine is not.

Kernels, configurations and scores are this machine's; only times come from there.
"""

from __future__ import annotations

import base64
import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from quaver.adapters import Adapter
from quaver.adapters.abilities import SupportsBoardKit, require
from quaver.adapters.data import count_samples
from quaver.engine.timing import latency
from quaver.engine.timing.time_model import SECONDS, Seconds, absorbed, borders, op_times, split_fused
from quaver.engine.timing.variants import APART, Plan, times_for
from quaver.errors import SettingsError
from quaver.files.paths import check_regular
from quaver.ops import QuantConfig
from quaver.space import TuningSpace
from quaver.suggestions import hint
from quaver.time_model import USUAL, Edge, TimeModel
from quaver.types import Feed, PlainDict, PlainMapping

# The key that says what a file is, and the version of its layout.
KIND, VERSION = "quaver_cost_model", 1
# A file of more bytes is not one.
MOST_BYTES = 64 << 20
_CONVERSIONS = ("quantize_element", "dequantize_element", "quantize", "dequantize")


@dataclass(frozen=True, slots=True)
class CostModel:
    """Times of a model's ops on a target.

    Attributes:
        target: what the machine is called.
        adapter: the adapter that timed them.
        fingerprint: of the float model.
        model: the times. Without its borders as long as it was not looked at with the model in hand.
        assumed: whether what conversions take was not measured there, and is what they usually take.
        ways: seconds of ops in other ways than their default one (see `engine.ways`).
        batch: samples of one inference; None in a file of an earlier version.
    """

    target: str
    adapter: str
    fingerprint: str
    model: TimeModel
    assumed: bool = False
    ways: Mapping[str, Seconds] = field(default_factory=dict)
    batch: int | None = None

    def at(self, config: QuantConfig) -> TimeModel:
        """The times of ops as a configuration runs them."""
        return times_for(self.model, config, self.ways)

    def among(self, between: tuple[Edge, ...]) -> CostModel:
        """The same with the tensors between ops, as large as they are in the model in hand."""
        apart = split_fused(between, self.model.fp32, self.ways.get(APART, {}))
        return replace(self, model=replace(self.model, borders=apart))

    def predict(self, config: QuantConfig) -> dict[str, float]:
        """The latency of a configuration as a fraction of the fp32 model's there, and in milliseconds."""
        seconds, whole = self.at(config).predict(config), self.model.rest + sum(self.model.fp32.values())
        return {"predicted_latency": seconds / whole, "predicted_ms": 1e3 * seconds}

    def to_dict(self) -> PlainDict:
        """As it stands in a file."""
        model = self.model
        costs = dict(zip(_CONVERSIONS, model.costs, strict=True))
        return {
            KIND: VERSION,
            "target": self.target,
            "adapter": self.adapter,
            "model": self.fingerprint,
            "batch": self.batch,
            "seconds": {
                "ops": {name: self._times(name) for name in model.fp32},
                "rest": model.rest,
                "conversions": None if self.assumed else costs,
            },
            "fit": None if model.fit is None else {"correlation": model.fit[0], "error": model.fit[1]},
        }

    def _times(self, name: str) -> dict[str, float]:
        others = {way: seconds[name] for way, seconds in self.ways.items() if name in seconds}
        return {"fp32": self.model.fp32[name], "int8": self.model.quantized[name], **others}


def measure_cost_model(adapter: Adapter, target: str | None = None) -> CostModel:
    """Time the ops of a calibrated model on this machine, in fp32, by their default choices, and in other ways."""
    feed, plan = adapter.timing_feed, plan_for(adapter)
    least: dict[str, float] = {}
    profiles = []
    for config in plan.profiled:
        fp32, quantized = op_times(adapter, config)
        least = {name: min(seconds, least.get(name, seconds)) for name, seconds in fp32.items()}
        profiles.append(quantized)
    whole = _by_the_clock(adapter, [*plan.profiled, *plan.timed], feed)
    model, known = plan.put_together([least, *profiles], whole, borders(adapter, feed))
    name = target or this_machine(feed)
    return CostModel(name, adapter.name, adapter.fingerprint, model, ways=known, batch=count_samples(feed))


def _by_the_clock(adapter: Adapter, configs: Sequence[QuantConfig], feed: Feed) -> list[float]:
    """Seconds of the float model and of each configuration, in turns with the float model.

    Not all in turns: many models take the cache from each other, and a small one is slower among them than by itself.
    """
    float_model = adapter.assemble(None).with_threads(1)
    pairs = [
        latency.measure([float_model, adapter.assemble(one).with_threads(1)], feed, 2 * SECONDS) for one in configs
    ]
    least = min(base.seconds for base, _ in pairs)
    return [least, *(least * one.seconds / base.seconds for base, one in pairs)]


def plan_for(adapter: Adapter) -> Plan:
    """What to time of a calibrated model."""
    plan = Plan(TuningSpace(adapter.ops()))
    return replace(plan, alone=tuple(absorbed(plan.default_config, adapter.op_seconds(None, threads=1))))


def this_machine(feed: Feed) -> str:
    """What a machine is called where its user gives no name."""
    return f"{platform.node() or 'a machine'} ({platform.machine()}, batch {count_samples(feed)}, 1 thread)"


def read_file(path: str | Path) -> Any:
    """What stands in the file of a cost model; one that cannot be read is named."""
    place = Path(path)
    check_regular(place, "the cost model")
    try:
        if place.stat().st_size > MOST_BYTES:
            raise SettingsError(f"cost_model {str(path)!r} is too large to be one")
        return json.loads(place.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"cannot read the cost model {str(path)!r}: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(f"cost_model {str(path)!r} is not JSON: {error}") from None


def from_dict(data: Any, source: str) -> CostModel:
    """A cost model from what stands in a file."""
    if not isinstance(data, Mapping) or data.get(KIND) != VERSION:
        raise SettingsError(
            f"{source!r} is not a cost model of this version: `quaver profile MODEL --calib DATA --save FILE` there "
            "writes one"
        )
    try:
        seconds = data["seconds"]
        ops = {str(name): (_time(one["fp32"]), _time(one["int8"])) for name, one in seconds["ops"].items()}
        known: dict[str, dict[str, float]] = {}
        for name, one in seconds["ops"].items():
            for way in one:
                if way not in ("fp32", "int8"):
                    known.setdefault(str(way), {})[str(name)] = _time(one[way])
        given = seconds.get("conversions")
        costs = USUAL if given is None else tuple(_time(given[name]) for name in _CONVERSIONS)
        model = TimeModel(
            {name: fp32 for name, (fp32, _) in ops.items()},
            {name: int8 for name, (_, int8) in ops.items()},
            _time(seconds.get("rest", 0.0)),
            costs=(costs[0], costs[1], costs[2], costs[3]),
        )
        target, adapter, fingerprint = (str(data[name]) for name in ("target", "adapter", "model"))
        batch = _batch(data)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise SettingsError(f"cost model {source!r} is damaged: {type(error).__name__}: {error}") from None
    if sum(model.fp32.values()) <= 0:
        raise SettingsError(f"cost model {source!r} says that all ops of the fp32 model take no time")
    return CostModel(target, adapter, fingerprint, model, given is None, known, batch)


def resolved(data: Any, adapter: Adapter, source: str) -> CostModel:
    """A cost model from what stands in a file, also if a board without quaver wrote it, which knows kernels alone."""
    if not isinstance(data, Mapping) or "raw" not in data or data.get(KIND) != VERSION:
        return from_dict(data, source)
    # What the board says names ops by what they are in this model, so that must be the same one first.
    known = CostModel(str(data.get("target")), str(data.get("adapter")), str(data.get("model")), TimeModel({}, {}))
    check_fingerprint(known, adapter, source)
    plan = Plan(TuningSpace(adapter.ops()), tuple(data.get("alone", ())))
    if any(name not in plan.default_config for name in plan.alone) or data.get("configs") != plan.fingerprints:
        raise SettingsError(
            f"cost model {source!r} was prepared by another version of quaver: prepare and take it again"
        )
    try:
        raw = data["raw"]
        graphs = [base64.b64decode(graph, validate=True) for graph in raw["graphs"]]
        times = [{str(name): _time(one) for name, one in taken.items()} for taken in raw["kernels"]]
        kit = require(adapter, SupportsBoardKit)
        profiles = [kit.op_seconds_from_kernels(*pair) for pair in zip(times, graphs, strict=True)]
        between = tuple(Edge(str(one), tuple(readers), int(count)) for one, readers, count in data["borders"])
        model, ways = plan.put_together(profiles, [_time(one) for one in raw["whole"]], between)
        batch = _batch(data)
    except SettingsError:
        raise
    except Exception as error:  # whatever parses a damaged graph
        raise SettingsError(f"cost model {source!r} is damaged: {type(error).__name__}: {error!s:.200}") from None
    return replace(known, model=model, ways=ways, batch=batch)


def check_fingerprint(cost: CostModel, adapter: Adapter, source: str) -> None:
    """Refuse the cost model of another model."""
    if cost.adapter != adapter.name:
        raise SettingsError(f"cost model {source!r} is of a model of {cost.adapter}, and this one is of {adapter.name}")
    if cost.fingerprint != adapter.fingerprint:
        raise SettingsError(
            f"cost model {source!r} is of another model: its fingerprint is {cost.fingerprint[:12]}, this one's "
            f"{adapter.fingerprint[:12]}. Profile this model on the target"
        )


def fitting(cost: CostModel, adapter: Adapter, source: str) -> CostModel:
    """The cost model, if it is of the model in hand; else it is refused."""
    if cost.adapter != adapter.name:
        raise SettingsError(f"cost model {source!r} is of a model of {cost.adapter}, and this one is of {adapter.name}")
    names = [op.name for op in adapter.ops()]
    for name in cost.model.fp32:
        if name not in names:
            raise SettingsError(
                f"cost model {source!r} speaks of the op {name!r}, which this model does not have; {hint(name, names)}"
            )
    missing = [name for name in names if name not in cost.model.fp32]
    if missing:
        raise SettingsError(
            f"cost model {source!r} says nothing of {len(missing)} op(s), such as {missing[0]!r}: it is of another "
            "model, or of another version of quaver. Profile this model on the target"
        )
    check_fingerprint(cost, adapter, source)
    return cost


def _batch(data: PlainMapping) -> int | None:
    """Return the batch that a file says, if it says one."""
    value = data.get("batch")
    if value is not None and (type(value) is not int or value < 1):
        raise ValueError(f"batch {value!r} is no number of samples")
    return value


def _time(value: Any) -> float:
    number = float(value)
    if isinstance(value, bool | str) or not math.isfinite(number) or number < 0:
        raise ValueError(f"{value!r} is no time in seconds")
    return number
