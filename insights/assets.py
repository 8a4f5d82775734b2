"""Files that are installed with the views: templates, styles and scripts, and plotly's script."""

from __future__ import annotations

import base64
import functools
import gzip
from importlib import resources


def read_asset(name: str) -> str:
    """Return the text of a file in `insights/templates`."""
    return resources.files("quaver.insights").joinpath("templates", name).read_text(encoding="utf-8")


@functools.cache
def plotly_script() -> str:
    """Return plotly's script as compressed base64 text."""
    from plotly.offline import get_plotlyjs

    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), 9, mtime=0)).decode()
