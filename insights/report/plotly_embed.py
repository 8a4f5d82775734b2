"""Embed plotly figures in the report: plotly's script once, compressed, and the data of each figure at its place."""

from __future__ import annotations

import base64
import functools
import gzip
import json
from typing import TYPE_CHECKING

from quaver.insights.report.blocks import FigureBlock

if TYPE_CHECKING:
    import plotly.graph_objects as go

# Pixels of a figure without a height of its own. Judgement.
DEFAULT_HEIGHT = 300


def figure_block(figure: go.Figure) -> FigureBlock:
    """Return a figure as a block of the report."""
    # Six digits are more than a figure shows, and a third of the bytes of a float.
    content = json.loads(figure.to_json(), parse_float=lambda text: float(f"{float(text):.6g}"))
    text = (
        json.dumps(content, separators=(",", ":"))
        .replace("<", "\\u003c")
        .replace("\u2028", "\\u2028")
        .replace("\u2029", "\\u2029")
    )
    return FigureBlock(text, int(figure.layout.height or DEFAULT_HEIGHT))


@functools.cache
def plotly_script() -> str:
    """Return plotly's script as compressed base64 text."""
    from plotly.offline import get_plotlyjs

    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), 9, mtime=0)).decode()
