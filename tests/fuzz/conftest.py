"""Graphs written line by line come from the tests of the ONNX adapter, so that these tests run alone, too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "adapters" / "onnxrt"))
