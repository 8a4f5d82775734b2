"""Tests find the networks beside them, what runs the pages, and the benchmarks, whose ResNet they tune."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "docs"), str(HERE.parents[1])]
