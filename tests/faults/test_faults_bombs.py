"""Each bomb is refused, or read for what it is, in little memory and in less than a second, whatever opens it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import bombs

MEGABYTES = 200
SECONDS = 1.0  # of the processor, so that a busy machine does not matter


def test_no_bomb_takes_more_than_a_second_or_200_megabytes(tmp_path: Path) -> None:
    assert bombs.write_all(tmp_path) >= 40
    tests = Path(__file__).parents[1]
    paths = os.pathsep.join(str(tests / name) for name in ("faults", "history", "support"))
    done = subprocess.run(
        [sys.executable, "-m", "bombs", str(tmp_path), str(MEGABYTES), str(SECONDS)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one for one in told if one[2] not in ("refused", "read")] == []
    assert {name for name, *_ in told} >= {path.name for path in tmp_path.iterdir() if path.suffix == ".snapshot"}
    assert sum(became == "refused" for _, _, became, _ in told) > 150
