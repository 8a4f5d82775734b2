"""Workers and drivers killed at random moments: nothing is lost, nothing comes twice, the end is the same."""

from __future__ import annotations

from pathlib import Path

from clusters import dask_cluster
from killed_workers import kill_driver, kill_workers


def test_workers_of_loky_killed_at_random_cost_nothing_but_time(tmp_path: Path) -> None:
    kills, wrong = kill_workers(tmp_path, 4, seed=1, n_jobs=3)
    assert not wrong and kills > 0


def test_workers_of_dask_killed_at_random_cost_nothing_but_time(tmp_path: Path) -> None:
    with dask_cluster(tmp_path / "dask") as address:
        kills, wrong = kill_workers(tmp_path, 3, seed=2, parents=True, backend="dask", scheduler=address)
    assert not wrong and kills > 0


def test_a_driver_killed_at_random_loses_nothing_and_takes_its_workers_with_it(tmp_path: Path) -> None:
    kills, wrong = kill_driver(tmp_path, 3, seed=3)
    assert not wrong and kills > 0
