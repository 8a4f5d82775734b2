"""Export a module to ONNX, and compare the result with the module on the user's calibration data.

`torch.export` is tried first, then the older exporter, which traces. An export whose outputs differ from the module's
is refused, and so is a trace that follows only one branch of a decision.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from quaver.adapters.comparison import OTHER_KERNELS, Difference, compare
from quaver.adapters.onnxrt.load.module_names import show_modules
from quaver.adapters.onnxrt.run import session as sessions
from quaver.adapters.torch.structure import flatten
from quaver.errors import ModelError, QuaverError
from quaver.types import Feed, PlainDict

log = logging.getLogger(__name__)

# The opset of exports: the newest that the float graph's rewrites and ONNX Runtime 1.21 know in full.
OPSET = 18
# A message is limited to 2 GB; larger weights go to a second file.
_MAX_INLINE_BYTES = 1_800_000_000
# What the metadata of an exported file calls the record of its export.
RECORD = "quaver.module"
# Prefix of the module's names in the wrapper that is exported.
_WRAPPED = "module"
_MAX_REASON = 300
_DIFFERS = "the export computes something else than the module"

Tensors = dict[str, Any]


@dataclass(frozen=True)
class ModuleExport:
    """How a module was exported.

    Attributes:
        exporter: "torch.export" or "tracing".
        outputs: the structure of its outputs.
        dynamic: the dynamic axes, by input.
        difference: the largest difference between the outputs of the export and of the module.
        fallback: why `torch.export` was not used; empty if it was.
    """

    exporter: str
    outputs: PlainDict
    dynamic: dict[str, list[int]]
    difference: float
    fallback: str = ""

    def line(self, version: str) -> str:
        """Return how the model was converted, for progress and results."""
        axes = [f"{name}[{axis}]" for name, dims in self.dynamic.items() for axis in dims]
        text = f"PyTorch {version} to ONNX by {self.exporter}, dynamic axes {', '.join(axes) or 'none'}"
        text = f"{text}, largest difference {self.difference:.1e}"
        return f"{text} (torch.export failed: {self.fallback})" if self.fallback else text


@dataclass(frozen=True)
class _Attempt:
    """The input of every exporter."""

    wrapper: Any
    example: Tensors
    outputs: list[str]
    dynamic: dict[str, list[int]]


def export(
    module: Any, batches: Sequence[Tensors], path: Path, settings: Mapping[str, Any], takes_texts: bool = False
) -> ModuleExport:
    """Export a module to a file.

    Args:
        module: the module; its own mode and weights stay as they are.
        batches: inputs by name. They decide which axes are dynamic, and the export is compared on them.
        path: the file.
        settings: further arguments of every call, such as `return_dict=True`.
        takes_texts: True if inputs with two axes are tokens of texts, which have any length.

    Raises:
        ModelError: no exporter gives a model that computes the same; the message says why.
    """
    import torch

    with _evaluation_mode(module), torch.no_grad():
        wrapper = _wrapper(module, list(batches[0]), settings)
        results = [_call(wrapper.whole, batch, module) for batch in batches]
        _, names, structure = flatten(results[0], torch.is_tensor)
        if not names:
            raise ModelError(f"{type(module).__name__} returns no tensor, so there is nothing to compare or score")
        dynamic = dynamic_axes(batches, takes_texts)
        attempt = _Attempt(wrapper, _example(batches), names, dynamic)
        failures: dict[str, str] = {}
        for exporter, run in _EXPORTERS.items():
            try:
                with quiet():
                    proto = run(attempt)
            except Exception as error:
                failures[exporter] = _reason(error)
                log.debug("%s failed", exporter, exc_info=True)
                continue
            _finish(proto, attempt)
            _write(proto, path)
            difference = _difference(wrapper, batches, path, names)
            if difference.error > OTHER_KERNELS:
                failures[exporter] = f"{_DIFFERS}: {difference.reason}"
                continue
            fallback = next(iter(failures.values()), "")
            return ModuleExport(exporter, structure, dynamic, float(difference.error), fallback)
    path.unlink(missing_ok=True)
    raise ModelError(_failure(module, failures))


def dynamic_axes(batches: Sequence[Tensors], takes_texts: bool = False) -> dict[str, list[int]]:
    """Return the dynamic axes by input: the batch, the length of texts, and axes that differ between batches."""
    dynamic: dict[str, list[int]] = {}
    for name, first in batches[0].items():
        sizes = [tuple(batch[name].shape) for batch in batches if name in batch]
        if any(len(shape) != first.dim() for shape in sizes):
            raise ModelError(f"the input {name!r} has another number of axes in another batch: {sizes[0]}, {sizes[-1]}")
        axes = [axis for axis in range(first.dim()) if len({shape[axis] for shape in sizes}) > 1]
        if _has_batch_axis(first, batches[0]) and 0 not in axes:
            axes.insert(0, 0)
        if takes_texts and first.dim() == 2 and 1 not in axes:
            axes.append(1)
        dynamic[name] = axes
    return dynamic


def _has_batch_axis(tensor: Any, batch: Tensors) -> bool:
    return bool(tensor.dim()) and tensor.shape[0] == next(iter(batch.values())).shape[0]


def _example(batches: Sequence[Tensors]) -> Tensors:
    """Return the batch that is exported: the largest, with two samples at least, because 1 is taken as fixed."""
    batch = max(batches, key=lambda tensors: sum(tensor.numel() for tensor in tensors.values()))
    count = next((tensor.shape[0] for tensor in batch.values() if tensor.dim()), 0)
    if count != 1:
        return dict(batch)
    return {
        name: tensor.repeat(2, *[1] * (tensor.dim() - 1)) if _has_batch_axis(tensor, batch) else tensor
        for name, tensor in batch.items()
    }


@contextlib.contextmanager
def _evaluation_mode(module: Any) -> Iterator[None]:
    """Put a module into evaluation mode within the block, and all its parts back into theirs after it."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep what exporters print, log and warn of from the terminal; their exceptions say what matters."""
    level = logging.root.manager.disable
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(level)


