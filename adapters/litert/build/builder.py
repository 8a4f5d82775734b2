"""Build the .tflite of a configuration with ai-edge-quantizer.

Its parts are driven directly, because its public interface looks up every operator in a list of regular expressions,
opens an interpreter and quantizes every weight again for each model. The bytes of a model are the same either way.

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
from quaver.adapters.litert.build.ranges import Extremes, weight_extremes, widen_ranges
from quaver.adapters.litert.build.repairs import offered, repairable, with_repairs
from quaver.adapters.litert.load.graph import Graph
from quaver.adapters.litert.ops.units import Unit, activations, find_passthrough, find_units
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
    """Builds the model of any configuration from one float model. `integer_io` also calibrates inputs and outputs."""

    def __init__(self, graph: Graph, integer_io: bool = False) -> None:
        self.graph, self._integer_io = graph, integer_io
        self.units = find_units(graph)
        self.passthrough = find_passthrough(graph)
        self.by_name = {unit.op.name: unit for unit in self.units}
        self._ranges: dict[int, dict[str, Range]] | None = None
        # Quantized weights by constant and granularity, so that each is quantized once.
        self._weights = TensorQuantParamsCache()
        self._lock = Lock()
        self._tensors_to_calibrate = self._find_tensors_to_calibrate()
        self._extremes: dict[int, dict[str, Extremes]] = {}
        self._channels: Mapping[Statistic, Channels] = {}

    @property
    def ops(self) -> tuple[Op, ...]:
        """Return the ops with the repairs on offer: none, if the calibration has no statistics for them."""
        ops = []
        for unit in self.units:
            names = offered(self.graph, unit) if self._ranges is None or self._channels else ()
            reads = self.graph.tensor_name(unit.operator.inputs[0]) if names else ""
            ops.append(replace(unit.op, repairs=names, reads=reads) if names else unit.op)
        return tuple(ops)

    def wanted_statistics(self) -> list[Statistic]:
        """Return the channel statistics that repairs need."""
        repairable_units = [unit for unit in self.units if offered(self.graph, unit)]
        return wanted_statistics(op for unit in repairable_units if (op := repairable(self.graph, unit)) is not None)

    def output(self, name: str) -> str:
        """Return the name of the tensor that an op writes, in the model of every configuration."""
        return self.graph.tensor_name(self.by_name[name].operator.outputs[0])

    def ranges(self, tensor: int) -> dict[str, Range]:
        """Return the range of a tensor by each calibration method; empty if that is unknown."""
        return dict((self._ranges or {}).get(tensor, {}))

    def tensors_to_calibrate(self) -> list[int]:
        """Return the tensors whose range some configuration may need."""
        return self._tensors_to_calibrate

    def _find_tensors_to_calibrate(self) -> list[int]:
        indices = [*(unit.operator.index for unit in self.units), *self.passthrough]
        touched = [self.graph.operators[index] for index in indices]
        tensors = {tensor for op in touched for tensor in (*activations(self.graph, op), *op.outputs)}
        if self._integer_io:
            tensors.update(self.graph.inputs, self.graph.outputs)
        return sorted(tensor for tensor in tensors if self.graph.is_float(tensor))

    def calibrate(self, ranges: Ranges, statistics: Mapping[Statistic, Channels] | None = None) -> None:
        """Use these ranges, by tensor name and method, and these statistics for repairs.

        Without ranges, only configurations that need none can be built.
        """
        self._channels = statistics or {}
        if not ranges and self._integer_io:
            raise CalibrationError("inputs and outputs in int8 need calibrated ranges: calibrate, or leave them float")
        if not ranges:
            self._ranges, self._extremes, self._weights = None, {}, TensorQuantParamsCache()
            return
        missing = [
            name for tensor in self.tensors_to_calibrate() if (name := self.graph.tensor_name(tensor)) not in ranges
        ]
        if missing:
            raise CalibrationError(
                f"the calibration holds no range of tensor {missing[0]!r}: it belongs to another model"
            )
        by_tensor = {tensor: dict(ranges[self.graph.tensor_name(tensor)]) for tensor in self._tensors_to_calibrate}
        self._ranges = widen_ranges(self.graph, self.units, self.passthrough, by_tensor)
        self._extremes = weight_extremes(self.graph, self.units, self._ranges)
        self._weights = TensorQuantParamsCache()

    def build(self, config: QuantConfig | None, integer_io: bool = False) -> bytes:
        """Return the model file of a configuration.

        Args:
            config: how each op runs; None for the float model.
            integer_io: make inputs and outputs int8.
        """
        quantized = [unit for unit in self.units if config is not None and config[unit.op.name].quantized]
        if config is None or not quantized:
            return self.graph.content
        int8 = [unit for unit in quantized if config[unit.op.name].calibrated]
        if self._ranges is None and (int8 or integer_io):
            raise CalibrationError("nothing was calibrated yet, so there are no ranges to quantize with")
        passthrough = self._int8_passthrough({unit.operator.index for unit in int8})
        quantizer_configs = {unit.operator.index: _quantizer_config(unit, config[unit.op.name]) for unit in quantized}
        quantizer_configs |= dict.fromkeys(passthrough, _static("per_tensor"))
        try:
            with self._lock:
                content = self._quantize(quantizer_configs, self._statistics(config, int8, passthrough), integer_io)
        except Exception as error:
            raise BuildError(f"ai-edge-quantizer cannot build this configuration: {error}") from error
        return with_repairs(content, self.graph, quantized, config, self._channels)

    def _quantize(self, quantizer_configs: dict[int, Any], statistics: PlainDict, integer_io: bool) -> bytes:
        recipe = _Recipe(
            {_quantizer_scope(self.graph, index): config for index, config in quantizer_configs.items()}, integer_io
        )
        generator = params_generator.ParamsGenerator(self.graph.model)
        generator._tensor_quant_params_cache = self._weights
        parameters = generator.generate_quantization_parameters(recipe, statistics, enable_progress_bar=False)
        modifier = model_modifier.ModelModifier(self.graph.model)
        return bytes(modifier.modify_model(parameters, enable_progress_bar=False))

    def _int8_passthrough(self, int8: set[int]) -> list[int]:
        """Return the movers that run in int8: after an int8 op, or before nothing but int8 ops."""
        graph, reached = self.graph, set(int8)
        for index, tensor in self.passthrough.items():
            if graph.writers.get(tensor) in reached:
                reached.add(index)
        for index in reversed(self.passthrough):
            outputs = graph.operators[index].outputs
            readers = [reader for tensor in outputs for reader in graph.readers.get(tensor, ())]
            if readers and all(reader in reached for reader in readers) and not set(outputs) & set(graph.outputs):
                reached.add(index)
        return [index for index in self.passthrough if index in reached]

    def _statistics(self, config: QuantConfig, int8: list[Unit], passthrough: list[int]) -> PlainDict:
        """Return the range of each tensor by the method of its writer, else of its first reader."""
        graph = self.graph
        methods = {tensor: config[unit.op.name].calibration for unit in int8 for tensor in unit.operator.outputs}
        for unit in int8:
            for tensor in activations(graph, unit.operator):
                root = tensor
                methods.setdefault(root, config[unit.op.name].calibration)
                while graph.writers.get(root) in passthrough:
                    root = self.passthrough[graph.writers[root]]
                    methods.setdefault(root, config[unit.op.name].calibration)
        if self._ranges is None:
            return {}
        result = {}
        for tensor in self.tensors_to_calibrate():
            name = graph.tensor_name(tensor)
            low, high = self._ranges[tensor][methods.get(tensor, CALIBRATIONS[0])]
            shape = [1] * graph.rank(tensor)
            result[name] = {"min": np.full(shape, low, np.float32), "max": np.full(shape, high, np.float32)}
        # Dynamic ops too, because a weight is quantized once for all modes.
        for unit in self.units if self._extremes else ():
            if unit.weight is None or not (choice := config[unit.op.name]).quantized:
                continue
            by_granularity = self._extremes.get(graph.main.tensors[unit.weight].buffer)
            if by_granularity is not None:
                result[graph.tensor_name(unit.weight)] = by_granularity[choice.granularity]
        return result


class _Recipe:
    """The part of the quantizer's recipe manager that its other parts use."""

    def __init__(self, configs: PlainDict, integer_io: bool) -> None:
        self._configs, self._integer_io = configs, integer_io

    def need_calibration(self) -> bool:
        # Dynamic ops have no config of their activations.
        return self._integer_io or any(config.activation_tensor_config for config in self._configs.values())

    def get_quantization_configs(self, kind: Any, scope: str) -> tuple[Any, Any]:
        # An output of the model has the scope of the op that writes it.
        if kind in (qtyping.TFLOperationName.INPUT, qtyping.TFLOperationName.OUTPUT):
            config = _static("per_tensor") if self._integer_io else None
        else:
            config = self._configs.get(scope)
        if config is None:
            return AlgorithmName.NO_QUANTIZE, qtyping.OpQuantizationConfig()
        return AlgorithmName.MIN_MAX_UNIFORM_QUANT, config


