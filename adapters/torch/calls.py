"""Call a model like the module that it was exported from: tensors in, tensors out, in the module's own structure."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quaver.adapters.data import match_inputs
from quaver.adapters.torch.batches import LABELS, Forward
from quaver.adapters.torch.sources import TOKENIZER
from quaver.adapters.torch.structure import rebuild
from quaver.errors import CalibrationError, ModelError
from quaver.types import PlainDict

if TYPE_CHECKING:
    from quaver.adapters.model import Model

# What a module has and a model in a runtime has not.
_ABSENT = ("parameters", "named_parameters", "state_dict", "buffers", "children", "named_modules", "modules")


@dataclass(frozen=True)
class ModuleRecord:
    """The record of a module in the metadata of its exported file.

    Attributes:
        module: the name of its class.
        digest: a hash of its class and its weights.
        names: the parameters of its `forward`.
        inputs: those that were exported.
        outputs: the structure of the outputs.
        export: how it was exported, as a line.
        config: the configuration of a model of Hugging Face; empty for other modules.
        task: its task for `transformers.pipeline`; empty if there is none.
    """

    module: str
    digest: str
    names: list[str]
    inputs: list[str]
    outputs: PlainDict
    export: str
    config: PlainDict = field(default_factory=dict)
    task: str = ""

    def to_json(self) -> str:
        """Return the record as text."""
        return json.dumps(asdict(self))  # the order of named outputs is theirs

    @classmethod
    def from_json(cls, text: str) -> ModuleRecord:
        """Return the record that `to_json` wrote.

        Raises:
            ModelError: the text is no such record.
        """
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise ModelError(
                f"the exported file does not say how its module is called ({error}); pass it without "
                'framework="torch" to use arrays'
            ) from error


class ModuleCalls:
    """Makes a model callable like its module. Arrays work, too, and then the outputs are arrays.

    - `model(x)`, `model(x, mask)` and `model(**batch)` run it; labels in a batch are ignored.
    - `eval()`, `train()` and `to("cpu")` return the model; `device`, `dtype` and `training` tell what is true.
    - A model of Hugging Face has its `config`, and takes texts like a pipeline if its tokenizer is there.
    """

    def __init__(self, record: ModuleRecord, folder: Path) -> None:
        self._record, self._folder = record, folder
        self._forward = Forward(record.module, tuple(record.names), 0, not record.names)

    def call(self, model: Model, args: Sequence[Any], inputs: Mapping[str, Any]) -> Any:
        """Run the model and return its outputs in the structure of the module's."""
        if len(args) == 1 and _is_text(args[0]):
            return self._pipeline(model)(args[0], **inputs)
        feed = self._inputs(args, inputs)
        outputs = model.run(match_inputs(feed, model.inputs, "the model call", labels=False))
        arrays = outputs if isinstance(outputs, list) else [outputs]
        if not any(hasattr(value, "detach") for value in feed.values()):
            return rebuild(self._record.outputs, arrays)
        import torch

        return rebuild(self._record.outputs, [torch.from_numpy(np.asarray(array)) for array in arrays])

    def _inputs(self, args: Sequence[Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs by name; refuse those that were not exported, unless they are labels."""
        names = self._record.names or self._record.inputs
        if len(args) > len(names):
            raise CalibrationError(
                f"the model call has {len(args)} inputs, but {self._record.module} takes {', '.join(names)}"
            )
        is_whole = len(args) == 1 and isinstance(args[0], Mapping)
        feed = {**(args[0] if is_whole else dict(zip(names, args, strict=False))), **inputs}
        feed = {name: value for name, value in feed.items() if value is not None}
        exported = set(self._record.inputs)
        ignored = [name for name in feed if name not in exported and _is_input(feed[name]) and name not in LABELS]
        if ignored:
            raise CalibrationError(
                f"the model call passes {ignored[0]!r}, which the calibration batches did not have, so it was not "
                f"exported: the inputs are {', '.join(self._record.inputs)}. Pass it in every calibration batch, too"
            )
        return {name: value for name, value in feed.items() if name in exported}

    def attribute(self, model: Model, name: str) -> Any:
        """Return an attribute of the module that makes sense for a model in a runtime.

        Raises:
            AttributeError: the model has nothing like it.
        """
        made = _ATTRIBUTES.get(name)
        if made is not None:
            return made(model)
        if name == "config" and self._record.config:
            return self._config
        if name in _ABSENT:
            raise AttributeError(
                f"a quantized model has no {name!r}: it runs outside of PyTorch, on the CPU. Use `model.device`, and "
                "keep the module itself for its weights"
            )
        raise AttributeError(f"{type(model).__name__!r} object has no attribute {name!r}")

    @functools.cached_property
    def _config(self) -> Any:
        from transformers import AutoConfig

        settings = dict(self._record.config)
        return AutoConfig.for_model(settings.pop("model_type"), **settings)

    def _pipeline(self, model: Model) -> Callable[..., Any]:
        """Return a pipeline of `transformers` around the model.

        Raises:
            ModelError: there is no tokenizer, or no task is known.
        """
        folder = self._folder / TOKENIZER
        if not self._record.task or not folder.is_dir():
            raise ModelError(
                "the model got text, but has no tokenizer: pass what the tokenizer returns, as in "
                "`model(**tokenizer(texts, padding=True, return_tensors='pt'))`, or tune a pipeline or a folder that "
                "holds a tokenizer"
            )
        from transformers import pipeline

        kind = type(self._record.module, (_InPipeline,), {})  # pipelines look at the name of the class
        made: Callable[..., Any] = pipeline(self._record.task, model=kind(model), tokenizer=self._tokenizer)
        return made

    @functools.cached_property
    def _tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        folder = self._folder / TOKENIZER
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)  # nosec B615 - nothing is downloaded

    def __reduce__(self) -> tuple[type[ModuleCalls], tuple[ModuleRecord, Path]]:
        return ModuleCalls, (self._record, self._folder)


class _InPipeline:
    """The model as a pipeline of `transformers` expects it: every other attribute is None or False."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.config, self.device, self.dtype = model.config, model.device, model.dtype
        self.name_or_path = ""

    def forward(self, **inputs: Any) -> Any:
        """Run the model; pipelines look at the parameters of `forward`."""
        return self._model(**inputs)

    __call__ = forward

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _returning(self) if name in ("to", "eval") else _returning(False) if name.startswith("can_") else None


def _returning(value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: value


def _is_text(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list | tuple) and bool(value) and isinstance(value[0], str))


def _is_input(value: Any) -> bool:
    return hasattr(value, "shape")


def _to(model: Model) -> Callable[..., Model]:
    def to(*args: Any, **kwargs: Any) -> Model:
        target = str(args[0] if args else kwargs.get("device", "cpu"))
        if target.startswith(("cuda", "mps", "xpu")):
            raise ModelError(f"the model cannot be moved to {target!r}: quaver tunes for the CPU. Leave it on the CPU")
        return model

    return to


def _device(model: Model) -> Any:
    import torch

    return torch.device("cpu")


def _dtype(model: Model) -> Any:
    import torch

    return torch.float32


_ATTRIBUTES: dict[str, Callable[[Any], Any]] = {
    "eval": lambda model: _returning(model),
    "train": lambda model: _returning(model),
    "cpu": lambda model: _returning(model),
    "to": _to,
    "forward": lambda model: model.__call__,
    "device": _device,
    "dtype": _dtype,
    "training": lambda model: False,
}
