"""The structure of a module's outputs: taken apart into tensors for the export, and put together again for callers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from quaver.errors import ModelError
from quaver.types import PlainDict

Leaf = Any
"""A tensor or an array."""


class ModuleOutput(OrderedDict[str, Any]):
    """Named outputs, read like those of `transformers`: `output.logits`, `output["logits"]` or `output[0]`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the model has no output {name!r}; it has {', '.join(self)}") from None

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key) if isinstance(key, str) else self.to_tuple()[key]

    def to_tuple(self) -> tuple[Any, ...]:
        """Return the outputs in their order."""
        return tuple(OrderedDict.__getitem__(self, key) for key in self)


def flatten(output: Any, is_leaf: Callable[[Any], bool]) -> tuple[list[Leaf], list[str], PlainDict]:
    """Return the tensors of an output, a name for each, and the structure as builtins, for `rebuild`."""
    leaves: list[Leaf] = []
    names: list[str] = []
    return leaves, names, _flatten(output, is_leaf, "output", leaves, names)


def _flatten(output: Any, is_leaf: Callable[[Any], bool], name: str, leaves: list[Leaf], names: list[str]) -> PlainDict:
    def inner(value: Any, key: str) -> PlainDict:
        return _flatten(value, is_leaf, key if name == "output" else f"{name}.{key}", leaves, names)

    if is_leaf(output):
        leaves.append(output)
        names.append(name)
        return {"tensor": len(leaves) - 1}
    if isinstance(output, Mapping):
        return {"dict": {str(key): inner(value, str(key)) for key, value in output.items() if value is not None}}
    if isinstance(output, tuple) and hasattr(output, "_fields"):
        return {"dict": {key: inner(getattr(output, key), key) for key in output._fields}}
    if isinstance(output, tuple | list):
        kind = "tuple" if isinstance(output, tuple) else "list"
        return {kind: [inner(value, f"output{index}") for index, value in enumerate(output)]}
    if output is None or isinstance(output, bool | int | float | str):
        return {"value": output}
    raise ModelError(
        f"the module returns a {type(output).__name__}, of which {name!r} is no tensor: only tensors, tuples, lists, "
        "dicts and numbers can be exported. Wrap the module in one that returns tensors"
    )


def rebuild(structure: PlainDict, leaves: Sequence[Leaf]) -> Any:
    """Return an output with this structure."""
    ((kind, value),) = structure.items()
    if kind == "tensor":
        return leaves[value]
    if kind == "dict":
        return ModuleOutput((key, rebuild(part, leaves)) for key, part in value.items())
    if kind == "value":
        return value
    parts = [rebuild(part, leaves) for part in value]
    return tuple(parts) if kind == "tuple" else parts
