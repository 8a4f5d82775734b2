"""The forms of an MXNet model, recognized without importing MXNet."""

from __future__ import annotations

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from quaver.errors import ModelError
from quaver.extras import install_command
from quaver.types import ModelLike

ACCEPTED_FORMS = (
    "a Gluon hybrid block, a Module that is bound, (symbol, arg_params, aux_params), or files as "
    "`export` and `save_checkpoint` write them: PREFIX, PREFIX-symbol.json or PREFIX-0000.params"
)
SYMBOL = "-symbol.json"
PARAMS = ".params"
# The first bytes of a parameter file.
MAGIC = (0x112).to_bytes(8, "little")
_EPOCH = re.compile(r"-\d{4,}$")


def accepts(model: ModelLike) -> bool:
    """Return True if this is one of the forms."""
    if isinstance(model, str | os.PathLike):
        path = os.fspath(model)
        return path.endswith((SYMBOL, PARAMS)) or Path(path + SYMBOL).is_file()
    if isinstance(model, bytes):
        return model.startswith(MAGIC)
    if isinstance(model, tuple):
        return len(model) == 3 and _is_of_mxnet(model[0])
    return _is_of_mxnet(model)


def _is_of_mxnet(thing: Any) -> bool:
    return any(base.__module__.partition(".")[0] == "mxnet" for base in type(thing).__mro__)


def find_files(model: str | os.PathLike[str]) -> tuple[Path | None, Path]:
    """Return the files of symbol and parameters for a path; no symbol where the parameters contain it."""
    path = Path(os.fspath(model))
    if path.name.endswith(PARAMS):
        _check_exists(path)
        symbol = path.with_name(_EPOCH.sub("", path.name.removesuffix(PARAMS)) + SYMBOL)
        return (symbol if symbol.is_file() else None), path
    prefix = path.name.removesuffix(SYMBOL)
    symbol = path.with_name(prefix + SYMBOL)
    _check_exists(symbol)
    epochs = sorted(
        file
        for file in symbol.parent.glob("*" + PARAMS)
        if _EPOCH.sub("", file.name.removesuffix(PARAMS)) == prefix and _EPOCH.search(file.name.removesuffix(PARAMS))
    )
    if not epochs:
        raise ModelError(f"there is {str(symbol)!r}, but no {prefix}-0000.params next to it")
    return symbol, epochs[-1]


def _check_exists(path: Path) -> None:
    if not path.is_file():
        raise ModelError(f"no model at {str(path)!r}")


ENVIRONMENT = "(in an environment of its own: MXNet does not support numpy 2)"


def import_mxnet() -> Any:
    """Return the package, imported with `numpy.bool` in place, which MXNet needs and numpy 1.24 removed.

    After this a plain `import mxnet` works with any numpy before 2.
    """
    if "mxnet" not in sys.modules:
        _prepare()
    # Otherwise MXNet prints a line about oneDNN whenever a session starts.
    os.environ.setdefault("MXNET_SUBGRAPH_VERBOSE", "0")
    import mxnet

    return mxnet


def _prepare() -> None:
    if find_spec("mxnet") is None:
        raise ModelError(
            f"a model of MXNet needs mxnet, which is not installed: {install_command('mxnet')} {ENVIRONMENT}"
        )
    import numpy

    if int(numpy.__version__.partition(".")[0]) >= 2:
        raise ModelError(
            f"MXNet cannot be imported with numpy {numpy.__version__}: {install_command('mxnet')} {ENVIRONMENT}"
        )
    if "bool" not in numpy.__dict__:
        numpy.bool = numpy.bool_  # type: ignore[attr-defined,misc,unused-ignore]
