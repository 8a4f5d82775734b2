"""Import a module into a run: export it into the workspace once, and use that file from then on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from quaver.adapters.torch.batches import Forward, as_tensors, first_batches
from quaver.adapters.torch.calls import ModuleRecord
from quaver.adapters.torch.export import export, quiet, read_record, write_record
from quaver.adapters.torch.hugging_face import ModuleSource, module_source
from quaver.adapters.torch.sources import EXPORTED, TOKENIZER, ExportedModule, need
from quaver.errors import CalibrationError, ModelError
from quaver.types import CalibrationData, ModelLike

# Calibration batches that are looked at: they decide which axes are dynamic, and the export is compared on them.
# Judgement: enough for padded texts to differ in length.
MAX_BATCHES = 8


def import_module(
    model: ModelLike, data: CalibrationData, folder: Path, on_export: Callable[[], None] = lambda: None
) -> tuple[ExportedModule, CalibrationData]:
    """Export a module into a folder, unless it was exported there before.

    Args:
        model: a module, a pipeline, or a folder of Hugging Face.
        data: calibration data.
        folder: the workspace of the run.
        on_export: called before the module is exported.

    Returns:
        The exported module, and the calibration data by the names of its inputs.

    Raises:
        ModelError: the module cannot be exported, or differs from the one that was exported there.
    """
    need(("torch",), "a PyTorch model")
    source = module_source(model)
    _check_dtype(source.module)
    forward = Forward.of(source.module, source.tokenize)
    path, digest = folder / EXPORTED, module_digest(source.module)
    if path.exists():
        record = ModuleRecord.from_json(read_record(path))
        if record.digest != digest:
            raise ModelError(
                f"the {type(source.module).__name__} has other weights than the module that {path} was exported from: "
                "load the weights of that run, or start a new one"
            )
        return ExportedModule(path), data if data is None else first_batches(data, forward, 0)[1]
    if data is None:
        raise CalibrationError(
            "a PyTorch model is exported with its calibration data: pass calib_dataloader, a few hundred typical "
            "inputs without labels"
        )
    need(("onnxscript",), "the export of a PyTorch model")
    on_export()
    first, data = first_batches(data, forward, MAX_BATCHES)
    if not first:
        raise CalibrationError("the calibration data gave no batch to export the module with; pass a list or a loader")
    _export(source, forward, first, path, digest)
    return ExportedModule(path), data


def exported_beside(history: Path, model: ModelLike) -> ExportedModule:
    """Return the export of a module that lies beside the history of its run.

    Raises:
        ModelError: there is none, or the module has other weights.
    """
    folder = history if history.is_dir() else history.parent
    if not (folder / EXPORTED).exists():
        raise ModelError(f"{folder} holds no export of a module: pass the file that the run started from")
    return import_module(model, None, folder)[0]


def _export(source: ModuleSource, forward: Forward, first: list[dict[str, Any]], path: Path, digest: str) -> None:
    import torch

    module = source.module
    dtype = next((tensor.dtype for tensor in module.parameters() if tensor.is_floating_point()), torch.float32)
    batches = [as_tensors(batch, dtype) for batch in first]
    names = batches[0].keys()
    batches = [{name: batch[name] for name in names} for batch in batches if batch.keys() >= names]
    done = export(module, batches, path, source.settings, takes_texts=bool(source.config))
    record = ModuleRecord(
        module=type(module).__name__,
        digest=digest,
        names=list(forward.names),
        inputs=list(names),
        outputs=done.outputs,
        export=done.line(torch.__version__.partition("+")[0]),
        config=source.config,
        task=source.task,
    )
    if source.tokenizer is not None:
        with quiet():
            source.tokenizer.save_pretrained(path.parent / TOKENIZER)
    write_record(path, record.to_json())


def module_digest(module: Any) -> str:
    """Return a hash of a module's class, and of the names, types and values of its weights."""
    digest = hashlib.sha256(type(module).__qualname__.encode())
    for name, tensor in _tensors(module):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(_bytes_of(tensor)).numpy().tobytes())
    return digest.hexdigest()


def _tensors(module: Any) -> Iterator[tuple[str, Any]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


def _bytes_of(tensor: Any) -> Any:
    import torch

    return torch.uint8 if tensor.numel() else tensor.dtype


def _check_dtype(module: Any) -> None:
    other = next((tensor for tensor in module.parameters() if str(tensor.dtype) in _HALVES), None)
    if other is not None:
        raise ModelError(
            f"the {type(module).__name__} has weights in {str(other.dtype).removeprefix('torch.')}, and quaver starts "
            "from fp32: pass `module.float()`"
        )


_HALVES = ("torch.float16", "torch.bfloat16")
