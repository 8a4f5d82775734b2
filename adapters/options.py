"""Options of an adapter, and the values that apply where the user leaves one open."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from quaver.errors import SettingsError
from quaver.suggestions import hint
from quaver.types import PlainMapping

if TYPE_CHECKING:
    from quaver.adapters.base import Adapter


# The ops that adapters find: version 1 is those of quaver 0.1.0; version 2 adds ops of 0.2.0, and leaves ops with mask
# values out; version 3 adds rewrites of the float graph; version 4 offers only the weights of decoders. Runs record it,
# because their trials name ops.
OPS_VERSION = 4


@dataclass(frozen=True, slots=True)
class AdapterOptions:
    """Settings of an adapter.

    Attributes:
        folder: folder for large temporary files; None for the system's temporary folder.
        threads: threads of one inference; 0 lets the runtime decide.
        quant_format: how int8 is written into the model, where the framework has several ways; None for its default.
        optimise_float: rewrite the float graph into an equal, faster one before it is quantized.
        batch: samples of one timed inference, where the model leaves the batch open.
        shared: other processes of this machine use the same folder for the same model, so large weights are written
            once. Whoever created the folder removes its files.
        left_out: rewrites of the float graph to skip: they change what the model computes, or do not pay.
        portable: build int8 weights so that the model gives the same outputs on x86 processors without VNNI.
        ops_version: which ops to find (see `OPS_VERSION`).
        name_modules: call nodes after their modules in any version of the ops, where no history knows other names.
        small_files: the size of the model counts, so that weights of four bits are rounded by calibration samples.
    """

    folder: Path | None = None
    threads: int = 0
    quant_format: str | None = None
    optimise_float: bool = True
    batch: int = 1
    shared: bool = False
    left_out: tuple[str, ...] = ()
    portable: bool = False
    ops_version: int = OPS_VERSION
    name_modules: bool = False
    small_files: bool = False


@dataclass(frozen=True, slots=True)
class TimingOptions:
    """Settings of a timing run.

    Attributes:
        batch: samples of one inference, where the model leaves the batch open.
        threads: threads of one inference; 0 lets the runtime decide.
        warmup: inferences before the timed ones.
        runs: timed inferences.
    """

    batch: int = 1
    threads: int = 0
    warmup: int = 5
    runs: int = 50


def resolve_quant_format(adapter: type[Adapter], wanted: str | None, framework: str | None = None) -> str | None:
    """Return how int8 is written into models: as wanted, as the framework's name implies, or the adapter's default.

    Raises:
        SettingsError: if the adapter does not support the format, or the format contradicts the framework's name.
    """
    implied = adapter.implied_formats.get(framework or "")
    if wanted is None:
        return implied or next(iter(adapter.quant_formats), None)
    wanted = wanted.lower()
    if not adapter.quant_formats:
        raise SettingsError(f"{adapter.name} has no quant_format setting, but quant_format is {wanted!r}: leave it out")
    if wanted not in adapter.quant_formats:
        raise SettingsError(
            f"unknown quant_format {wanted!r} for {adapter.name}; {hint(wanted, adapter.quant_formats)}"
        )
    if implied not in (None, wanted):
        raise SettingsError(
            f"framework {framework!r} implies quant_format {implied!r}, but quant_format is {wanted!r}: "
            "give only one of them"
        )
    return wanted


def recorded_quant_format(adapter: type[Adapter], settings: PlainMapping) -> str | None:
    """Return the quant_format of an earlier run.

    Version 0.1.0 also recorded a format for adapters that have none; such a value is ignored.
    """
    recorded = settings.get("quant_format")
    return recorded if recorded in adapter.quant_formats else resolve_quant_format(adapter, None)


def resolve_portable(adapter: type[Adapter], wanted: bool | None) -> bool:
    """Return True if int8 models shall give the same outputs on every x86 processor.

    Args:
        adapter: the adapter that builds the models.
        wanted: the user's setting; None for True wherever the adapter can promise it.

    Raises:
        SettingsError: if it is wanted and the adapter cannot promise it.
    """
    if wanted and not adapter.portability:
        raise SettingsError(
            f"`portable` is True, but {adapter.name} cannot promise it: int8 sums may saturate on processors without "
            "VNNI. Leave `portable` out, or export the model to ONNX and tune that"
        )
    return bool(adapter.portability) if wanted is None else wanted
