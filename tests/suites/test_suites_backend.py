"""ONNX's own backend suite: what quaver tunes computes what the suite expects, or is refused with a reason."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_a_sample_of_the_backend_suite_is_tuned_right_or_refused_with_a_reason() -> None:
    script = Path(__file__).parent / "backend_suite.py"
    done = subprocess.run(
        [sys.executable, script, "--sample"], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.stdout, done.stderr[-2000:]
    result = json.loads(done.stdout)
    assert result["wrong"] == []
    assert done.returncode == 0
    counts = result["counts"]
    assert sum(counts["pytorch-converted"].values()) == 82
    assert sum(counts["pytorch-operator"].values()) == 35
    assert sum(counts["simple"].values()) == 23
    assert counts["pytorch-converted"]["tuned"] >= 30
    assert counts["node"]["tuned"] >= 50
