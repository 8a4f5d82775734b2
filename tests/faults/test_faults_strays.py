"""A short run of what `make torture` does more often: whatever ends a process, the next start cleans up after it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from strays import WAYS, end_processes


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_after_sigterm_ctrl_c_twice_or_a_kill_the_next_start_leaves_no_stray_file(tmp_path: Path) -> None:
    strays = end_processes(tmp_path / "ended", 28, seed=14)
    assert strays.wrong == []
    assert all(strays.ended[way] >= 3 for way in WAYS)
    assert strays.met.total() >= 1  # there was something to clean up
