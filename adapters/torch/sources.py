"""The forms of a PyTorch model, recognized without importing torch, and advice for those that cannot be tuned."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from quaver.errors import MissingPackageError
from quaver.extras import install_command
from quaver.types import ModelLike, PlainDict

# Endings of files that torch.save and torch.export.save write.
CHECKPOINTS = (".pt", ".pth", ".pt2", ".bin", ".ckpt", ".safetensors")
# The file of the exported model, and the folder of its tokenizer, in the workspace of a run.
EXPORTED, TOKENIZER = "float_model.onnx", "tokenizer"


@dataclass(frozen=True)
class ExportedModule(os.PathLike[str]):
    """The ONNX file that a module was exported to. Its models are called like the module.

    Attributes:
        path: the file.
        framework: the adapter that loads it.
    """

    path: Path
    framework: ClassVar[str] = "torch"

    def __fspath__(self) -> str:
        return os.fspath(self.path)


def _is_of(model: ModelLike, package: str, name: str) -> bool:
    return any(kind.__module__.partition(".")[0] == package and kind.__name__ == name for kind in type(model).__mro__)


def is_module(model: ModelLike) -> bool:
    """Return True for a `torch.nn.Module`, recognized by its class or by methods that every module has."""
    methods = ("state_dict", "forward")
    return _is_of(model, "torch", "Module") or all(callable(getattr(model, name, None)) for name in methods)


def is_pretrained(model: ModelLike) -> bool:
    """Return True for a `transformers.PreTrainedModel`."""
    return _is_of(model, "transformers", "PreTrainedModel")


def is_pipeline(model: ModelLike) -> bool:
    """Return True for a `transformers.Pipeline`."""
    return _is_of(model, "transformers", "Pipeline")


def is_hugging_face_folder(model: ModelLike) -> bool:
    """Return True for a folder that `save_pretrained` wrote: a config.json that names a type of model."""
    if not isinstance(model, str | os.PathLike):
        return False
    path = Path(os.fspath(model)) / "config.json"
    try:
        config: PlainDict = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and "model_type" in config


def is_importable(model: ModelLike) -> bool:
    """Return True for what `fit` exports by itself: a module, a pipeline, or a folder of Hugging Face."""
    return is_module(model) or is_pipeline(model) or is_hugging_face_folder(model)


def advice(model: ModelLike) -> str:
    """Return what to do with a PyTorch model in a form that cannot be tuned; empty for everything else."""
    if is_module(model) or is_pipeline(model):
        return (
            f"a {type(model).__name__} is a PyTorch model, which `quaver.fit` and `quaver.open_run` export. Elsewhere "
            f"pass the file that they exported, {EXPORTED} in the workspace, or one of torch.onnx.export"
        )
    if is_hugging_face_folder(model):
        return (
            f"{os.fspath(model)!r} is a folder of Hugging Face, which `quaver.fit` and `quaver.open_run` export. "
            f"Elsewhere pass the file that they exported, {EXPORTED} in the workspace"
        )
    if _is_of(model, "torch", "ExportedProgram"):
        return "an ExportedProgram is not called like a module: pass `program.module()`"
    if isinstance(model, dict) and model and all(_is_of(value, "torch", "Tensor") for value in model.values()):
        return (
            "a state dict holds weights without the code that uses them: create the module, call "
            "`module.load_state_dict(weights)`, and pass the module"
        )
    if isinstance(model, str | os.PathLike) and os.fspath(model).lower().endswith(CHECKPOINTS):
        return _checkpoint_advice(os.fspath(model))
    return ""


def _checkpoint_advice(path: str) -> str:
    if path.lower().endswith(".pt2"):
        return f"{path!r} is an exported program: pass `torch.export.load({path!r}).module()`"
    load = f"load_file({path!r})" if path.lower().endswith(".safetensors") else f"torch.load({path!r})"
    return (
        f"{path!r} is a file of PyTorch. It mostly holds weights without the code that uses them: create the module, "
        f"call `module.load_state_dict({load})`, and pass the module. If it holds a TorchScript model, pass "
        f"`torch.jit.load({path!r})`; a model of Hugging Face is passed as its folder"
    )


def need(packages: tuple[str, ...], what: str) -> None:
    """Check that packages are installed.

    Raises:
        MissingPackageError: one is missing; the message says how to install it.
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        is_extra = not {"torch", "onnxscript"}.isdisjoint(missing)
        install = install_command("torch") if is_extra else f"pip install {' '.join(missing)}"
        raise MissingPackageError(f"{what} needs {' and '.join(missing)}, which is not installed: {install}")
