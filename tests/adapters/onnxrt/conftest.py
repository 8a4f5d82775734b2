"""Makes the helpers of this folder importable from the tests in its subfolders."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER), str(FOLDER / "optimize")]
