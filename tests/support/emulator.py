"""Tests that need an emulated processor: `make test` installs qemu-user where it may."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from quaver.adapters import load_unmodified
from quaver.engine.emulation import EMULATOR, EmulatedSession, emulator_command

needs_emulator = pytest.mark.skipif(shutil.which(EMULATOR) is None, reason="qemu-user is not installed")


def on_haswell(path: Path, feed: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """The outputs of a model on this processor, and on one that has AVX2 and no VNNI."""
    native = load_unmodified(str(path), 1)
    with closing(EmulatedSession(path, emulator_command("haswell"), native)) as session:
        assert "AVX2" in session.features and "AVX512VNNI" not in session.features
        outputs = native.run(feed)
        return outputs if isinstance(outputs, list) else [outputs], session.run(None, feed)
