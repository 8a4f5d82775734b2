"""Cost models: the times of ops on another machine, the target, from a file.

Kernels, configurations and scores are those of this machine; only the times are the target's.
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
from quaver.engine.timing.time_model import SECONDS, Seconds, fused_ops, measure_edges, op_times, split_fused
from quaver.engine.timing.variants import APART, Plan, times_for
from quaver.errors import SettingsError
from quaver.files.paths import check_regular
from quaver.ops import QuantConfig
from quaver.space import TuningSpace
from quaver.suggestions import hint
from quaver.time_model import USUAL_COSTS, Edge, TimeModel
from quaver.types import Feed, PlainDict, PlainMapping

# The key that says what a file is, and the version of its layout.
KIND, VERSION = "quaver_cost_model", 1
# The size of the largest file that is read. Judgement: a model of 100,000 ops needs a third of it.
MAX_BYTES = 64 << 20
_CONVERSIONS = ("quantize_element", "dequantize_element", "quantize", "dequantize")


@dataclass(frozen=True, slots=True)
class CostModel:
    """The times of a model's ops on a target.

    Attributes:
        target: the name of the machine.
        adapter: the name of the adapter that timed the ops.
        fingerprint: the fingerprint of the float model.
        model: the times. It has edges only after `with_edges`.
        assumed: True if the costs of conversions were not measured there, but are the usual ones.
        variants: seconds of ops in other variants than their default one, by timing key (see `timing.variants`).
        batch: samples of one inference; None in a file of an earlier version.
    """

    target: str
    adapter: str
    fingerprint: str
    model: TimeModel
    assumed: bool = False
    variants: Mapping[str, Seconds] = field(default_factory=dict)
    batch: int | None = None

    def at(self, config: QuantConfig) -> TimeModel:
        """Return the times of ops as a configuration runs them."""
        return times_for(self.model, config, self.variants)

    def with_edges(self, edges: tuple[Edge, ...]) -> CostModel:
        """Return the cost model with the tensors between ops, with their sizes in the model that is tuned."""
        edges = split_fused(edges, self.model.fp32, self.variants.get(APART, {}))
        return replace(self, model=replace(self.model, edges=edges))

    def predict(self, config: QuantConfig) -> dict[str, float]:
        """Return the predicted latency of a configuration: relative to the fp32 model there, and in milliseconds."""
        seconds, whole = self.at(config).predict(config), self.model.rest + sum(self.model.fp32.values())
        return {"predicted_latency": seconds / whole, "predicted_ms": 1e3 * seconds}

    def to_dict(self) -> PlainDict:
        """Return the content of the file."""
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
        variants = {key: seconds[name] for key, seconds in self.variants.items() if name in seconds}
        return {"fp32": self.model.fp32[name], "int8": self.model.quantized[name], **variants}


def measure_cost_model(adapter: Adapter, target: str | None = None) -> CostModel:
    """Time the ops of a calibrated model on this machine: in fp32, in their default choices, and in other variants."""
    feed, plan = adapter.timing_feed, plan_for(adapter)
    least: dict[str, float] = {}
    profiles = []
    for config in plan.profiled:
        fp32, quantized = op_times(adapter, config)
        least = {name: min(seconds, least.get(name, seconds)) for name, seconds in fp32.items()}
        profiles.append(quantized)
    whole = _whole_seconds(adapter, [*plan.profiled, *plan.timed], feed)
    model, variants = plan.make_time_model([least, *profiles], whole, measure_edges(adapter, feed))
    name = target or default_target(feed)
    return CostModel(name, adapter.name, adapter.fingerprint, model, variants=variants, batch=count_samples(feed))


def _whole_seconds(adapter: Adapter, configs: Sequence[QuantConfig], feed: Feed) -> list[float]:
    """Return the seconds of the float model and of each configuration, each interleaved with the float model.

    They are not all interleaved with each other: many models take the cache from each other, and a small one is slower
    among them than by itself.
    """
    float_model = adapter.assemble(None).with_threads(1)
    pairs = [
        latency.measure([float_model, adapter.assemble(config).with_threads(1)], feed, 2 * SECONDS)
        for config in configs
    ]
    least = min(base.seconds for base, _ in pairs)
    return [least, *(least * model.seconds / base.seconds for base, model in pairs)]


def plan_for(adapter: Adapter) -> Plan:
    """Return what to time of a calibrated model."""
    plan = Plan(TuningSpace(adapter.ops()))
    return replace(plan, fused=tuple(fused_ops(plan.default_config, adapter.op_seconds(None, threads=1))))


def default_target(feed: Feed) -> str:
    """Return the name of this machine where the user gives none."""
    return f"{platform.node() or 'a machine'} ({platform.machine()}, batch {count_samples(feed)}, 1 thread)"


def read_file(path: str | Path) -> Any:
    """Return the content of a cost model's file.

    Raises:
        SettingsError: the file cannot be read, is too large or is not JSON.
    """
    place = Path(path)
    check_regular(place, "the cost model")
    try:
        if place.stat().st_size > MAX_BYTES:
            raise SettingsError(f"cost_model {str(path)!r} is too large to be one")
        return json.loads(place.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"cannot read the cost model {str(path)!r}: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(f"cost_model {str(path)!r} is not JSON: {error}") from None


def from_dict(data: object, source: str) -> CostModel:
    """Return the cost model of a file with this content; `source` names the file in errors."""
    if not isinstance(data, Mapping) or data.get(KIND) != VERSION:
        raise SettingsError(
            f"{source!r} is not a cost model of this version: `quaver profile MODEL --calib DATA --save FILE` there "
            "writes one"
        )
    try:
        seconds = data["seconds"]
        ops = {str(name): (_time(times["fp32"]), _time(times["int8"])) for name, times in seconds["ops"].items()}
        variants: dict[str, dict[str, float]] = {}
        for name, times in seconds["ops"].items():
            for key in times:
                if key not in ("fp32", "int8"):
                    variants.setdefault(str(key), {})[str(name)] = _time(times[key])
        conversions = seconds.get("conversions")
        costs = USUAL_COSTS if conversions is None else tuple(_time(conversions[name]) for name in _CONVERSIONS)
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
    return CostModel(target, adapter, fingerprint, model, conversions is None, variants, batch)


def resolved(data: object, adapter: Adapter, source: str) -> CostModel:
    """Return the cost model of a file, also of one that a board without quaver wrote, which only knows kernels."""
    if not isinstance(data, Mapping) or "raw" not in data or data.get(KIND) != VERSION:
        return from_dict(data, source)
    # The board's file names kernels of this model, so the model must be the same before they are mapped to ops.
    unresolved = CostModel(str(data.get("target")), str(data.get("adapter")), str(data.get("model")), TimeModel({}, {}))
    check_fingerprint(unresolved, adapter, source)
    plan = Plan(TuningSpace(adapter.ops()), tuple(data.get("alone", ())))
    if any(name not in plan.default_config for name in plan.fused) or data.get("configs") != plan.fingerprints:
        raise SettingsError(
            f"cost model {source!r} was prepared by another version of quaver: prepare and take it again"
        )
    try:
        raw = data["raw"]
        graphs = [base64.b64decode(graph, validate=True) for graph in raw["graphs"]]
        times = [{str(name): _time(seconds) for name, seconds in kernels.items()} for kernels in raw["kernels"]]
        kit = require(adapter, SupportsBoardKit)
        profiles = [kit.op_seconds_from_kernels(*pair) for pair in zip(times, graphs, strict=True)]
        edges = tuple(Edge(str(producer), tuple(readers), int(count)) for producer, readers, count in data["borders"])
        model, variants = plan.make_time_model(profiles, [_time(seconds) for seconds in raw["whole"]], edges)
        batch = _batch(data)
    except SettingsError:
        raise
    except Exception as error:  # the parser of a damaged graph may raise anything
        raise SettingsError(f"cost model {source!r} is damaged: {type(error).__name__}: {error!s:.200}") from None
    return replace(unresolved, model=model, variants=variants, batch=batch)


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
    """Return the cost model if it is of this model; refuse it otherwise."""
    if cost.adapter != adapter.name:
        raise SettingsError(f"cost model {source!r} is of a model of {cost.adapter}, and this one is of {adapter.name}")
    names = [op.name for op in adapter.ops()]
    for name in cost.model.fp32:
        if name not in names:
            raise SettingsError(
                f"cost model {source!r} names the op {name!r}, which this model does not have; {hint(name, names)}"
            )
    missing = [name for name in names if name not in cost.model.fp32]
    if missing:
        raise SettingsError(
            f"cost model {source!r} lacks {len(missing)} op(s), such as {missing[0]!r}: it is of another "
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
    """Return a time of the file, checked."""
    number = float(value)
    if isinstance(value, bool | str) or not math.isfinite(number) or number < 0:
        raise ValueError(f"{value!r} is no time in seconds")
    return number