def _wrapper(module: Any, names: Sequence[str], settings: Mapping[str, Any]) -> Any:
    """Return a module that takes tensors by position and returns a tuple of tensors."""
    import torch

    positional = all(name.startswith("input") and name[5:].isdigit() for name in names)

    class Wrapper(torch.nn.Module):  # type: ignore[misc, unused-ignore]
        """The module, with plain inputs and outputs."""

        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def whole(self, *tensors: Any) -> Any:
            """Return the outputs as the module gives them."""
            if positional:
                return self.module(*tensors, **settings)
            return self.module(**dict(zip(names, tensors, strict=True)), **settings)

        def forward(self, *tensors: Any) -> tuple[Any, ...]:
            return tuple(flatten(self.whole(*tensors), torch.is_tensor)[0])

    return Wrapper().eval()


def _call(function: Callable[..., Any], batch: Tensors, module: Any) -> Any:
    try:
        return function(*batch.values())
    except QuaverError:
        raise
    except Exception as error:
        shapes = ", ".join(f"{name} {list(tensor.shape)} {tensor.dtype}" for name, tensor in batch.items())
        raise ModelError(
            f"{type(module).__name__} itself fails on a calibration batch ({shapes}): {type(error).__name__}: "
            f"{_first_line(str(error))}. Pass batches as the module takes them"
        ) from error


def _by_torch_export(attempt: _Attempt) -> onnx.ModelProto:
    import torch

    dynamic = torch.export.Dim.DYNAMIC
    shapes = tuple(dict.fromkeys(axes, dynamic) for axes in attempt.dynamic.values())
    program = torch.onnx.export(
        attempt.wrapper,
        tuple(attempt.example.values()),
        input_names=list(attempt.example),
        output_names=attempt.outputs,
        dynamic_shapes=(shapes,),
        opset_version=OPSET,
        dynamo=True,
        optimize=False,
        verbose=False,
    )
    proto: onnx.ModelProto = program.model_proto
    return proto


