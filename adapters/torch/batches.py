"""Batches of calibration data as the inputs of a module, by the names of the parameters of its `forward`."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from quaver.adapters.data import batches_of
from quaver.errors import CalibrationError
from quaver.types import CalibrationData

# Parameters of `forward` that take labels. Models of Hugging Face compute a loss with them.
LABELS = frozenset({"label", "labels", "label_ids", "start_positions", "end_positions", "next_sentence_label"})
# Texts that a tokenizer gets at once. Judgement: shorter batches have less padding.
TEXTS_PER_BATCH = 16

Tokenizer = Callable[[list[str]], Mapping[str, Any]]


@dataclass(frozen=True)
class Forward:
    """The parameters of a module's `forward`.

    Attributes:
        module: the name of the module's class, for messages.
        names: the names of its parameters, in order.
        required: how many of them have no default.
        is_open: True if it takes further arguments (*args), which have no names.
        tokenizer: turns texts into a batch; None without one.
    """

    module: str
    names: tuple[str, ...]
    required: int
    is_open: bool
    tokenizer: Tokenizer | None = None

    @classmethod
    def of(cls, module: Any, tokenizer: Tokenizer | None = None) -> Forward:
        """Return the parameters of a module's `forward`."""
        named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        parameters = list(inspect.signature(module.forward).parameters.values())
        ordered = [parameter for parameter in parameters if parameter.kind in named]
        required = sum(parameter.default is inspect.Parameter.empty for parameter in ordered)
        is_open = any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters)
        return cls(type(module).__name__, tuple(parameter.name for parameter in ordered), required, is_open, tokenizer)

    def inputs(self, batch: Any, where: str) -> dict[str, Any]:
        """Return the inputs in a batch by the names of the parameters; labels are dropped.

        Raises:
            CalibrationError: if inputs are missing.
        """
        if isinstance(batch, str) or (isinstance(batch, list | tuple) and batch and isinstance(batch[0], str)):
            return self.inputs(self._tokenized([batch] if isinstance(batch, str) else list(batch), where), where)
        if isinstance(batch, Mapping):
            return self._named(batch, where)
        if not isinstance(batch, tuple | list) or not batch:
            return {self._name(0): batch}
        if isinstance(batch[0], Mapping | tuple | list):
            return self.inputs(batch[0], where)
        count = max(self.required, 1)
        if len(batch) < count:
            raise CalibrationError(
                f"{where} has {len(batch)} values, but {self.module}.forward needs {count}: "
                f"{', '.join(self.names[:count])}"
            )
        return {self._name(index): value for index, value in enumerate(batch[:count])}

    def _name(self, index: int) -> str:
        return self.names[index] if index < len(self.names) else f"input{index}"

    def _named(self, batch: Mapping[str, Any], where: str) -> dict[str, Any]:
        missing = [name for name in self.names[: self.required] if name not in batch]
        if missing:
            raise CalibrationError(
                f"{where} lacks {missing[0]!r}, which {self.module}.forward needs; it has {', '.join(map(repr, batch))}"
            )
        optional_labels = LABELS.difference(self.names[: self.required])
        named = {name: batch[name] for name in self.names if name in batch and name not in optional_labels}
        if not named:
            raise CalibrationError(
                f"{where} has none of the parameters of {self.module}.forward: it has {', '.join(map(repr, batch))}, "
                f"and forward takes {', '.join(self.names)}"
            )
        return named

    def _tokenized(self, texts: list[str], where: str) -> Mapping[str, Any]:
        if self.tokenizer is None:
            raise CalibrationError(
                f"{where} is text, and there is no tokenizer: pass what the tokenizer returns for the texts, such as "
                "`tokenizer(texts, padding=True, return_tensors='pt')`, or a folder that holds the tokenizer, too"
            )
        return self.tokenizer(texts)


class NamedBatches(Iterable[dict[str, Any]]):
    """Calibration data as dicts of arrays by the names of a module's parameters. It can be iterated as often as `data`.

    Attributes:
        forward: the parameters of the module.
    """

    def __init__(self, data: CalibrationData, forward: Forward) -> None:
        self._data, self.forward = data, forward

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for index, batch in enumerate(self._batches()):
            yield self.forward.inputs(batch, f"calibration batch {index}")

    def __len__(self) -> int:
        return len(self._data)  # a TypeError says that the length is not known

    def _batches(self) -> Iterator[Any]:
        data = self._data
        if isinstance(data, list | tuple) and data and all(isinstance(text, str) for text in data):
            for start in range(0, len(data), TEXTS_PER_BATCH):
                yield list(data[start : start + TEXTS_PER_BATCH])
        else:
            yield from batches_of(data, ())


def first_batches(data: CalibrationData, forward: Forward, count: int) -> tuple[list[dict[str, Any]], CalibrationData]:
    """Return the first batches, and data that still begins with them. An iterator is not lost by that."""
    if isinstance(data, Iterator) and not hasattr(data, "reset"):
        first = list(itertools.islice(data, count))
        named = list(NamedBatches(first, forward))
        return named, NamedBatches(itertools.chain(first, data), forward)
    batches = NamedBatches(data, forward)
    return list(itertools.islice(batches, count)), batches


def as_tensors(batch: Mapping[str, Any], dtype: Any) -> dict[str, Any]:
    """Return a batch as tensors on the CPU. Arrays of floats get the module's own type, as models of arrays do."""
    import torch

    tensors = {}
    for name, value in batch.items():
        if isinstance(value, torch.Tensor):
            tensors[name] = value.detach().cpu()
            continue
        tensor = torch.as_tensor(np.asarray(value))
        tensors[name] = tensor.to(dtype) if tensor.is_floating_point() else tensor
    return tensors
