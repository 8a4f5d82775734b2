"""MXNet's import. Its last release, 1.9.1, is older than the packages it has to live with."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import Any

from quaver.errors import ModelError

INSTALL = "pip install quaver[mxnet] (in an environment of its own: MXNet does not know numpy 2)"


def import_mxnet() -> Any:
    """The package. `numpy.bool`, which went with numpy 1.24 and is asked for by this import, is given back before.

    After this a plain `import mxnet` works beside any numpy before 2. With an older numpy it works without this, too.
    """
    if "mxnet" not in sys.modules:
        _prepare()
    # It says on every start of a session that oneDNN is used.
    os.environ.setdefault("MXNET_SUBGRAPH_VERBOSE", "0")
    import mxnet

    return mxnet


def _prepare() -> None:
    if find_spec("mxnet") is None:
        raise ModelError(f"a model of MXNet needs mxnet, which is not installed: {INSTALL}")
    import numpy

    if int(numpy.__version__.partition(".")[0]) >= 2:
        raise ModelError(f"MXNet cannot be imported beside numpy {numpy.__version__}: {INSTALL}")
    if "bool" not in numpy.__dict__:
        numpy.bool = numpy.bool_  # type: ignore[attr-defined,misc,unused-ignore]