def _quantizer_scope(graph: Graph, index: int) -> str:
    """Return the quantizer's name of an operator, made of all tensors that it writes."""
    return str(tfl_flatbuffer_utils.get_op_scope(graph.main.operators[index], graph.main.tensors))


def _quantizer_config(unit: Unit, choice: OpConfig) -> Any:
    if choice.calibrated:
        return _static(choice.granularity)
    if choice.mode not in {offered.mode for offered in unit.op.choices}:
        raise BuildError(f"op {unit.op.name!r} ({unit.op.kind}) cannot run as '{offered}'")
    return _dynamic(choice.granularity)


def _dynamic(granularity: str) -> Any:
    """Return the config for int8 weights, and activations that are quantized as the model runs."""
    return qtyping.OpQuantizationConfig(
        weight_tensor_config=qtyping.TensorQuantizationConfig(8, True, _GRANULARITY[granularity]),
        compute_precision=qtyping.ComputePrecision.INTEGER,
        explicit_dequantize=False,
    )


def _static(granularity: str) -> Any:
    """Return the config for int8 weights and activations."""
    return qtyping.OpQuantizationConfig(
        activation_tensor_config=qtyping.TensorQuantizationConfig(8, False, qtyping.QuantGranularity.TENSORWISE),
        weight_tensor_config=qtyping.TensorQuantizationConfig(8, True, _GRANULARITY[granularity]),
        compute_precision=qtyping.ComputePrecision.INTEGER,
        explicit_dequantize=False,
    )
