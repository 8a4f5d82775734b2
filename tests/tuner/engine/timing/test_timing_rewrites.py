"""A rewrite of the float graph that makes the model slower on this machine is left out, once and everywhere."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path
from typing import Any

import onnx
import pytest
from networks import Closeness, chain, inputs

import quaver
from quaver.adapters import AdapterOptions, load_model
from quaver.adapters.onnxrt.load.graph import Graph
from quaver.adapters.onnxrt.optimize import pipeline
from quaver.engine.timing import rewrites
from quaver.engine.timing.cache import TimingCache
from quaver.engine.timing.latency import Latency
from quaver.engine.timing.rewrites import slow_rewrites

MODEL = chain(2)
# Each copies the tensor: together they take several times as long as the model.
COPIES = 150


@pytest.fixture
def slow_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """One rewrite adds ops that change nothing and take their time."""

    def add_copies(graph: Graph) -> int:
        nodes = []
        for node in graph.nodes:
            name = node.input[0]
            if node is graph.nodes[-1]:
                for number in range(COPIES):
                    nodes.append(onnx.helper.make_node("Max", [name], [f"copy_{number}"], name=f"copy_{number}"))
                    name = f"copy_{number}"
                node.input[0] = name
            nodes.append(node)
        graph.nodes = nodes
        graph.index()
        return COPIES

    monkeypatch.setattr(pipeline, "flush_denormals", add_copies)


def tuned(**settings: Any) -> quaver.TuneResult:
    return quaver.fit(
        MODEL,
        calib_dataloader=inputs(),
        eval_func=Closeness(MODEL),
        threads=1,
        max_trials=1,
        verbose=0,
        **settings,
    )


def test_the_run_records_it_and_every_model_is_built_without_it(slow_pipeline: None, tmp_path: Path) -> None:
    result = tuned(workspace=tmp_path / "run")
    assert result.comparison is not None
    assert result.comparison.slow == ("denormal weights",) and not result.comparison.left_out
    assert "left out, because it is slower with them: denormal weights" in str(result)
    assert result.best is not None and result.model_path is not None
    model = quaver.recover(MODEL, result.history_path, result.best.number)
    assert model.SerializeToString() == result.model_path.read_bytes()
    assert not any(node.name.startswith("copy") for node in onnx.load(result.model_path).graph.node)
    assert tuned(resume=str(result.history_path)).comparison == result.comparison


def test_the_cache_gives_the_answer_of_an_earlier_run(
    slow_pipeline: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = TimingCache(tmp_path / "times.json")
    answers: list[tuple[str, ...]] = []

    def asked(adapter: Any) -> tuple[str, ...]:
        answers.append(slow_rewrites(adapter, cache))
        return answers[-1]

    with contextlib.closing(load_model(MODEL, AdapterOptions(threads=1))) as adapter:
        adapter.calibrate(inputs(), slow_rewrites=asked)
        assert adapter.options.left_out == ("denormal weights",)
    monkeypatch.setattr(rewrites, "measure", lambda *_: pytest.fail("measured again"))
    with contextlib.closing(load_model(MODEL, AdapterOptions(threads=1))) as adapter:
        adapter.calibrate(inputs(), slow_rewrites=asked)
    assert answers == [("denormal weights",)] * 2


@pytest.mark.parametrize(
    ("given", "tuned", "without", "expected"),
    [
        (1.0, 1.0, [], ()),
        (1.0, 1.04, [], ()),
        (1.0, 2.0, [(2.0, 0.5), (1.0, 1.5)], ()),
        (1.0, 2.0, [(2.0, 0.5), (1.0, 0.5)], ("denormal weights",)),
        (1.0, 2.0, [(2.0, 1.5), (1.0, 1.9)], ("denormal weights",)),
        (1.0, 2.0, [(2.0, 1.5), (2.0, 1.5), (2.0, 1.5), (1.0, 1.2)], ("denormal weights",)),
    ],
    ids=["as fast", "a tie", "int8 needs it", "int8 does not need it", "fp32 is fastest", "all together"],
)
def test_the_decision_follows_the_times(
    given: float,
    tuned: float,
    without: list[tuple[float, float]],
    expected: tuple[str, ...],
    slow_pipeline: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`without` holds the seconds in fp32 and in int8 of the model as it is and without one rewrite, pair by pair."""
    compared = [[*without[at], *without[at + 1]] for at in range(0, len(without), 2)]
    measured: list[Any] = []  # the first model of each comparison, which is measured several times

    def measure(models: list[Any], *_: Any) -> list[Latency]:
        if len(models) == 4 and all(models[0] is not model for model in measured):
            measured.append(models[0])
        seconds = [given, tuned] if len(models) == 2 else compared[min(len(measured), len(compared)) - 1]
        return [Latency(each, 0.0, 10) for each in seconds]

    with contextlib.closing(load_model(MODEL, AdapterOptions(threads=1))) as adapter:
        assert [name for name, _ in adapter.rewrites] == ["denormal weights"]
        monkeypatch.setattr(rewrites, "measure", measure)
        adapter.keep_probe_samples(inputs())
        assert slow_rewrites(adapter) == expected


@pytest.mark.parametrize("unsteady", ["as given", "without the rewrite"])
def test_a_rewrite_stays_if_one_of_several_measurements_does_not_find_it_slow(
    unsteady: str, slow_pipeline: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = iter([2.0, 2.0, *([1.04] if unsteady == "as given" else [2.0, 2.0])])
    compared = itertools.chain([[2.0, 0.5, 1.0, 0.5]], itertools.repeat([2.0, 0.5, 1.96, 0.5]))

    def measure(models: list[Any], *_: Any) -> list[Latency]:
        return [Latency(each, 0.0, 10) for each in ([1.0, next(given)] if len(models) == 2 else next(compared))]

    with contextlib.closing(load_model(MODEL, AdapterOptions(threads=1))) as adapter:
        monkeypatch.setattr(rewrites, "measure", measure)
        adapter.keep_probe_samples(inputs())
        assert slow_rewrites(adapter) == ()
    assert next(given, None) is None
