"""The histograms of a diagnosis: as arrays that a file holds, and back as what pictures are drawn from."""

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
class Bars:
    """The histogram of one op's output or weight, in the float model.

    Attributes:
        op: its name.
        counts: how many values lie in each bin; for a weight a row for each output channel, or, of a weight with very
            many channels, for each run of neighbouring ones.
        edges: the borders of the bins, one more than there are bins.
        channel_low, channel_high: the smallest and the largest value of each channel; empty if it has none.
        scales: of a quantized weight, one or one for each channel; empty for an output and for a float weight.
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

    activations: Mapping[str, Bars]
    weights: Mapping[str, Bars]


def as_arrays(records: Mapping[str, OpRecord], weights: Sequence[WeightHistogram]) -> dict[str, Array]:
    """All histograms as arrays of plain types.

    The n-th weight's are under weight_counts_<n>, weight_edges_<n>, weight_channels_<n> and weight_scales_<n>.
    """
    seen = [(name, record.output, record.output.histogram) for name, record in records.items()]
    kept = [(name, output, histogram) for name, output, histogram in seen if histogram is not None]
    arrays: dict[str, Array] = {
        "ops": np.array([name for name, _, _ in kept], dtype=np.str_),
        "activation_counts": np.array([histogram.counts for _, _, histogram in kept]),
        "activation_edges": np.array([histogram.edges for _, _, histogram in kept]),
        "weight_ops": np.array([picture.op for picture in weights], dtype=np.str_),
    }
    for number, (_, output, _) in enumerate(kept):
        if output.channel_low.size > 1:
            arrays[f"activation_channels_{number}"] = np.stack([output.channel_low, output.channel_high])
    for number, picture in enumerate(weights):
        arrays[f"weight_counts_{number}"] = picture.counts.astype(np.uint32)
        arrays[f"weight_edges_{number}"] = picture.edges
        arrays[f"weight_channels_{number}"] = np.stack([picture.low, picture.high])
        arrays[f"weight_scales_{number}"] = picture.scales
    return arrays


def from_arrays(arrays: Mapping[str, Array]) -> Histograms:
    """What `as_arrays` made, by op."""
    none = np.zeros(0)
    activations, weights = {}, {}
    for number, op in enumerate(map(str, arrays["ops"])):
        name = f"activation_channels_{number}"
        low, high = arrays.get(name, (none, none))
        bars = Bars(op, arrays["activation_counts"][number], arrays["activation_edges"][number], low, high, none)
        activations[op] = bars
    for number, op in enumerate(map(str, arrays["weight_ops"])):
        low, high = arrays[f"weight_channels_{number}"]
        weights[op] = Bars(
            op,
            arrays[f"weight_counts_{number}"],
            arrays[f"weight_edges_{number}"],
            low,
            high,
            arrays[f"weight_scales_{number}"],
        )
    return Histograms(activations, weights)


def read_histograms(place: str | os.PathLike[str]) -> Histograms:
    """The histograms of a run or a diagnosis: from its folder, or from the file itself."""
    path = Path(expanded(place))
    path = path / HISTOGRAMS_FILE if path.is_dir() else path
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return from_arrays(dict(arrays))
    except FileNotFoundError as error:
        raise SettingsError(f"no histograms at {str(path)!r}: were these tables written by a diagnosis?") from error
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise SettingsError(f"{str(path)!r} does not hold the histograms of a diagnosis: {error}") from error
