"""A quantized file seen from inside, beside the float model it was made from."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from quaver.adapters.base import Adapter, TimingOptions
from quaver.adapters.batches import Feed
from quaver.adapters.onnxrt import session as sessions
from quaver.adapters.onnxrt.assembler import Assembler
from quaver.adapters.onnxrt.axes import channel_axis, movers, weight_axes, why_one_scale
from quaver.adapters.onnxrt.foreign import QuantizedFile, Scaled
from quaver.adapters.onnxrt.observation import watch_branches
from quaver.adapters.onnxrt.replay import replayed
from quaver.adapters.onnxrt.timing import time_model
from quaver.adapters.view import View
from quaver.errors import ModelError
from quaver.inside import LocalRun, OpInside, OpWeight, Tensor8, WholeRun
from quaver.ops import FLOAT, FP32, INT8, QuantConfig


class FileView(View):
    """A quantized file, whoever made it."""

    def __init__(self, adapter: Adapter, source: Any, assembler: Assembler, threads: int) -> None:
        super().__init__(adapter, QuantConfig((unit.op.name, FLOAT) for unit in assembler.units))
        self._assembler, self._threads = assembler, threads
        self._file = QuantizedFile(source)
        self._check_inputs()

    def _check_inputs(self) -> None:
        ours, theirs = [spec.name for spec in self._adapter.inputs], list(self._file.inputs())
        if sorted(ours) != sorted(theirs):
            raise ModelError(
                f"the quantized model takes {', '.join(theirs)} and the float model {', '.join(ours)}: "
                "it was made from another model"
            )

    @functools.cached_property
    def precisions(self) -> Mapping[str, str]:
        return {
            unit.op.name: str(INT8 if self._file.is_int8(unit, self._file.node(unit)) else FP32)
            for unit in self._assembler.units
        }

    @functools.cached_property
    def _visible(self) -> dict[str, str]:
        """Of each op that can be found in the file, the float tensor in which its readers see its output."""
        graph, found = self._assembler.graph, {}
        for unit in self._assembler.units:
            tensors = [graph.nodes[index].output[0] for index in reversed(unit.nodes)]
            name = self._file.visible(unit, tensors)
            if name is not None:
                found[unit.op.name] = name
        if not found:
            raise ModelError("no op of the float model is found in the quantized one: it was made from another model")
        return found

    def local(self, ops: Sequence[str], tensors: Sequence[str]) -> Callable[[Feed], LocalRun]:
        trunk, results = replayed(self._assembler, self._file, self._visible)
        return watch_branches(self._assembler, trunk, results, ops, tensors, self._threads)

    def whole(self, ops: Sequence[str]) -> Callable[[Feed], WholeRun]:
        names = {name: self._visible[name] for name in ops if name in self._visible}
        given = self._file.outputs()
        wanted = list(dict.fromkeys([*given, *names.values()]))
        session = sessions.create(self._file.giving(wanted), sessions.options(self._threads))

        def run(feed: Feed) -> WholeRun:
            values = dict(zip(wanted, session.run(wanted, feed), strict=True))
            return WholeRun({name: values[tensor] for name, tensor in names.items()}, [values[name] for name in given])

        return run

    def weights(self) -> Iterator[OpWeight]:
        a = self._assembler
        for unit in a.units:
            if unit.weight is None:
                continue
            values = np.asarray(a.store.array(unit.weight), np.float32)
            (outer, inner), found = weight_axes(a.graph, unit), self._file.weight(self._file.node(unit))
            if found is None or found.values.shape != values.shape:
                yield OpWeight(unit.op.name, values, values, outer, inner)
            else:
                yield OpWeight(unit.op.name, values, found.values, outer, inner, found.scales, found.zero_points)

    def inside(self) -> Mapping[str, OpInside]:
        a, found = self._assembler, {}
        origins = {unit.output: unit.op.name for unit in a.units}

        def tensor(name: str, scaled: Scaled, axis: int | None) -> Tensor8:
            root = a.root(name)
            moved = tuple(movers(a.graph, name, root))
            step, offset = float(scaled.scale), int(scaled.zero_point)
            return Tensor8(name, step, offset, *scaled.ends, origin=origins.get(root, ""), moved=moved, axis=axis)

        for unit in a.units:
            name, axis = unit.op.name, channel_axis(a.graph, unit, unit.output)
            written = self._file.scaled(self._visible.get(name, ""))
            writes = None if written is None else tensor(unit.output, written, axis)
            node = self._file.node(unit)
            reads = []
            if node is not None and self.precisions[name] == INT8:
                inputs = list(a.graph.nodes[unit.anchor].input)
                for read in unit.activations:
                    scaled = self._file.read(node, inputs.index(read))
                    if scaled is not None:
                        reads.append(tensor(read, scaled, channel_axis(a.graph, unit, read)))
            found[name] = OpInside(name, unit.output, axis, tuple(reads), writes, why_one_scale(a.graph, unit))
        return found

    def seconds(self) -> Mapping[str, float]:
        found: dict[str, float] = {}
        options = TimingOptions(1, self._threads, warmup=1, runs=10)
        timing = time_model(self._file.model, list(self._adapter.kept), options, self._assembler)
        for kernel in timing.kernels:
            found[kernel.op] = found.get(kernel.op, 0.0) + kernel.seconds
        return found
