"""The adapter for ONNX Runtime."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

import numpy as np
import onnx

from quaver.adapters.base import Adapter
from quaver.adapters.calibration.calibrator import never_enough, no_progress
from quaver.adapters.calibration.channel_statistics import from_records
from quaver.adapters.calibration.stored import stored_ranges, tensors_with_mask_values
from quaver.adapters.comparison import TOLERANCE, Comparison
from quaver.adapters.data import InputSpec
from quaver.adapters.decoder_inputs import with_derived_inputs
from quaver.adapters.generation import GenerationFolder, head_size, model_file
from quaver.adapters.inspection import ModelView
from quaver.adapters.model_errors import as_model_error
from quaver.adapters.onnxrt.build.blocks import multiplied_with
from quaver.adapters.onnxrt.build.builder import Builder
from quaver.adapters.onnxrt.build.provenance import read_provenance
from quaver.adapters.onnxrt.build.weight_store import WeightStore
from quaver.adapters.onnxrt.inspect.config_view import ConfigView
from quaver.adapters.onnxrt.inspect.file_view import FileView, StandaloneFile
from quaver.adapters.onnxrt.inspect.local_runs import OutputRecorder, local_errors, record_outputs
from quaver.adapters.onnxrt.inspect.partial_runs import PartialRuns
from quaver.adapters.onnxrt.inspect.weight_study import WeightStudy
from quaver.adapters.onnxrt.load.graph import Graph
from quaver.adapters.onnxrt.load.model_file import LoadedModel, check_readable, load_model
from quaver.adapters.onnxrt.load.module_names import MODULE_NAMES
from quaver.adapters.onnxrt.ops.blocks import is_rounded, without_rounding
from quaver.adapters.onnxrt.ops.decoder import is_decoder, tied_weights
from quaver.adapters.onnxrt.ops.unit import Unit
from quaver.adapters.onnxrt.ops.units import find_units
from quaver.adapters.onnxrt.ops.unquantizable import (
    of_other_floats,
    some,
    unquantizable,
    unquantizable_nodes,
    warn_of_doubles,
)
from quaver.adapters.onnxrt.optimize.pipeline import Applied, rewrites_after, speed_rewrite_names
from quaver.adapters.onnxrt.optimize.verify import EqualityCheck
from quaver.adapters.onnxrt.profile.kernels import int8_edges
from quaver.adapters.onnxrt.profile.op_profile import attribute_seconds
from quaver.adapters.onnxrt.profile.workload import multiply_adds
from quaver.adapters.onnxrt.run.calibrator import Calibrator
from quaver.adapters.onnxrt.run.model import OnnxModel, QOperatorModel, SavedModel, UnmodifiedModel
from quaver.adapters.onnxrt.run.moments import KEY, SecondMoments
from quaver.adapters.onnxrt.run.moments import from_records as from_records_of_samples
from quaver.adapters.onnxrt.run.moments import to_records as to_records_of_samples
from quaver.adapters.onnxrt.runtime import ONNX_RUNTIME, Runtime
from quaver.adapters.options import AdapterOptions, TimingOptions
from quaver.adapters.repairs.base import offered_repairs
from quaver.errors import BuildError, ModelError
from quaver.introspection import Timing
from quaver.ops import Op, Precision, QuantConfig
from quaver.processors import Portability, this_processor
from quaver.types import CalibrationData, Feed, ModelLike, PlainDict
from quaver.unquantizable import Unquantizable, with_shares
from quaver.weight_table import WeightTable

log = logging.getLogger(__name__)


class OnnxAdapter(Adapter):
    """One ONNX model: loaded once, and assembled again for each trial.

    Attributes:
        runtime: runs and times the models; a subclass for another runtime sets it.
    """

    runtime: ClassVar[Runtime] = ONNX_RUNTIME

    name = "onnxrt"
    runtime_name = ONNX_RUNTIME.name
    frameworks: ClassVar[tuple[str, ...]] = ("onnxrt", "onnx", "onnxruntime", "onnxrt_qdq", "onnxrt_qlinearops")
    suffix = ".onnx"
    accepted_forms = "a path ending in .onnx, a folder of onnxruntime-genai, an onnx.ModelProto or bytes"
    portability = "built"
    quant_formats: ClassVar[tuple[str, ...]] = ("qdq", "qoperator")
    implied_formats = MappingProxyType({"onnxrt_qdq": "qdq", "onnxrt_qlinearops": "qoperator"})

    def __init__(self, source: ModelLike, model: LoadedModel, options: AdapterOptions) -> None:
        inputs = [_input_spec(value) for value in model.graph.inputs]
        super().__init__(options, with_derived_inputs(inputs, head_size(source)))
        self._source = source
        self._folder: GenerationFolder | None = None
        self._masked_tensors: frozenset[str] = frozenset()
        self._set_model(model)

    def _set_model(self, model: LoadedModel) -> None:
        """Find the ops of a model, and prepare to build its configurations."""
        self._model, graph, options = model, model.graph, self._options
        graph.tied = tied_weights(graph) if options.ops_version > 3 else {}
        graph.constants |= {name: graph.constants[table].T for name, table in graph.tied.items()}
        self._units = self.runtime.units(graph, find_units(graph, options.ops_version))
        mark = _unused_separator(graph)
        self._store = WeightStore(graph.constants, options.folder, mark, options.shared)
        self._builder = Builder(graph, self._units, self._store, mark, options.portable, self.runtime.rules)
        self._is_decoder = options.ops_version > 3 and is_decoder(graph)
        self._moments: SecondMoments | None = None
        self._study: WeightStudy | None = None
        self._repairs = {unit.op.name: self._offered_repairs(unit) for unit in self._units}
        if not self._units:
            self.close()
            raise ModelError(f"nothing in the model can run in int8: {_describe_contents(graph)}")

    @classmethod
    def accepts(cls, model: ModelLike) -> bool:
        """Return True for a ModelProto, bytes, a file that ends in .onnx or .ort, or a folder of onnxruntime-genai."""
        if isinstance(model, onnx.ModelProto | bytes | bytearray | memoryview):
            return True
        is_file = isinstance(model, str | os.PathLike) and os.fspath(model).endswith((".onnx", ".ort"))
        return is_file or GenerationFolder.of(model) is not None

    @classmethod
    def load(cls, model: ModelLike, options: AdapterOptions) -> OnnxAdapter:
        """Load the model, rewrite its float graph, and find its ops."""
        source = model_file(model)
        adapter = cls(source, cls._read(source, options, options.left_out), options)
        adapter._folder = GenerationFolder.of(model)
        warn_of_doubles(adapter._model.graph)
        return adapter

    def compare(self, feeds: Sequence[Feed] = ()) -> Comparison:
        check = EqualityCheck(self._source, self._inputs, feeds)
        comparison, difference = check.check(self._model, self.assemble(None).source())
        left_out = self._options.left_out
        if comparison.obstacle:  # without a comparison, no rewrite can be verified
            left_out = tuple(dict.fromkeys([*left_out, *speed_rewrite_names()]))
        elif difference.error > TOLERANCE:
            left_out = check.without_wrong_rewrites(self._load_without, left_out)
            log.warning("the float model is built without these rewrites, which change it: %s", ", ".join(left_out))
        if left_out != self._options.left_out:
            self._build_without(left_out)
            if not comparison.obstacle:
                comparison, _ = check.check(self._model, self.assemble(None).source())
        if comparison.when_optimized:
            log.warning("%s", comparison.when_optimized)
        return replace(comparison, left_out=tuple(dict.fromkeys([*left_out, *comparison.left_out])))

    def leave_out(self, names: Sequence[str]) -> None:
        self._build_without(tuple(dict.fromkeys([*self._options.left_out, *names])))

    def without_rewrites(self, names: Sequence[str]) -> OnnxAdapter:
        options = replace(self._options, folder=None, shared=False, left_out=(*self._options.left_out, *names))
        other = type(self)(self._source, self._read(self._source, options, options.left_out), options)
        other._probe_samples = list(self._probe_samples)
        other.restore(other.calibrator().run(iter(self._probe_samples[:1]), 1, no_progress, never_enough))
        return other

    def _build_without(self, left_out: tuple[str, ...]) -> None:
        self._store.close()
        self._options = replace(self._options, left_out=left_out)
        self._set_model(self._load_without(left_out))

    def _load_without(self, left_out: Sequence[str]) -> LoadedModel:
        return self._read(self._source, self._options, left_out)

    @classmethod
    def _read(cls, source: ModelLike, options: AdapterOptions, left_out: Sequence[str]) -> LoadedModel:
        """Load a model without these rewrites, and without those that its runtime or its version of the ops skips."""
        later = {*rewrites_after(options.ops_version)} - ({MODULE_NAMES} if options.name_modules else set())
        skipped = [*left_out, *cls.runtime.skipped_rewrites, *later]
        return load_model(source, options.optimise_float, skipped)

    @property
    def fingerprint(self) -> str:
        return self._model.fingerprint

    @property
    def versions(self) -> dict[str, str]:
        return {"onnx": onnx.__version__, **self.runtime.versions, "numpy": np.__version__}

    @property
    def rewrites(self) -> Applied:
        return self._model.rewritten.applied

    @property
    def conversions(self) -> tuple[str, ...]:
        return self._model.conversions

    def ops(self) -> tuple[Op, ...]:
        return tuple(self._with_repairs(unit) for unit in self._units)

    def _with_repairs(self, unit: Unit) -> Op:
        repairs = self._repairs[unit.op.name]
        return replace(unit.op, repairs=repairs, reads=unit.activations[0]) if repairs else unit.op

    def unquantizable(self, timed: bool = False) -> list[Unquantizable]:
        graph = self._builder.graph
        counts = unquantizable(graph, self._units)
        if not timed or not counts:
            return counts
        nodes = unquantizable_nodes(graph, self._units)
        model, feed = self.assemble(None), self.timing_feed
        return with_shares(counts, *self.runtime.seconds_by_kind(self._builder, model, feed, nodes))

    def calibrator(self) -> Calibrator:
        try:
            return Calibrator(self._builder, self._inputs, self._options.threads)
        except BuildError:
            options = self._options
            self.compare()  # leaves out the rewrite behind which ONNX Runtime's optimizer fails
            if self._options == options:
                raise
            return Calibrator(self._builder, self._inputs, self._options.threads)

    @property
    def ops_with_mask_values(self) -> tuple[str, ...]:
        return tuple(unit.op.name for unit in self._units if self._has_mask_values(unit))

    def _has_mask_values(self, unit: Unit) -> bool:
        tensors = {*unit.activations, *([unit.output] if unit.quantized_output else [])}
        return any(self._builder.root(name) in self._masked_tensors for name in tensors)

    def restore(self, calibration: PlainDict) -> None:
        self._masked_tensors = tensors_with_mask_values(calibration)
        statistics = from_records(calibration.get("statistics", ()))
        self._builder.calibrate(stored_ranges(calibration), statistics)
        self._set_samples(from_records_of_samples(calibration.get(KEY, ())))
        if not statistics:  # an earlier version calibrated, or no statistics were wanted
            self._repairs = dict.fromkeys(self._repairs, ())

    def _more_to_record(self) -> PlainDict:
        """Return the samples by which weights are rounded: a trial is rebuilt from the history alone."""
        is_wanted = self._rounded_units and (self._is_decoder or self._options.small_files)
        return {KEY: to_records_of_samples(self._probe_samples)} if is_wanted else {}

    @property
    def _rounded_units(self) -> list[Unit]:
        offered = ((unit, (*unit.op.choices, *unit.op.smaller)) for unit in self._units)
        return [unit for unit, choices in offered if any(map(is_rounded, choices))]

    def _set_samples(self, feeds: Sequence[Feed]) -> None:
        """Round weights by these samples from here on; without any, no op offers rounding."""
        sources = [source for unit in self._rounded_units if (source := multiplied_with(self._builder, unit))]
        self._moments = SecondMoments(self._builder, sources, feeds, self._options.threads) if feeds else None
        self._builder.moments, self._study = self._moments, None
        if self._moments is None:
            self._units = [replace(unit, op=without_rounding(unit.op)) for unit in self._units]

    def _weight_study(self) -> WeightStudy:
        if self._study is None:
            assert self._moments is not None
            threads = self._options.threads
            self._study = WeightStudy(self._builder, self._units, self._moments, self._probe_samples, threads)
        return self._study

    def weight_groups(self) -> Sequence[Sequence[str]]:
        return self._weight_study().groups if self._is_decoder and self._moments is not None else ()

    def group_divergence(self, ops: Sequence[str]) -> float:
        return self._weight_study().divergence(ops)

    def weight_table(self, divergences: Sequence[float]) -> WeightTable:
        return self._weight_study().table(divergences)

    def divergence(self, config: QuantConfig) -> float:
        model = self.assemble(config)
        try:
            return self._weight_study().divergence_of(model.session)
        finally:
            model.close()

    def assemble(self, config: QuantConfig | None) -> OnnxModel:
        serialized = self._builder.assemble(config)
        if self._options.quant_format == "qoperator" and config is not None:
            return QOperatorModel(serialized, self._inputs, self._options.threads, self.runtime)
        model = OnnxModel(serialized, self._inputs, self._options.threads, self.runtime)
        model.folder = self._folder
        return model

    def portability_of(self, config: QuantConfig | None) -> Portability:
        if config is None or not self._options.portable:
            return Portability(this_processor(), "")
        return Portability(this_processor(), "bounded", self._builder.coarsened(config))

    def _offered_repairs(self, unit: Unit) -> tuple[str, ...]:
        """Return the repairs that an op offers."""
        op = self._builder.rescaler.repairable_op(unit)
        return () if op is None else offered_repairs(op)

    def build_unmodified(self) -> UnmodifiedModel:
        model = UnmodifiedModel(self._source, self._inputs, self._options.threads, self.runtime)
        model.session  # noqa: B018 - a model that does not load must fail here
        return model

    @classmethod
    def load_unmodified(cls, model: ModelLike, threads: int = 0) -> UnmodifiedModel:
        source = model_file(model)
        check_readable(source)
        return UnmodifiedModel.opened(source, threads, cls.runtime)

    def record_outputs(self, config: QuantConfig | None, ops: Sequence[str]) -> OutputRecorder:
        return record_outputs(self._builder, config, ops, self._options.threads)

    def local_errors(self, config: QuantConfig) -> dict[str, tuple[float, float]]:
        # An op's own error hardly depends on which samples it sees, so half of them are enough.
        half = self._probe_samples[: -(-len(self._probe_samples) // 2)]
        return local_errors(self._builder, config, half, self._options.threads)

    def partial_runs(self, feeds: Sequence[Feed]) -> PartialRuns | None:
        # Another runtime computes otherwise, so its own sessions run whole models.
        return PartialRuns(self._builder, feeds, self._options.threads) if self.runtime is ONNX_RUNTIME else None

    def workload(self, feed: Feed) -> tuple[float, int]:
        return multiply_adds(self._builder, feed, self._options.threads), len(self._model.graph.nodes)

    @classmethod
    def board_script(cls) -> str:
        return (Path(__file__).parent / "profile" / "board_script.py").read_text(encoding="utf-8")

    @classmethod
    def emulation_script(cls) -> Path:
        return Path(__file__).parent / "run" / "emulated.py"

    def op_seconds_from_kernels(self, kernels: Mapping[str, float], graph: bytes) -> dict[str, float]:
        return attribute_seconds(self._builder, kernels, graph)

    def op_seconds(self, config: QuantConfig | None, threads: int | None = None) -> dict[str, float]:
        session_threads = self._options.threads if threads is None else threads
        return self.runtime.op_seconds(self._builder, self.assemble(config), self.timing_feed, session_threads)

    def executed_precisions(self, config: QuantConfig | None) -> dict[str, Precision]:
        """Return the precision in which each op of a configuration really runs, where a kernel of its own shows it."""
        return self.runtime.precisions(self._builder, self.assemble(config))

    def int8_edges(self) -> dict[str, tuple[str, ...]]:
        return int8_edges(self._builder)

    def inspect_quantized(self, quantized: QuantConfig | ModelLike) -> ModelView:
        if isinstance(quantized, QuantConfig):
            return ConfigView(self, quantized, self._builder, self._options.threads)
        return FileView(self, quantized, self._builder, self._options.threads)

    @classmethod
    def inspect_standalone(cls, quantized: ModelLike, threads: int = 0) -> StandaloneFile:
        with as_model_error("the quantized model"):
            return StandaloneFile(quantized, threads)

    @classmethod
    def profile(
        cls, model: ModelLike, data: CalibrationData, options: TimingOptions, float_adapter: Adapter | None = None
    ) -> Timing:
        float_builder = float_adapter._builder if isinstance(float_adapter, OnnxAdapter) else None
        return cls.runtime.time_model(model, data, options, float_builder)

    def load_saved(self, path: Path) -> SavedModel:
        model = SavedModel(path, self._inputs, self._options.threads, self.runtime)
        model.folder = self._folder
        return model

    @classmethod
    def read_provenance(cls, path: Path) -> tuple[dict[str, str], str]:
        return read_provenance(path)

    def close(self) -> None:
        self._store.close()


def _input_spec(value: onnx.ValueInfoProto) -> InputSpec:
    kind = value.type.tensor_type
    if not kind.elem_type:
        raise ModelError(f"input {value.name!r} is not a tensor; sequences, maps and optionals cannot be calibrated")
    shape: tuple[int | None, ...] | None = None
    names: tuple[str, ...] = ()
    if kind.HasField("shape"):
        names = tuple(str(dim.dim_param) for dim in kind.shape.dim)
        shape = tuple(
            dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else None for dim in kind.shape.dim
        )
    return InputSpec(value.name, np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)), shape, names)


def _unused_separator(graph: Graph) -> str:
    """Return a separator that no name of the model contains, so that names made with it are unused."""
    inputs = (value.name for value in graph.inputs)
    names = list(itertools.chain(graph.constants, graph.producers, graph.body_names, inputs))
    mark = "|"
    while any(mark in name for name in names):
        mark += "|"
    return mark


def _describe_contents(graph: Graph) -> str:
    kinds = sorted({node.op_type for node in graph.nodes})
    return f"it holds {some(kinds)}{of_other_floats(graph)}"
