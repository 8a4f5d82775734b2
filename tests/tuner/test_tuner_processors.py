"""The processor that measured a verdict, and the report on others."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from quaver.processors import (
    NOTE,
    VERIFIED,
    Coarsened,
    Portability,
    Processor,
    Verification,
    noted_portability,
    this_processor,
)

XEON = Processor("Xeon", "x86_64", ("AVX512-VNNI", "AVX512", "AVX2"))
ZEN2 = Processor("Zen 2", "x86_64", ("AVX2",))


def test_this_processor_is_the_one_that_the_system_names() -> None:
    found = this_processor()
    assert found.architecture == platform.machine() and found.name
    info = Path("/proc/cpuinfo")
    if info.exists() and found.is_x86:
        flags = next(line for line in info.read_text().splitlines() if line.startswith("flags")).split()
        assert ("AVX2" in found.int8) == ("avx2" in flags)
        assert found.has_vnni == bool({"avx512_vnni", "avx_vnni", "amx_int8"} & set(flags))


def test_a_processor_is_named_with_what_decides_about_int8() -> None:
    assert str(XEON) == "Xeon (x86_64, AVX512-VNNI)" and XEON.has_vnni
    assert str(ZEN2) == "Zen 2 (x86_64, AVX2, no VNNI)" and not ZEN2.has_vnni
    assert str(Processor("Graviton", "aarch64", ("dot products",))) == "Graviton (aarch64, dot products)"
    assert str(Processor("something", "x86_64")) == "something (x86_64)"


def test_each_promise_is_said_in_a_sentence() -> None:
    bounded = Portability(XEON, "bounded", Coarsened(10, 9, 200, 50))
    assert str(bounded) == (
        "measured on Xeon (x86_64, AVX512-VNNI); portable: no int8 sum saturates on x86 processors without VNNI, for "
        "any input (25% of the channels of 10 int8 ops have coarser weights)"
    )
    assert "every op runs in float" in str(Portability(XEON, "float"))
    assert "int8 sums are the same on every processor" in str(Portability(ZEN2, "inherent"))
    assert "may saturate on x86 processors without VNNI and change the score there" in str(Portability(XEON, ""))


def test_what_was_noted_is_read_again_with_what_was_verified_of_this_model() -> None:
    portability = Portability(XEON, "bounded", Coarsened(10, 9, 200, 50))
    good = Verification("haswell", 64, 0.01, 0.0101, True, "abc")
    noted = json.loads(json.dumps(portability.to_dict()))
    notes: dict[str, Any] = {NOTE: noted, VERIFIED: {"haswell": asdict(good)}}
    found = noted_portability(notes, "abc")
    assert found is not None and found.verified == (good,) and found.coarsened == portability.coarsened
    assert "verified on haswell: relative output error 0.0101 there, 0.01 here (64 samples)" in str(found)
    assert noted_portability(notes, "another") == portability
    assert noted_portability({NOTE: noted}) == portability


@pytest.mark.parametrize(
    "noted",
    [
        None,
        3,
        "text",
        [],
        {},
        {"measured_on": 1},
        {"measured_on": {"name": "a", "architecture": "b", "int8": 3}, "promise": ""},
        {"measured_on": {"name": "a", "architecture": "b", "int8": []}, "promise": "", "coarsened": {"ops": 1}},
        {"measured_on": {"name": "a", "architecture": "b", "int8": []}, "promise": "", "coarsened": {"ops": 1e400}},
    ],
)
def test_a_note_of_anything_else_is_no_note(noted: Any) -> None:
    assert noted_portability({NOTE: noted}) is None
    fine = Portability(XEON, "").to_dict()
    assert noted_portability({NOTE: fine, VERIFIED: noted}) == Portability(XEON, "")
    assert noted_portability({NOTE: fine, VERIFIED: {"haswell": noted}}) == Portability(XEON, "")
