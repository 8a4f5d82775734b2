"""Colours and lines that all figures share. They can be distinguished without seeing red and green."""

from __future__ import annotations

import plotly.graph_objects as go

from quaver.types import PlainDict

INT8, FP32, CONVERSION, REST = "#0072B2", "#E69F00", "#CC79A7", "#8A8F98"
MET, NOT_MET, FAILED, BEST = "#009E73", "#8A8F98", "#D55E00", "#8B5CF6"
# Trials that were stopped early, whose figures are estimates: name, colour and symbol.
STOPPED = "stopped early", NOT_MET, "diamond-open"
INK, FAINT, GRID = "#1F2937", "#6B7280", "#E5E7EB"
# The styles of the page give the background, and texts and grids their colours on a dark screen.
TRANSPARENT = "rgba(0,0,0,0)"
BY_KIND = {"int8": INT8, "fp32": FP32, "conversion": CONVERSION, "rest": REST, "mixed": "#56B4E9"}
# The colours of several runs in one figure.
SERIES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8A8F98", "#111827")

FONT = {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif", "size": 13, "color": INK}

# Judgement: with more ticks than this, every whole number is too many.
MAX_SINGLE_TICKS = 16

LEGEND = {"orientation": "h", "yanchor": "bottom", "y": 1.02, "xanchor": "left", "x": 0, "font": {"size": 12}}


def styled(
    figure: go.Figure,
    height: int = 380,
    *,
    legend: bool = True,
    x: PlainDict | None = None,
    y: PlainDict | None = None,
    **layout: object,
) -> go.Figure:
    """Give a figure the layout that all share; `x` and `y` are settings of its axes."""
    axes = {name: _axis(settings) for name, settings in (("xaxis", x), ("yaxis", y)) if settings is not None}
    figure.update_layout(
        {
            "template": "none",
            "font": FONT,
            "height": height,
            "margin": {"l": 70, "r": 30, "t": 50 if legend else 30, "b": 56},
            "showlegend": legend,
            "legend": LEGEND,
            "hoverlabel": {"font": {"size": 12}, "align": "left"},
            "plot_bgcolor": TRANSPARENT,
            "paper_bgcolor": TRANSPARENT,
            **axes,
            **layout,
        }
    )
    return figure


def _axis(settings: PlainDict) -> PlainDict:
    """Return the settings of an axis, in addition to those that all axes have. `title` is a text."""
    title = {"text": settings.get("title", ""), "font": {"size": 12, "color": FAINT}, "standoff": 10}
    return {"gridcolor": GRID, "zerolinecolor": GRID, "linecolor": GRID, **settings, "title": title}


def whole_numbers(title: str, count: int) -> PlainDict:
    """Return the settings of an axis that counts from 1, without ticks between whole numbers."""
    few = {"dtick": 1} if count < MAX_SINGLE_TICKS else {}
    return {"title": title, "tickformat": "d", "rangemode": "tozero", **few}


def level(y: float, text: str, colour: str, dash: str, above: bool = True) -> PlainDict:
    """Return a labelled line across the figure, as keywords of `add_hline`."""
    return {
        "y": y,
        "line": {"color": colour, "width": 1.5, "dash": dash},
        "annotation": {"text": text, "font": {"size": 11, "color": colour}, "yanchor": "bottom" if above else "top"},
        "annotation_position": "left",
        "annotation_xanchor": "left",
    }


def best_marker(size: int = 19) -> PlainDict:
    """Return the marker of the best trial: a frame around its own mark."""
    return {"color": TRANSPARENT, "symbol": "star-diamond", "size": size, "line": {"width": 2, "color": BEST}}


def empty(reason: str, height: int = 200) -> go.Figure:
    """Return a figure with a sentence that says why there is nothing to draw."""
    figure = styled(go.Figure(), height, legend=False, x={"visible": False}, y={"visible": False})
    annotation = {"text": reason, "showarrow": False, "x": 0.5, "y": 0.5, "xref": "paper", "yref": "paper"}
    figure.add_annotation(**annotation, font={"size": 13, "color": FAINT})
    return figure
