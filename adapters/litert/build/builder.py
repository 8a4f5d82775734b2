"""From a configuration to a .tflite, by ai-edge-quantizer.

The quantizer's parts are driven directly, because its front door looks up every operator in a list of regular
expressions, opens an interpreter and quantizes every weight anew for each model. A model in one configuration has the
same bytes either way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from threading import Lock
from typing import Any

import numpy as np
from ai_edge_quantizer import model_modifier, params_generator, qtyping
from ai_edge_quantizer.algorithm_manager import AlgorithmName
from ai_edge_quantizer.algorithms.utils.common_utils import TensorQuantParamsCache
from ai_edge_quantizer.utils import tfl_flatbuffer_utils

from quaver.adapters.calibration.channel_statistics import Channels, Statistic
from quaver.adapters.calibration.ranges import Range
from quaver.adapters.litert.build.ranges import Extremes, fitted, weight_extremes
from quaver.adapters.litert.build.repairs import offered, repairable, with_repairs
from quaver.adapters.litert.load.graph import Graph
from quaver.adapters.litert.ops.units import Unit, activations, find_followers, find_units
from quaver.adapters.repairs.base import wanted_statistics
from quaver.errors import BuildError, CalibrationError
from quaver.ops import CALIBRATIONS, Op, OpConfig, QuantConfig
from quaver.types import PlainDict

Ranges = Mapping[str, Mapping[str, Range]]

_GRANULARITY = {
    "per_channel": qtyping.QuantGranularity.CHANNELWISE,
    "per_tensor": qtyping.QuantGranularity.TENSORWISE,
}


class Builder:
    """Builds the model of any configuration from one float model; with `integer_ends` its ranges are known, too."""

    def __init__(self, graph: Graph, integer_ends: bool = False) -> None:
        self.graph, self._integer_ends = graph, integer_ends
        self.units = find_units(graph)
        self.followers = find_followers(graph)
        self.by_name = {unit.op.name: unit for unit in self.units}
        self._ranges: dict[int, dict[str, Range]] | None = None
        # Quantized weights, by constant and granularity: each is made once.
        self._weights = TensorQuantParamsCache()
        self._lock = Lock()
        self._needed = self._find_needed()
        self._extremes: dict[int, dict[str, Extremes]] = {}
        self._channels: Mapping[Statistic, Channels] = {}

    @property
    def ops(self) -> tuple[Op, ...]:
        """What the user sees, with the repairs on offer: none, if the calibration knows too little for them."""
        found = []
        for unit in self.units:
            names = offered(self.graph, unit) if self._ranges is None or self._channels else ()
            reads = self.graph.tensor_name(unit.operator.inputs[0]) if names else ""
            found.append(replace(unit.op, repairs=names, reads=reads) if names else unit.op)
        return tuple(found)

    def wanted_statistics(self) -> list[Statistic]:
        """What repairs must know of channels."""
        able = [unit for unit in self.units if offered(self.graph, unit)]
        return wanted_statistics(op for unit in able if (op := repairable(self.graph, unit)) is not None)

    def output(self, name: str) -> str:
        """The name of the tensor that an op writes, in the model of every configuration."""
        return self.graph.tensor_name(self.by_name[name].operator.outputs[0])

    def ranges(self, tensor: int) -> dict[str, Range]:
        """What each calibration method makes of a tensor; empty if that is not known."""
        return dict((self._ranges or {}).get(tensor, {}))

    def needed(self) -> list[int]:
        """The tensors whose range some configuration may need."""
        return self._needed

    def _find_needed(self) -> list[int]:
        indices = [*(unit.operator.index for unit in self.units), *self.followers]
        touched = [self.graph.operators[index] for index in indices]
        tensors = {tensor for op in touched for tensor in (*activations(self.graph, op), *op.outputs)}
        if self._integer_ends:
            tensors.update(self.graph.inputs, self.graph.outputs)
        return sorted(tensor for tensor in tensors if self.graph.is_float(tensor))

    def calibrate(self, ranges: Ranges, statistics: Mapping[Statistic, Channels] | None = None) -> None:
        """Use these ranges, by tensor name and method, and these statistics for repairs.

        Without any ranges, what needs none can be built.
        """
        self._channels = statistics or {}
        if not ranges and self._integer_ends:
            raise CalibrationError("inputs and outputs in int8 need calibrated ranges: calibrate, or leave them float")
        if not ranges:
            self._ranges, self._extremes, self._weights = None, {}, TensorQuantParamsCache()
            return
        missing = [name for tensor in self.needed() if (name := self.graph.tensor_name(tensor)) not in ranges]
        if missing:
            raise CalibrationError(f"the calibration holds no range of tensor {missing[0]!r}: it is of another model")
        known = {tensor: dict(ranges[self.graph.tensor_name(tensor)]) for tensor in self._needed}
        self._ranges = fitted(self.graph, self.units, self.followers, known)
        self._extremes = weight_extremes(self.graph, self.units, self._ranges)
        self._weights = TensorQuantParamsCache()

    def build(self, config: QuantConfig | None, integer_ends: bool = False) -> bytes:
        """The model file of a configuration, its inputs and outputs in float or in int8; None is the float model."""
        quantized = [unit for unit in self.units if config is not None and config[unit.op.name].quantized]
        if config is None or not quantized:
            return self.graph.content
        int8 = [unit for unit in quantized if config[unit.op.name].calibrated]
        if self._ranges is None and (int8 or integer_ends):
            raise CalibrationError("nothing was calibrated yet, so there are no ranges to quantize with")
        moved = self._moved({unit.operator.index for unit in int8})
        wanted = {unit.operator.index: _wanted(unit, config[unit.op.name]) for unit in quantized}
        wanted |= dict.fromkeys(moved, _static("per_tensor"))
        try:
            with self._lock:
                made = self._quantize(wanted, self._statistics(config, int8, moved), integer_ends)
        except Exception as error:
            raise BuildError(f"ai-edge-quantizer cannot build this configuration: {error}") from error
        return with_repairs(made, self.graph, quantized, config, self._channels)

    def _quantize(self, wanted: dict[int, Any], statistics: PlainDict, integer_ends: bool) -> bytes:
        recipe = _Recipe({_scope(self.graph, index): config for index, config in wanted.items()}, integer_ends)
        generator = params_generator.ParamsGenerator(self.graph.model)
        generator._tensor_quant_params_cache = self._weights
        parameters = generator.generate_quantization_parameters(recipe, statistics, enable_progress_bar=False)
        modifier = model_modifier.ModelModifier(self.graph.model)
        return bytes(modifier.modify_model(parameters, enable_progress_bar=False))

    def _moved(self, int8: set[int]) -> list[int]:
        """The followers that run in int8: after an int8 op, or before nothing but int8 ops."""
        graph, reached = self.graph, set(int8)
        for index, tensor in self.followers.items():
            if graph.writers.get(tensor) in reached:
                reached.add(index)
        for index in reversed(self.followers):
            outputs = graph.operators[index].outputs
            readers = [reader for tensor in outputs for reader in graph.readers.get(tensor, ())]
            if readers and all(reader in reached for reader in readers) and not set(outputs) & set(graph.outputs):
                reached.add(index)
        return [index for index in self.followers if index in reached]

    def _statistics(self, config: QuantConfig, int8: list[Unit], moved: list[int]) -> PlainDict:
        """The range of each tensor. It has one: its writer decides by which method, else its first reader."""
        graph = self.graph
        methods = {tensor: config[unit.op.name].calibration for unit in int8 for tensor in unit.operator.outputs}
        for unit in int8:
            for tensor in activations(graph, unit.operator):
                root = tensor
                methods.setdefault(root, config[unit.op.name].calibration)
                while graph.writers.get(root) in moved:
                    root = self.followers[graph.writers[root]]
                    methods.setdefault(root, config[unit.op.name].calibration)
        if self._ranges is None:
            return {}
        result = {}
        for tensor in self.needed():
            name = graph.tensor_name(tensor)
            low, high = self._ranges[tensor][methods.get(tensor, CALIBRATIONS[0])]
            shape = [1] * graph.rank(tensor)
            result[name] = {"min": np.full(shape, low, np.float32), "max": np.full(shape, high, np.float32)}
        # Dynamic ops as well: a weight is quantized once, for all modes.
        for unit in self.units if self._extremes else ():
            if unit.weight is None or not (pick := config[unit.op.name]).quantized:
                continue
            by_granularity = self._extremes.get(graph.main.tensors[unit.weight].buffer)
            if by_granularity is not None:
                result[graph.tensor_name(unit.weight)] = by_granularity[pick.granularity]
        return result


class _Recipe:
    """As much of the quantizer's recipe manager as its parts ask for."""

    def __init__(self, configs: PlainDict, integer_ends: bool) -> None:
        self._configs, self._integer_ends = configs, integer_ends

    def need_calibration(self) -> bool:
        # Dynamic ops have no config of their activations.
        return self._integer_ends or any(config.activation_tensor_config for config in self._configs.values())

    def get_quantization_configs(self, kind: Any, scope: str) -> tuple[Any, Any]:
        # An output of the model has the scope of the op that writes it.
        if kind in (qtyping.TFLOperationName.INPUT, qtyping.TFLOperationName.OUTPUT):
            config = _static("per_tensor") if self._integer_ends else None
        else:
            config = self._configs.get(scope)
        if config is None:
            return AlgorithmName.NO_QUANTIZE, qtyping.OpQuantizationConfig()
        return AlgorithmName.MIN_MAX_UNIFORM_QUANT, config


