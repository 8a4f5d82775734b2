"""The histograms of a diagnosis, as arrays in a file and as objects that figures are drawn from."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from quaver.diagnosis.recorder import OpRecord
from quaver.diagnosis.statistics.weights import WeightHistogram
from quaver.errors import SettingsError
from quaver.files.paths import expanded
from quaver.types import Array

HISTOGRAMS_FILE = "histograms.npz"


@dataclass(frozen=True, slots=True)
class OpHistogram:
    """The histogram of one op's output or weight in the float model.

    Attributes:
        op: the op's name.
        counts: the number of values in each bin. A weight has a row per output channel, or per group of neighbouring
            channels if there are very many.
        edges: the borders of the bins, one more than there are bins.
        channel_low, channel_high: the smallest and the largest value of each channel; empty without channels.
        scales: the scales of a quantized weight, one or one per channel; empty for an output and for a float weight.
    """

    op: str
    counts: Array
    edges: Array
    channel_low: Array
    channel_high: Array
    scales: Array


@dataclass(frozen=True, slots=True)
class Histograms:
    """All histograms of a diagnosis, by op."""

    activations: Mapping[str, OpHistogram]
    weights: Mapping[str, OpHistogram]


def as_arrays(records: Mapping[str, OpRecord], weights: Sequence[WeightHistogram]) -> dict[str, Array]:
    """Return all histograms as arrays.

    The arrays of the n-th weight are weight_counts_<n>, weight_edges_<n>, weight_channels_<n> and weight_scales_<n>.
    """
    drawn = [
        (name, record.output, record.output.histogram)
        for name, record in records.items()
        if record.output.histogram is not None
    ]
    arrays: dict[str, Array] = {
        "ops": np.array([name for name, _, _ in drawn], dtype=np.str_),
        "activation_counts": np.array([histogram.counts for _, _, histogram in drawn]),
        "activation_edges": np.array([histogram.edges for _, _, histogram in drawn]),
        "weight_ops": np.array([histogram.op for histogram in weights], dtype=np.str_),
    }
    for number, (_, output, _) in enumerate(drawn):
        if output.channel_low.size > 1:
            arrays[f"activation_channels_{number}"] = np.stack([output.channel_low, output.channel_high])
    for number, histogram in enumerate(weights):
        arrays[f"weight_counts_{number}"] = histogram.counts.astype(np.uint32)
        arrays[f"weight_edges_{number}"] = histogram.edges
        arrays[f"weight_channels_{number}"] = np.stack([histogram.low, histogram.high])
        arrays[f"weight_scales_{number}"] = histogram.scales
    return arrays


def from_arrays(arrays: Mapping[str, Array]) -> Histograms:
    """Return the histograms in arrays of `as_arrays`."""
    none = np.zeros(0)
    activations, weights = {}, {}
    for number, op in enumerate(map(str, arrays["ops"])):
        name = f"activation_channels_{number}"
        low, high = arrays.get(name, (none, none))
        histogram = OpHistogram(
            op, arrays["activation_counts"][number], arrays["activation_edges"][number], low, high, none
        )
        activations[op] = histogram
    for number, op in enumerate(map(str, arrays["weight_ops"])):
        low, high = arrays[f"weight_channels_{number}"]
        weights[op] = OpHistogram(
            op,
            arrays[f"weight_counts_{number}"],
            arrays[f"weight_edges_{number}"],
            low,
            high,
            arrays[f"weight_scales_{number}"],
        )
    return Histograms(activations, weights)


def read_histograms(place: str | os.PathLike[str]) -> Histograms:
    """Read the histograms of a run or a diagnosis, from its folder or from the file itself."""
    path = Path(expanded(place))
    path = path / HISTOGRAMS_FILE if path.is_dir() else path
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return from_arrays(dict(arrays))
    except FileNotFoundError as error:
        raise SettingsError(f"no histograms at {str(path)!r}: were these tables written by a diagnosis?") from error
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise SettingsError(f"{str(path)!r} does not hold the histograms of a diagnosis: {error}") from error
