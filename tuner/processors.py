"""Processors: the one that a verdict was measured on, and the others on which it holds.

x86 processors without VNNI add two products of 8 bits in 16 bits and saturate, those with VNNI add in 32 bits. A model
whose sums can saturate scores differently on the two kinds; see `quaver.Config.portable`.
"""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from quaver.types import PlainDict, PlainMapping

# The names of the notes in a history: a `Portability`, and by processor what was verified on it afterwards.
NOTE = "portability"
VERIFIED = "verified processors"
# Instruction sets that decide how 8 bits are multiplied: what Linux calls them, and what the makers do. The best first.
_X86 = {"amx_int8": "AMX", "avx512_vnni": "AVX512-VNNI", "avx_vnni": "AVX-VNNI", "avx512bw": "AVX512", "avx2": "AVX2"}
_ARM = {"i8mm": "I8MM", "asimddp": "dot products", "asimd": "NEON"}
# Instruction sets that multiply bf16.
_BF16 = ("amx_bf16", "avx512_bf16")
VNNI = ("AMX", "AVX512-VNNI", "AVX-VNNI")


@dataclass(frozen=True, slots=True)
class Processor:
    """A processor, as far as int8 is concerned.

    Attributes:
        name: as the system calls it.
        architecture: such as "x86_64".
        int8: the instruction sets that multiply 8 bits, the best first; empty if the system does not say.
    """

    name: str
    architecture: str
    int8: tuple[str, ...] = ()

    @property
    def is_x86(self) -> bool:
        """True if it runs programs for x86."""
        return self.architecture.lower() in ("x86_64", "amd64", "i686", "i386", "x86")

    @property
    def has_vnni(self) -> bool:
        """True if it adds products of 8 bits directly in 32 bits."""
        return any(name in VNNI for name in self.int8)

    def __str__(self) -> str:
        kinds = ["no VNNI"] if self.is_x86 and self.int8 and not self.has_vnni else []
        return f"{self.name} ({', '.join([self.architecture, *self.int8[:1], *kinds])})"


def this_processor() -> Processor:
    """Return the processor of this machine."""
    fields = _description()
    machine = platform.machine() or "unknown architecture"
    flags = _flags(fields)
    int8 = tuple(name for flag, name in {**_X86, **_ARM}.items() if flag in flags)
    return Processor(fields.get("model name") or platform.processor() or "a processor", machine, int8)


def has_bf16() -> bool:
    """Return True if this processor multiplies bf16: with AVX512-BF16 or AMX."""
    return not _flags(_description()).isdisjoint(_BF16)


def _description() -> dict[str, str]:
    """Return how the system describes the first processor; empty if it does not."""
    fields: dict[str, str] = {}
    with contextlib.suppress(OSError):
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
        for line in first.splitlines():
            key, _, value = line.partition(":")
            fields[key.strip()] = value.strip()
    return fields


def _flags(fields: Mapping[str, str]) -> set[str]:
    return {*fields.get("flags", "").split(), *fields.get("Features", "").split()}


@dataclass(frozen=True, slots=True)
class Coarsened:
    """The part of a model that has coarser weights than without `portable`.

    Attributes:
        ops: int8 ops whose sums would saturate on some processors.
        coarser_ops: those of them with a coarser channel.
        channels: output channels of `ops`.
        coarser_channels: those of them whose scale is larger.
    """

    ops: int
    coarser_ops: int
    channels: int
    coarser_channels: int

    def __str__(self) -> str:
        share = self.coarser_channels / self.channels if self.channels else 0.0
        return f"{share:.0%} of the channels of {self.ops} int8 ops have coarser weights"


@dataclass(frozen=True, slots=True)
class Verification:
    """The answers of a model on another processor, emulated or real.

    Attributes:
        cpu: the processor.
        samples: how many samples it ran.
        native_error: relative output error on the processor that the verdict was measured on.
        emulated_error: the same on the other processor.
        met: whether the answers are as good there.
        model_hash: of the model's file.
    """

    cpu: str
    samples: int
    native_error: float
    emulated_error: float
    met: bool
    model_hash: str

    def __str__(self) -> str:
        errors = f"relative output error {self.emulated_error:.3g} there, {self.native_error:.3g} here"
        return f"{'verified' if self.met else 'NOT the same'} on {self.cpu}: {errors} ({self.samples} samples)"


