"""The forms in which a model of MXNet comes, told apart without importing it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from quaver.errors import ModelError

TAKES = (
    "a Gluon hybrid block, a Module that is bound, (symbol, arg_params, aux_params), or files as "
    "`export` and `save_checkpoint` write them: PREFIX, PREFIX-symbol.json or PREFIX-0000.params"
)
SYMBOL = "-symbol.json"
PARAMS = ".params"
# How a file of parameters begins.
MARK = (0x112).to_bytes(8, "little")
_EPOCH = re.compile(r"-\d{4,}$")


def accepts(model: Any) -> bool:
    """Whether this is one of the forms."""
    if isinstance(model, str | os.PathLike):
        path = os.fspath(model)
        return path.endswith((SYMBOL, PARAMS)) or Path(path + SYMBOL).is_file()
    if isinstance(model, bytes):
        return model.startswith(MARK)
    if isinstance(model, tuple):
        return len(model) == 3 and _is_of_mxnet(model[0])
    return _is_of_mxnet(model)


def _is_of_mxnet(thing: Any) -> bool:
    return any(base.__module__.partition(".")[0] == "mxnet" for base in type(thing).__mro__)


def pair(model: str | os.PathLike[str]) -> tuple[Path | None, Path]:
    """The files of symbol and parameters that a path means; no symbol where the parameters hold it."""
    path = Path(os.fspath(model))
    if path.name.endswith(PARAMS):
        _exists(path)
        symbol = path.with_name(_EPOCH.sub("", path.name.removesuffix(PARAMS)) + SYMBOL)
        return (symbol if symbol.is_file() else None), path
    prefix = path.name.removesuffix(SYMBOL)
    symbol = path.with_name(prefix + SYMBOL)
    _exists(symbol)
    epochs = sorted(
        found
        for found in symbol.parent.glob("*" + PARAMS)
        if _EPOCH.sub("", found.name.removesuffix(PARAMS)) == prefix and _EPOCH.search(found.name.removesuffix(PARAMS))
    )
    if not epochs:
        raise ModelError(f"there is {str(symbol)!r}, but no {prefix}-0000.params beside it")
    return symbol, epochs[-1]


def _exists(path: Path) -> None:
    if not path.is_file():
        raise ModelError(f"no model at {str(path)!r}")
