"""Eleven kinds of damage in two architectures: the cause is named, or the damage does not matter in int8."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import planted_damage as planted
import pytest

# Planted where it does no damage: the op stays in float, or its constant becomes a part of a bias.
WITHOUT_EFFECT = {("conv", "mask constant"), ("matmul", "mask constant"), ("matmul", "saturating activation")}
# In dB: measured are 39, 43 and 44, which is an error of 1/8000 of the power of an op's output.
MIN_SQNR = 35.0


@pytest.mark.parametrize("name", planted.CASES)
@pytest.mark.parametrize("architecture", planted.ARCHITECTURES)
def test_the_cause_is_named(architecture: str, name: str, tmp_path: Path) -> None:
    case = planted.CASES[name](planted.Architecture(architecture))
    diagnosis = planted.diagnosed(case, tmp_path)
    if (architecture, name) in WITHOUT_EFFECT:
        assert not diagnosis.causes
        assert min(row.cumulative["sqnr"] for row in diagnosis.layers if row.precision == "int8") > MIN_SQNR
    else:
        assert planted.is_named(case, diagnosis), [str(cause) for cause in diagnosis.causes]


@pytest.mark.parametrize("architecture", planted.ARCHITECTURES)
def test_without_damage_no_cause_is_named(architecture: str, tmp_path: Path) -> None:
    clean = planted.Architecture(architecture)
    case = planted.Case(clean.chain(), np.float32(clean.images()), "", (), "")
    assert not planted.diagnosed(case, tmp_path).causes
