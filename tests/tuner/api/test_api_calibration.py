"""The part of the calibration data that is used, and its report."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake import FakeAdapter, FakeFloat, quality

import quaver
from quaver.adapters import registry
from quaver.api.calibration import DEFAULT_SAMPLES
from quaver.engine.event_base import Event, Stage
from quaver.engine.events import CalibrationCut, Progressed

MODEL = FakeFloat({"a": 0.0, "b": 0.2})


@pytest.fixture(autouse=True)
def _fake_models_in_an_empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(registry, "adapters", lambda: {"fake": FakeAdapter})
    monkeypatch.chdir(tmp_path)


class Endless:
    """A loader that never ends. It counts what it gave."""

    def __init__(self, batch: int = 8) -> None:
        self.given, self._batch = 0, batch

    def __iter__(self) -> Iterator[Any]:
        while True:
            self.given += self._batch
            yield np.zeros((self._batch, 2), np.float32)


def fit(data: Any, **settings: Any) -> quaver.TuneResult:
    chosen = {"strategy": "basic", "objective": "size", "verbose": 0, **settings}
    return quaver.fit(MODEL, calib_dataloader=data, eval_func=quality, **chosen)


def test_an_endless_loader_is_read_to_the_default_limit_and_that_is_said() -> None:
    data = Endless()
    with pytest.warns(UserWarning, match=rf"first {DEFAULT_SAMPLES:,} samples: .*calibration_sampling_size sets"):
        result = fit(data, workspace="run")
    assert data.given == DEFAULT_SAMPLES
    assert f"calibrated on the first {DEFAULT_SAMPLES:,} samples" in (result.workspace / "quaver.log").read_text()


def test_observers_hear_of_progress_and_of_the_limit_and_then_nobody_warns() -> None:
    heard: list[Event] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(Endless(32), observer=heard.append)
    steps = [event.done for event in heard if isinstance(event, Progressed) and event.stage is Stage.CALIBRATING]
    assert steps[-1] == DEFAULT_SAMPLES and len(steps) >= DEFAULT_SAMPLES // 32
    (cut,) = [event for event in heard if isinstance(event, CalibrationCut)]
    assert cut.samples == DEFAULT_SAMPLES


@pytest.mark.parametrize("wanted", [40, 2 * DEFAULT_SAMPLES])
def test_a_number_that_is_given_is_kept_to_without_a_word(wanted: int) -> None:
    data = Endless()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(data, calibration_sampling_size=wanted)
    assert data.given == wanted


SAMPLES = np.zeros((DEFAULT_SAMPLES + 1, 2), np.float32)
FORMS = {
    "array": lambda samples: samples,
    "dict": lambda samples: {"x": samples},
    "samples": lambda samples: [*samples[:, None]],
    "one batch": lambda samples: [samples],
    "batches": lambda samples: [samples[:100], samples[100:]],
}


@pytest.mark.parametrize("form", FORMS)
def test_data_of_a_known_length_that_fits_is_used_as_a_whole_without_a_word(form: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(FORMS[form](SAMPLES[:-1]))
    with pytest.warns(UserWarning, match="calibrated on the first"):
        fit(FORMS[form](SAMPLES))