def _scope(graph: Graph, index: int) -> str:
    """How the quantizer calls an operator: after all tensors it writes."""
    return str(tfl_flatbuffer_utils.get_op_scope(graph.main.operators[index], graph.main.tensors))


def _wanted(unit: Unit, pick: OpConfig) -> Any:
    if pick.calibrated:
        return _static(pick.granularity)
    if pick.mode not in {choice.mode for choice in unit.op.choices}:
        raise BuildError(f"op {unit.op.name!r} ({unit.op.kind}) cannot run as '{pick}'")
    return _dynamic(pick.granularity)


def _dynamic(granularity: str) -> Any:
    """Weights in int8; activations as the model runs, so that what is read and written is float."""
    return qtyping.OpQuantizationConfig(
        weight_tensor_config=qtyping.TensorQuantizationConfig(8, True, _GRANULARITY[granularity]),
        compute_precision=qtyping.ComputePrecision.INTEGER,
        explicit_dequantize=False,
    )


def _static(granularity: str) -> Any:
    """Weights and activations in int8."""
    return qtyping.OpQuantizationConfig(
        activation_tensor_config=qtyping.TensorQuantizationConfig(8, False, qtyping.QuantGranularity.TENSORWISE),
        weight_tensor_config=qtyping.TensorQuantizationConfig(8, True, _GRANULARITY[granularity]),
        compute_precision=qtyping.ComputePrecision.INTEGER,
        explicit_dequantize=False,
    )
