"""Whoever is asked, `fit`, `quaver history`, `diagnose` or a reader that follows the file, gives the same verdicts."""

from __future__ import annotations

import argparse
import json
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake import FakeAdapter, FakeFloat, FakeModel

import quaver
from quaver import TuneResult
from quaver.adapters import registry
from quaver.command import main
from quaver.command.verbs import diagnose
from quaver.engine.scoring.judge import Judge, judge_snapshot
from quaver.history import SnapshotReader
from quaver.insights import FollowedRun
from quaver.insights.data.summary import verdict

HISTORIES = 200
OPS = dict.fromkeys("abcdef", 0.01)
MODEL = FakeFloat(OPS, kinds={"e": "Gemm", "f": "Gemm"})
DATA = np.zeros((4, 2), np.float32)


def energy(model: Any) -> float:
    return float(len(model.SerializeToString()) + model.size)


def watts(model: Any) -> float:
    return -float(model.size)


def settings(rng: random.Random) -> dict[str, Any]:
    """Whatever a user may change from one run to the next."""
    wanted: dict[str, Any] = {
        "objective": rng.choice(["latency", "size", "int8_ops", energy, watts]),
        "strategy": rng.choice(["random", "basic", "mse"]),
        "timeout": rng.choice([0, 60]),
        "higher_is_better": rng.random() < 0.8,
        rng.choice(["relative", "absolute"]): rng.choice([0.0, 0.05, 0.2]),
        "op_name_dict": rng.choice([{}, {}, {"a": "fp32"}, {"[ab]": "fp32"}, {"c": "int8"}]),
        "op_type_dict": rng.choice([{}, {}, {"Gemm": "fp32"}]),
        "seed": rng.randrange(5),
    }
    # An objective of the user's own has to be passed again, so it is always said.
    return {name: value for name, value in wanted.items() if name == "objective" or rng.random() < 0.7}


def verdicts(judged: Judge | TuneResult) -> tuple[Any, Any, Any]:
    trials = {trial.number: (trial.loss, trial.met, dict(trial.measured)) for trial in judged.trials}
    return None if judged.best is None else judged.best.number, judged.met, trials


@pytest.mark.parametrize("part", range(8))
def test_all_who_judge_agree_on_random_histories_with_random_resumes(
    part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "adapters", lambda: {"fake": FakeAdapter})
    monkeypatch.setattr("quaver.engine.timing.latency.MIN_ROUNDS", 1)
    monkeypatch.setattr("quaver.engine.timing.latency.MAX_ROUNDS", 1)
    for number in range(part, HISTORIES, 8):
        rng = random.Random(number)
        folder = tmp_path / str(number)
        chance = random.Random(number)

        def score(model: FakeModel, chance: random.Random = chance) -> float:
            if model.config is not None and chance.random() < 0.1:
                raise ConnectionError("gone for a moment")
            return 1.0 if model.config is None else round(chance.uniform(0.7, 1.1), 3)

        def confirm(model: FakeModel, chance: random.Random = chance) -> float:
            return 1.0 if model.config is None else chance.choice([1.0, 0.3])

        reader, page = None, FollowedRun(folder)
        for run in range(rng.randint(1, 4)):
            where: dict[str, Any] = {"resume": folder} if run else {"workspace": folder}
            with warnings.catch_warnings(action="ignore"):  # changed settings are reported
                result = quaver.fit(
                    MODEL, calib_dataloader=DATA, eval_func=score, max_trials=3 * (run + 1), report=False,
                    confirm=rng.choice([None, confirm]), confirm_tries=rng.choice([1, 2, 5]), **settings(rng), **where,
                )  # fmt: skip
            reader = reader or SnapshotReader(result.history_path)
            followed = reader.poll()
            assert followed is not None
            expected = verdicts(result)
            assert verdicts(judge_snapshot(quaver.read_snapshot(folder))) == expected
            assert verdicts(judge_snapshot(followed)) == expected
            assert main.main(["history", str(folder), "--json"]) == 0
            told = json.loads(capsys.readouterr().out)
            listed = {trial["number"]: (trial["loss"], trial["met"], trial["measured"]) for trial in told["trials"]}
            assert (told["best"], told["met"], listed) == expected
            assert told["warnings"] == list(result.warnings)
            data = page.poll()
            assert data is not None and verdicts(data.judge) == expected
            said = verdict(data)
            assert said.warnings == result.warnings and (said.kind in ("met", "warned")) <= bool(result.met)
            if result.best is not None:
                asked = argparse.Namespace(history=str(folder), trial=None)
                assert diagnose._trial(asked).number == result.best.number
