"""ONNX Runtime reports nothing to its makers unless the user allows it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
import sys
if sys.argv[1] == "first":
    import onnxruntime as ort
    ort.disable_telemetry_events = lambda: print("off")
import quaver
from networks import chain
quaver.adapters.load_model(chain(2), quaver.adapters.AdapterOptions()).build(None)
"""


def run(home: Path, *words: str, **switch: str) -> str:
    """Return the output of a process that loads a model, with `home` as its home folder."""
    support = str(Path(__file__).parents[2] / "support")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "ORT_"))}
    done = subprocess.run(
        [sys.executable, "-c", RUN, *words],
        env={
            **variables,
            "HOME": str(home),
            "PYTHONPATH": os.pathsep.join([support, *filter(None, [os.environ.get("PYTHONPATH")])]),
            **switch,
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_nothing_is_written_into_the_home_folder(tmp_path: Path) -> None:
    run(tmp_path, "quaver first")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(("switch", "output"), [({}, "off"), ({"ORT_DISABLE_TELEMETRY": "0"}, "")])
def test_telemetry_is_switched_off_in_a_runtime_that_was_loaded_before(
    switch: dict[str, str], output: str, tmp_path: Path
) -> None:
    assert run(tmp_path, "first", **switch) == output
