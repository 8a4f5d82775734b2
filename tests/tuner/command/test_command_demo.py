from __future__ import annotations

from pathlib import Path

from command_samples import quaver

import quaver as library


def test_the_demo_finds_the_op_that_int8_does_not_suit(tmp_path: Path) -> None:
    done = quaver(tmp_path, "demo", "--keep", "digits")
    assert done.returncode == 0, done.stdout + done.stderr
    snapshot = library.read_snapshot(tmp_path / "digits")
    assert snapshot.trials[0].met is False, "int8 alone must not be good enough, or there is no story"
    for number in range(1, len(snapshot.trials) + 1):
        assert f"  trial {number:<3} accuracy " in done.stdout
    assert "ops moved to fp32" in done.stdout and "x that of the median op" in done.stdout
    for part in ("accuracy", "file size", "latency", "best_model.onnx", "quaver history digits", "quaver recover"):
        assert part in done.stdout
    assert "quaver show digits " in done.stdout and "fp32   trial 1" in done.stdout
    tuned = quaver(
        tmp_path, "tune", "--model", "digits/digits_dscnn.onnx", "--calib", "digits/calib.npz",
        "--eval", "digits/eval_digits.py:accuracy", "--strategy", "basic",
    )  # fmt: skip
    assert tuned.returncode == 0, tuned.stderr