def _by_tracing(attempt: _Attempt) -> onnx.ModelProto:
    import torch

    buffer = io.BytesIO()
    names = {name: {axis: f"{name}_{axis}" for axis in axes} for name, axes in attempt.dynamic.items()}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.onnx.export(
            attempt.wrapper,
            tuple(attempt.example.values()),
            buffer,
            input_names=list(attempt.example),
            output_names=attempt.outputs,
            dynamic_axes=names,
            opset_version=17,
            dynamo=False,
        )
    for entry in caught:
        if issubclass(entry.category, torch.jit.TracerWarning) and "Python boolean" in str(entry.message):
            place = f"{Path(entry.filename).name}, line {entry.lineno}"
            raise ModelError(f"a decision depends on values ({place}), and a trace would always follow one branch")
    return onnx.load_model_from_string(buffer.getvalue())


_EXPORTERS: dict[str, Callable[[_Attempt], onnx.ModelProto]] = {
    "torch.export": _by_torch_export,
    "tracing": _by_tracing,
}


def _finish(proto: onnx.ModelProto, attempt: _Attempt) -> None:
    """Name nodes after their modules and dynamic axes after their inputs; drop places in the user's source."""
    del proto.metadata_props[:]
    proto.graph.name = "module"
    for value in proto.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if axis in attempt.dynamic.get(value.name, ()):
                dim.dim_param = f"{value.name}_{axis}"
    del proto.graph.value_info[:]
    for output in proto.graph.output:
        for axis, dim in enumerate(output.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value"):
                dim.dim_param = f"{output.name}_{axis}"
    show_modules(proto.graph.node, _WRAPPED)
    for node in proto.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    for tensor in proto.graph.initializer:
        tensor.doc_string = ""


def _write(proto: onnx.ModelProto, path: Path) -> None:
    is_large = proto.ByteSize() > _MAX_INLINE_BYTES
    onnx.save_model(proto, path, save_as_external_data=is_large, location=f"{path.name}.data" if is_large else None)


def write_record(path: Path, record: str) -> None:
    """Write the record of an export into its file."""
    model = onnx.load_model(path, load_external_data=False)
    onnx.helper.set_model_props(model, {RECORD: record})
    onnx.save_model(model, path)


def read_record(path: Path) -> str:
    """Return the record of an export; empty if the file has none."""
    model = onnx.load_model(path, load_external_data=False)
    return next((str(entry.value) for entry in model.metadata_props if entry.key == RECORD), "")


def _difference(wrapper: Any, batches: Sequence[Tensors], path: Path, names: Sequence[str]) -> Difference:
    """Return the largest difference between the file and the module, on the batches and on single samples."""
    import torch

    session = sessions.create(str(path), sessions.options(1))
    taken = [value.name for value in session.get_inputs()]
    feeds = [{name: tensor.numpy() for name, tensor in batch.items()} for batch in batches]
    single = {
        name: tensor[:1].numpy() if _has_batch_axis(tensor, batches[0]) else tensor.numpy()
        for name, tensor in batches[0].items()
    }

    def by_module(feed: Feed) -> list[Any]:
        return [output.numpy() for output in wrapper(*map(torch.from_numpy, feed.values()))]

    def by_file(feed: Feed) -> list[Any]:
        return list(session.run(names, {name: np.ascontiguousarray(feed[name]) for name in taken}))

    return compare([single, *feeds], by_module, by_file, names)[0]


def _failure(module: Any, failures: Mapping[str, str]) -> str:
    name = type(module).__name__
    differing = next((reason for reason in failures.values() if reason.startswith(_DIFFERS)), "")
    if differing:
        return (
            f"{name} is not tuned, because {differing} on the calibration data. The usual causes are code that asks "
            "whether it is exported, random numbers and decisions on values. An export of your own is passed as a file"
        )
    causes = "; ".join(f"{exporter}: {reason}" for exporter, reason in failures.items())
    return (
        f"{name} cannot be exported to ONNX. {causes}. Rewrite that part (torch.where or torch.cond "
        "for decisions on values, standard operators for a custom one), or export it yourself and pass the .onnx file"
    )


def _reason(error: BaseException) -> str:
    """Return the line of an error that says most: exporters wrap the cause in pages of advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {_first_line(str(error))}"


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return (lines[0] if lines else "no reason given")[:_MAX_REASON].rstrip(".")
