"""Several sizes of the calibration set are tried in turn."""

from __future__ import annotations

import pytest

import quaver
from quaver.demo.data import digits
from quaver.demo.run import MODEL
from quaver.history import read_snapshot


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


def test_the_first_that_meets_the_criterion_ends_it(tmp_path):
    assert fitted(tmp_path, lambda model: 1.0).met
    assert size(tmp_path / "run") == 8 and not (tmp_path / "run_40").exists()


def test_the_next_gets_a_run_of_its_own_if_the_first_does_not(tmp_path):
    """The fp32 model scores 1, the trial of the first size 0.5, that of the second 0.6."""
    scores = iter([1.0, 0.5, 1.0, 0.6])
    result = fitted(tmp_path, lambda model: next(scores))
    assert not result.met and result.best.score == 0.6 and result.workspace == tmp_path / "run_40"
    assert [size(tmp_path / name) for name in ("run", "run_40")] == [8, 40]


@pytest.mark.parametrize("wrong", [[0], [50, "x"], [], [True]])
def test_what_is_no_list_of_sizes_is_refused(wrong):
    with pytest.raises(quaver.SettingsError, match="calibration_sampling_size"):
        quaver.Config(calibration_sampling_size=wrong)


def test_others_take_the_largest():
    assert quaver.Config(calibration_sampling_size=[50, 100]).max_samples == 100
