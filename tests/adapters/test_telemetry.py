"""quaver's processes report nothing to the makers of a runtime, unless the user wants it so."""

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
    """What a process says that opens a model; its home folder is `home`."""
    support = str(Path(__file__).parents[1] / "support")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "ORT_"))}
    done = subprocess.run(
        [sys.executable, "-c", RUN, *words],
        env={**kept, "HOME": str(home), "PYTHONPATH": support, **switch},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_nothing_is_written_into_the_home_folder(tmp_path: Path) -> None:
    run(tmp_path, "quaver first")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(("switch", "said"), [({}, "off"), ({"ORT_DISABLE_TELEMETRY": "0"}, "")])
def test_a_runtime_that_was_loaded_before_is_told_so_unless_the_user_switched_it_on(
    switch: dict[str, str], said: str, tmp_path: Path
) -> None:
    assert run(tmp_path, "first", **switch) == said
