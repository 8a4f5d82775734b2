"""`fit` resolves its settings once, and tries several calibration sizes in order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import quaver
from quaver.api.config import load
from quaver.demo.data import digits
from quaver.demo.run import MODEL
from quaver.history import read_snapshot


@pytest.mark.parametrize("sizes", ["8", "[8, 16]"])
def test_a_yaml_file_is_read_once_per_fit(sizes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text(f"quantization: {{calibration: {{sampling_size: {sizes}}}}}\ntuning: {{report: false}}")
    read: list[Path] = []
    load_yaml = load.load_yaml

    def counting(file: Path) -> Any:
        read.append(file)
        return load_yaml(file)

    monkeypatch.setattr(load, "load_yaml", counting)
    images = np.random.default_rng(0).random((16, 1, 8, 8), dtype=np.float32)
    quaver.fit(
        MODEL, path, calib_dataloader=images, eval_func=lambda model: 1.0, workspace=tmp_path / "run", max_trials=1,
        timing_cache=False, verbose=0,
    )  # fmt: skip
    assert read == [path]


def fitted(tmp_path, eval_func):
    train = digits()[0]
    return quaver.fit(
        MODEL,
        calib_dataloader=(train[at : at + 8] for at in range(0, 64, 8)),
        eval_func=eval_func,
        calibration_sampling_size=[8, 40],
        strategy="basic",
        objective="size",
        max_trials=1,
        workspace=tmp_path / "run",
        verbose=0,
    )


def size(folder):
    return read_snapshot(folder).run.settings["calibration_sampling_size"]


def test_the_first_calibration_size_that_meets_the_criterion_is_the_last(tmp_path):
    assert fitted(tmp_path, lambda model: 1.0).met
    assert size(tmp_path / "run") == 8 and not (tmp_path / "run_40").exists()


def test_the_next_calibration_size_gets_its_own_run(tmp_path):
    """The fp32 model scores 1, the trial of the first size 0.5, that of the second 0.6."""
    scores = iter([1.0, 0.5, 1.0, 0.6])
    result = fitted(tmp_path, lambda model: next(scores))
    assert not result.met and result.best.score == 0.6 and result.workspace == tmp_path / "run_40"
    assert [size(tmp_path / name) for name in ("run", "run_40")] == [8, 40]


@pytest.mark.parametrize("wrong", [[0], [50, "x"], [], [True]])
def test_a_wrong_list_of_calibration_sizes_is_refused(wrong):
    with pytest.raises(quaver.SettingsError, match="calibration_sampling_size"):
        quaver.Config(calibration_sampling_size=wrong)


def test_calls_other_than_fit_use_the_largest_calibration_size():
    assert quaver.Config(calibration_sampling_size=[50, 100]).max_samples == 100
