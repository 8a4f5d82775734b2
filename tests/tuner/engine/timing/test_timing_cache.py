"""What models took on this machine is kept between runs, and is no more than a cache."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from networks import Closeness, chain, inputs

import quaver
from quaver.adapters import AdapterOptions, load_model
from quaver.demo.data import Accuracy, digits
from quaver.demo.run import MODEL as NETWORK
from quaver.engine.event_base import Stage
from quaver.engine.events import StageStarted, TimingsReused
from quaver.engine.timing import cache as timing_cache
from quaver.engine.timing import latency
from quaver.engine.timing.cache import TimingCache

MODEL = chain(6)


def test_times_of_a_network_with_tensors_between_ops_are_found_again(tmp_path: Path) -> None:
    train, _, images, labels = digits()
    given = {"calib_dataloader": train[:32], "eval_func": Accuracy(images, labels), "threads": 1, "max_trials": 1}
    hashes, asked = [], []
    for name in ("first", "second", "third"):
        events: list[Any] = []
        result = quaver.fit(NETWORK, workspace=tmp_path / name, observer=events.append, **given)
        hashes.append([trial.model_hash for trial in result.trials])
        asked.append(timed(events))
    assert asked == [True, False, False] and hashes[0] == hashes[1] == hashes[2]


def tune(workspace: Path, **settings: Any) -> tuple[quaver.TuneResult, list[Any]]:
    events: list[Any] = []
    result = quaver.fit(
        MODEL,
        calib_dataloader=inputs(),
        eval_func=Closeness(MODEL),
        threads=1,
        relative=0.05,
        workspace=workspace,
        observer=events.append,
        **settings,
    )
    return result, events


def timed(events: list[Any]) -> bool:
    return any(isinstance(event, StageStarted) and event.stage is Stage.TIMING for event in events)


def lying(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the machine makes each model take longer than the one before it."""
    measure = latency.measure

    def slower(models: Any, *arguments: Any, **keywords: Any) -> Any:
        taken = measure(models, *arguments, **keywords)
        return [latency.Latency(1.0 + index, 0.0, one.runs) for index, one in enumerate(taken)]

    monkeypatch.setattr(latency, "measure", slower)


def test_the_same_call_gives_the_same_model_whatever_the_machine_does_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, events = tune(tmp_path / "first")
    assert timed(events)
    lying(monkeypatch)
    second, events = tune(tmp_path / "second")
    assert not timed(events) and sum(isinstance(event, TimingsReused) for event in events) == 1
    assert second.best is not None and first.best is not None
    assert second.best.config == first.best.config
    assert Path(second.model_path).read_bytes() == Path(first.model_path).read_bytes()


def test_without_the_cache_times_are_measured_anew(tmp_path: Path) -> None:
    tune(tmp_path / "first")
    _, events = tune(tmp_path / "second", timing_cache=False)
    assert timed(events) and not any(isinstance(event, TimingsReused) for event in events)


def test_another_graph_has_times_of_its_own(tmp_path: Path) -> None:
    tune(tmp_path / "first")
    _, events = tune(tmp_path / "second", optimise_float=False)
    assert timed(events)


def test_another_batch_has_times_of_its_own() -> None:
    paths = []
    for batch in (1, 4):
        adapter = load_model(MODEL, AdapterOptions(batch=batch))
        adapter.keep_probe_samples([inputs(4)])
        paths.append(timing_cache.timing_cache(adapter)._path)
        adapter.close()
    assert len(set(paths)) == 2


@pytest.mark.parametrize("content", [b"", b"[1]", b'{"speed": 3}', b"{" * 100_000, b'{"speed": {"a": NaN}}', b"\xff"])
def test_a_file_that_is_none_of_ours_is_measured_over(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    cache = TimingCache(path)
    assert cache.get("time_model", "a") is None
    cache.put("speed", {"b": 0.5})
    assert TimingCache(path).get("speed", "b") == 0.5


@pytest.mark.parametrize("kept", ["fast", -1.0, 0.0, None, {}])
def test_figures_that_cannot_be_are_measured_over(tmp_path: Path, kept: Any) -> None:
    tune(tmp_path / "first")
    (path,) = Path(os.environ[timing_cache.FOLDER_VARIABLE]).glob("timings/*.json")
    known = json.loads(path.read_bytes())
    path.write_text(json.dumps({name: dict.fromkeys(part, kept) for name, part in known.items()}))
    result, events = tune(tmp_path / "second")
    assert timed(events) and result.met


def test_a_folder_that_cannot_be_written_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(timing_cache.FOLDER_VARIABLE, str(tmp_path / "file"))
    result, _ = tune(tmp_path / "w")
    assert result.met


def test_the_files_that_were_not_used_for_longest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing_cache, "MAX_MODELS", 2)
    for age, name in enumerate(("old", "older", "oldest")):
        TimingCache(tmp_path / f"{name}.json").put("speed", {"a": 1.0})
        os.utime(tmp_path / f"{name}.json", (1e9 - age, 1e9 - age))
    TimingCache(tmp_path / "new.json").put("speed", {"a": 1.0})
    assert {path.stem for path in tmp_path.glob("*.json")} == {"new", "old"}


def test_the_folder_is_where_the_system_keeps_such_things(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(timing_cache.FOLDER_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert timing_cache.cache_folder() == tmp_path / "quaver"
