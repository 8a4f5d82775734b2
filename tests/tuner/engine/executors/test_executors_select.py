"""A backend is one module in the package of executors: nothing else names it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fake import FakeAdapter, FakeFloat, quality

import quaver
from quaver.adapters import registry
from quaver.engine import executors
from quaver.engine.executors.select import backends

MODULE = '''
"""Worker threads, as a backend of its own."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

from quaver.engine.executors.base import Backend, Pool


@contextlib.contextmanager
def open_threads(request):
    with ThreadPoolExecutor(2) as pool:
        yield Pool(pool, request.jobs or 2, request.threads)


BACKEND = Backend("my_threads", open_threads, ("ThreadingBackend",))
'''


@pytest.fixture
def _my_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "my_threads.py").write_text(MODULE)
    monkeypatch.setattr(executors, "__path__", [*executors.__path__, str(tmp_path)])
    backends.cache_clear()
    yield
    backends.cache_clear()


def test_the_backends_of_quaver_are_found() -> None:
    assert set(backends()) == {"dask", "loky", "ray"}


@pytest.mark.usefixtures("_my_threads")
def test_a_new_backend_is_one_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "adapters", lambda: {"fake": FakeAdapter})
    result = quaver.fit(
        FakeFloat({"a": 0.0, "b": 0.2}),
        calib_dataloader=np.zeros((4, 2), np.float32),
        eval_func=quality,
        strategy="basic",
        objective="size",
        backend="my_threads",
        n_jobs=2,
        workspace=tmp_path / "run",
        verbose=0,
    )
    assert result.met and all(trial.worker for trial in result.trials)


@pytest.mark.usefixtures("_my_threads")
def test_joblib_leads_to_a_new_backend(tmp_path: Path) -> None:
    import joblib

    from quaver.engine.executors.select import ExecutorSpec, open_pool

    with joblib.parallel_config("threading", n_jobs=3), open_pool(ExecutorSpec()) as pool:
        assert pool is not None and pool.jobs == 3


def test_an_unknown_backend_is_named_with_those_there_are() -> None:
    with pytest.raises(quaver.SettingsError, match=r"unknown backend 'rya'; did you mean 'ray'"):
        quaver.Config(backend="rya")