@dataclass(frozen=True, slots=True)
class Bf16Part:
    """The ops of a model that run in bf16, and what the same file gives where they run in fp32.

    Attributes:
        ops: the number of these ops.
        setting: what tells the runtime to run them in bf16.
        latency: latency of the model relative to the fp32 model's; None if it was not measured.
        fp32_latency: the same if they run in fp32.
        error: label-free error at the outputs, as strategies see it; None if it was not measured.
        fp32_error: the same if they run in fp32.
    """

    ops: int
    setting: str
    latency: float | None = None
    fp32_latency: float | None = None
    error: float | None = None
    fp32_error: float | None = None

    def __str__(self) -> str:
        count = "1 op runs" if self.ops == 1 else f"{self.ops} ops run"
        text = f"{count} in bf16, which needs AVX512-BF16 or AMX and {self.setting}"
        figures = []
        if self.latency is not None and self.fp32_latency is not None:
            figures.append(f"{self.fp32_latency:.2f}x fp32 latency instead of {self.latency:.2f}x")
        if self.error is not None and self.fp32_error is not None:
            figures.append(f"output error {self.fp32_error:.3g} instead of {self.error:.3g}")
        return f"{text}; without it: {', '.join(figures)}" if figures else text


@dataclass(frozen=True, slots=True)
class Portability:
    """The processors on which the verdict on a model was measured, and on which it holds.

    Attributes:
        measured_on: the processor that the scores were taken on; with workers elsewhere, that of the run itself.
        promise: "bounded" if weights are such that no int8 sum saturates, for any input; "inherent" if the kernels of
            the framework add in 32 bits everywhere; "float" if nothing is quantized; empty if sums may saturate on x86
            processors without VNNI.
        coarsened: what a bounded model pays for it; None for others.
        verified: what `quaver check --cpu` found afterwards.
        bf16: what runs in bf16; None if nothing does.
    """

    measured_on: Processor
    promise: str
    coarsened: Coarsened | None = None
    verified: tuple[Verification, ...] = ()
    bf16: Bf16Part | None = None

    def to_dict(self) -> PlainDict:
        """Return builtins, for the history and for JSON."""
        fields = asdict(self)
        fields["measured_on"]["int8"] = list(self.measured_on.int8)
        fields["verified"] = list(fields["verified"])
        return fields

    @classmethod
    def from_dict(cls, noted: Any) -> Portability | None:
        """Return the portability that a history holds; None if there is none that can be read."""
        try:
            measured, coarser = noted["measured_on"], noted.get("coarsened")
            processor = Processor(
                str(measured["name"]), str(measured["architecture"]), tuple(map(str, measured["int8"]))
            )
            counts = None if coarser is None else Coarsened(**{name: int(value) for name, value in coarser.items()})
            return cls(processor, str(noted["promise"]), counts, bf16=_bf16_part(noted.get("bf16")))
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
            return None

    def __str__(self) -> str:
        bf16 = [] if self.bf16 is None else [str(self.bf16)]
        return "; ".join([f"measured on {self.measured_on}", self.statement, *bf16, *map(str, self.verified)])

    @property
    def statement(self) -> str:
        """Return the other processors on which the answers are the same."""
        if self.promise == "float":
            return "every op runs in float"
        if self.promise == "inherent":
            return "int8 sums are the same on every processor"
        if self.promise == "bounded":
            price = "" if self.coarsened is None else f" ({self.coarsened})"
            return f"portable: no int8 sum saturates on x86 processors without VNNI, for any input{price}"
        return "int8 sums may saturate on x86 processors without VNNI and change the score there"


def noted_portability(notes: PlainMapping, model_hash: str = "") -> Portability | None:
    """Return the portability of a run's best model from the notes of its history.

    Args:
        notes: of the history.
        model_hash: of the best model, so that what was verified of another one does not count for it.
    """
    portability, noted = Portability.from_dict(notes.get(NOTE)), notes.get(VERIFIED)
    if portability is None or not isinstance(noted, Mapping):
        return portability
    readable = [entry for entry in map(_verification, noted.values()) if entry is not None]
    return replace(portability, verified=tuple(entry for entry in readable if entry.model_hash == model_hash))


def _bf16_part(noted: Any) -> Bf16Part | None:
    if noted is None:
        return None
    figures = {
        name: None if noted.get(name) is None else float(noted[name])
        for name in ("latency", "fp32_latency", "error", "fp32_error")
    }
    return Bf16Part(int(noted["ops"]), str(noted["setting"]), **figures)


def _verification(noted: Any) -> Verification | None:
    try:
        return Verification(
            cpu=str(noted["cpu"]),
            samples=int(noted["samples"]),
            native_error=float(noted["native_error"]),
            emulated_error=float(noted["emulated_error"]),
            met=noted["met"] is True,
            model_hash=str(noted["model_hash"]),
        )
    except (KeyError, OverflowError, TypeError, ValueError):
        return None
