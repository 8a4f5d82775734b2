"""Models of Hugging Face: from a folder, a pipeline or an object to a module, its tokenizer and its task."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quaver.adapters.torch.batches import Tokenizer
from quaver.adapters.torch.export import quiet
from quaver.adapters.torch.sources import is_pipeline, is_pretrained, need
from quaver.errors import ModelError
from quaver.types import ModelLike, PlainDict

# The task of `transformers.pipeline` by the end of a class name; all other models give embeddings.
_TASKS = {"ForSequenceClassification": "text-classification", "ForTokenClassification": "token-classification"}
_EMBEDDINGS = "feature-extraction"
# Heads that generate, one token after another: their models take caches, which a plain call does not have.
_GENERATING = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "spiece.model")


@dataclass(frozen=True)
class ModuleSource:
    """A module to export, and what belongs to it.

    Attributes:
        module: the module.
        tokenizer: turns texts into batches; None without one.
        settings: further arguments of each call.
        config: the configuration of a model of Hugging Face as builtins; empty for other modules.
        task: the task for `transformers.pipeline`; empty if there is none.
    """

    module: Any
    tokenizer: Any
    settings: Mapping[str, Any]
    config: PlainDict
    task: str

    @property
    def tokenize(self) -> Tokenizer | None:
        """Return a function from texts to a batch; None without a tokenizer."""
        tokenizer = self.tokenizer
        if tokenizer is None:
            return None
        return lambda texts: dict(tokenizer(texts, padding=True, truncation=True, return_tensors="pt"))


def module_source(model: ModelLike) -> ModuleSource:
    """Return the module of what the user passed.

    Raises:
        ModelError: it is a model of Hugging Face that is not supported, or cannot be loaded.
    """
    if isinstance(model, str | os.PathLike):
        return _from_folder(Path(os.fspath(model)))
    if is_pipeline(model):
        return _of_pretrained(model.model, model.tokenizer, model.task)
    if is_pretrained(model):
        return _of_pretrained(model, None, "")
    return ModuleSource(model, None, {}, {}, "")


def _from_folder(folder: Path) -> ModuleSource:
    need(("transformers",), f"the folder {str(folder)!r} holds a model of Hugging Face, which")
    import torch
    import transformers

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    names = config.get("architectures") or ["AutoModel"]
    _check_head(names[0])
    kind = getattr(transformers, names[0], transformers.AutoModel)
    try:
        with quiet():  # a progress bar for each file
            module = kind.from_pretrained(folder, local_files_only=True, dtype=torch.float32)
        has_tokenizer = any((folder / name).is_file() for name in _TOKENIZER_FILES)
        load_tokenizer = transformers.AutoTokenizer.from_pretrained
        tokenizer = load_tokenizer(folder, local_files_only=True) if has_tokenizer else None
    except (OSError, ValueError, ImportError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ModelError(f"the folder {str(folder)!r} cannot be loaded by transformers: {reason}") from error
    return _of_pretrained(module, tokenizer, "")


def _check_head(name: str) -> None:
    if name.endswith(_GENERATING):
        raise ModelError(
            f"a {name} generates token by token with a cache, which a plain export does not have: export it with "
            "the model builder of onnxruntime-genai, and pass the folder that it writes"
        )


def _of_pretrained(module: Any, tokenizer: Any, task: str) -> ModuleSource:
    name = type(module).__name__
    _check_head(name)
    known = next((task for ending, task in _TASKS.items() if name.endswith(ending)), _EMBEDDINGS)
    config = json.loads(module.config.to_json_string(use_diff=False))
    return ModuleSource(module, tokenizer, {"return_dict": True}, config, task or known)
