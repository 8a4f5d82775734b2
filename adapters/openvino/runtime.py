"""OpenVINO as a runtime of ONNX models, and its tables: what runs in int8 there, and what is fused by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from onnx import NodeProto

from quaver.adapters.data import InputSpec
from quaver.adapters.onnxrt.build.builder import Builder
from quaver.adapters.onnxrt.load.graph import Graph, attribute, integer
from quaver.adapters.onnxrt.ops.unit import KernelRules, Unit
from quaver.adapters.onnxrt.profile.benchmark import source_of
from quaver.adapters.onnxrt.run.model import OnnxModel, OrtModel
from quaver.adapters.onnxrt.runtime import Runtime
from quaver.adapters.openvino import profile
from quaver.adapters.openvino.execution_graph import executed_precisions, kernels_of
from quaver.adapters.openvino.float_precision import (
    BF16_KINDS,
    bf16_is_offered,
    join_products,
    name_recurrent_layers,
    save_as_xml,
    tail_nodes,
)
from quaver.adapters.openvino.session import OpenVinoSession, core, input_specs, open_session, package
from quaver.adapters.options import TimingOptions
from quaver.files.temporary import temporary_folder
from quaver.introspection import Timing
from quaver.ops import BFLOAT, FLOAT, Op, OpConfig, Precision
from quaver.types import CalibrationData, Feed, ModelLike

# Op types that have an int8 kernel, or read and write 8 bits at no cost; `benchmarks/openvino_kernels.py` lists what
# OpenVINO makes of each. Unary ops such as Sigmoid compute in float inside the kernel before them. Mul does, too, and
# version 2026.4 computes x * f(x) wrongly from 8 bits.
_STATIC_KINDS = frozenset({
    "Add", "AveragePool", "Concat", "Conv", "ConvTranspose", "Gemm", "GlobalAveragePool", "MatMul", "ReduceMean",
})  # fmt: skip
# Kernels that run in int8 as soon as their inputs are dequantized, whatever follows. Convolutions and products do so
# only with an int8 weight.
_FUSED = MappingProxyType({"AveragePool": 1, "GlobalAveragePool": 1, "ReduceMean": 1})
# Kernels that hand on dequantized values as integers with a scale, so that the kernel behind them runs in int8, too.
_PASSING = frozenset({"Add", "AveragePool", "Concat", "GlobalAveragePool", "ReduceMean"})
# Rewrites that replace ops by chains that are faster in ONNX Runtime only.
_REWRITES_FOR_ORT = (
    "PRelu", "Elu", "Softplus and Mish", "powers", "Softmax of channels", "nearest Resize", "large MaxPool",
)  # fmt: skip


class OpenVino(Runtime):
    """OpenVINO, on the CPU."""

    name = "openvino"
    title = "OpenVINO"
    rules = KernelRules(
        _FUSED,
        frozenset(_FUSED),
        drops_single_max=True,
        guards_products=False,
        writes_float=True,
        passing=_PASSING,
        guards_shared=True,
    )
    skipped_rewrites = _REWRITES_FOR_ORT
    exports = MappingProxyType({".xml": "OpenVINO"})

    @property
    def versions(self) -> dict[str, str]:
        return {"openvino": str(package().__version__).partition("-")[0]}

    def open(self, model: bytes | Path, threads: int, folder: Path | None = None) -> OpenVinoSession:
        return open_session(model, threads, folder)

    def input_specs(self, session: OpenVinoSession) -> tuple[InputSpec, ...]:
        return input_specs(session)

    def units(self, graph: Graph, units: Sequence[Unit]) -> list[Unit]:
        """Return the ops that run in int8 or bf16 here: no int8 form that is made for ONNX Runtime's kernels.

        Ops whose kernels are much faster in bf16 are listed on any processor, so that a run can be resumed on another.
        """
        tail, has_bf16 = tail_nodes(graph), bf16_is_offered()
        offered = (
            (unit, _offered(graph, unit, has_bf16 and unit.anchor not in tail)) for unit in join_products(graph, units)
        )
        return [replace(unit, op=op) for unit, op in offered if op is not None]

    def precisions(self, builder: Builder, model: OnnxModel) -> dict[str, Precision]:
        source, folder = model.source()
        return executed_precisions(builder, kernels_of(self.open(source, 1, folder).compiled))

    def op_seconds(self, builder: Builder, model: OnnxModel, feed: Feed, threads: int) -> dict[str, float]:
        return profile.op_seconds(builder, self._profiled(model, threads), feed)

    def seconds_by_kind(
        self, builder: Builder, model: OnnxModel, feed: Feed, kinds: Mapping[int, str]
    ) -> tuple[dict[str, float], float]:
        return profile.seconds_by_kind(builder, self._profiled(model, 1), feed, kinds)

    def time_model(
        self, model: ModelLike, data: CalibrationData, options: TimingOptions, float_builder: Builder | None = None
    ) -> Timing:
        source = source_of(model)
        opened = Path(source) if isinstance(source, str) else source
        plain, profiled = (open_session(opened, options.threads, profiling=profiling) for profiling in (False, True))
        return profile.time_sessions(plain, profiled, data, options, float_builder)

    def export(self, model: OrtModel, path: Path) -> None:
        """Write a model as OpenVINO's .xml, with its weights in the .bin beside it."""
        with temporary_folder() as folder:
            source = model.save(folder / "model.onnx")
            graph = core().read_model(source)
            name_recurrent_layers(graph)
            save_as_xml(package(), graph, path)

    def _profiled(self, model: OnnxModel, threads: int) -> OpenVinoSession:
        source, folder = model.source()
        return open_session(source, threads, folder, profiling=True)


def _offered(graph: Graph, unit: Unit, has_bf16: bool) -> Op | None:
    """Return an op with the choices that OpenVINO runs as they say; None if its precision is not chosen for itself."""
    if unit.is_passthrough or unit.operand is not None or unit.hard_sigmoid is not None:
        return None
    has_int8_kernel = unit.op.kind in _STATIC_KINDS and (unit.op.kind != "MatMul" or unit.weight is not None)
    has_int8_kernel = has_int8_kernel and not _pools_padding(graph.nodes[unit.anchor])
    choices = tuple(
        choice
        for choice in unit.op.choices
        if not choice.quantized
        or (choice.mode == "static" and has_int8_kernel and not _is_slow(unit, choice))
        or (choice.mode == "weight_only" and not choice.block_size)
    )
    if not any(choice.quantized for choice in choices) and unit.op.kind not in BF16_KINDS:
        return None
    if has_bf16 and not unit.is_embedding:
        after_fp32 = choices.index(FLOAT) + 1
        choices = (*choices[:after_fp32], BFLOAT, *choices[after_fp32:])
    return replace(unit.op, choices=choices, smaller=())


def _pools_padding(node: NodeProto) -> bool:
    """Return True for an AveragePool with padding: in int8, version 2026.4 pads with 0, not with the zero point."""
    if node.op_type != "AveragePool":
        return False
    pads, automatic = attribute(node, "pads"), attribute(node, "auto_pad")
    is_automatic = automatic is not None and automatic.s not in (b"NOTSET", b"VALID")
    return is_automatic or (pads is not None and any(pads.ints)) or integer(node, "ceil_mode", 0) != 0


def _is_slow(unit: Unit, choice: OpConfig) -> bool:
    """Return True for a choice that a float kernel runs: a transposed convolution with a single scale."""
    return unit.op.kind == "ConvTranspose" and choice.granularity == "per_tensor"


OPENVINO = OpenVino()
