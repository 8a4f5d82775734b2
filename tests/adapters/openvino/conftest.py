"""Makes the graphs beside the tests importable, and those of the ONNX Runtime adapter."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "onnxrt")]
