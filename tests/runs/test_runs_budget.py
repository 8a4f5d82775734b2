"""Whole runs with a budget for the model instead of a criterion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import quaver
from quaver import Config, SettingsError, StopReason
from quaver.api.config.resolve import make_config
from quaver.command.main import main
from quaver.demo.data import Accuracy, digits
from quaver.engine.scoring.judge import judge_snapshot

DATA = Path(__file__).parents[1] / "data"
ENCODER, RESNET = DATA / "digits_encoder.onnx", DATA / "digits_resnet.onnx"
STRATEGIES = ("auto", "basic", "bayesian", "conservative", "exhaustive", "mse", "mse_v2", "random")


def tuned(folder: Path, model: Path = RESNET, eval_func: Any = None, **settings: Any) -> quaver.TuneResult:
    images, _, test, labels = digits()
    eval_func = eval_func or Accuracy(test, labels)
    settings = {
        "objective": "accuracy",
        "max_trials": 4,
        "report": False,
        "verbose": 0,
        "workspace": folder,
        **settings,
    }
    return quaver.fit(model, calib_dataloader=images[:64], eval_func=eval_func, **settings)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("model", [RESNET, ENCODER], ids=["resnet", "encoder"])
def test_every_strategy_keeps_a_budget_of_size(strategy: str, model: Path, tmp_path: Path) -> None:
    # From fp32 downwards it takes a few more.
    result = tuned(tmp_path / "run", model, strategy=strategy, max_size=0.6, max_trials=8)
    base = quaver.read_snapshot(result.history_path).baseline
    assert result.met and result.best is not None and base is not None
    assert result.best.model_size <= 0.6 * base.model_size
    within = [trial for trial in result.trials if trial.met]
    assert all(trial.model_size <= 0.6 * base.model_size for trial in within)
    assert result.best.loss == min(trial.loss for trial in within)
    assert "most accurate within the budget (size of at most 0.6 of fp32)" in str(result)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_runs_with_a_budget_of_latency_and_every_trial_is_measured(
    strategy: str, tmp_path: Path
) -> None:
    result = tuned(tmp_path / "run", ENCODER, strategy=strategy, max_latency=0.95)
    assert all("latency" in trial.measured for trial in result.trials)
    assert [trial.met for trial in result.trials] == [trial.measured["latency"] <= 0.95 for trial in result.trials]
    assert result.best is not None and result.met == any(trial.met for trial in result.trials)


def test_a_run_without_a_timeout_ends_where_nothing_is_lost_or_the_strategy_ends(tmp_path: Path) -> None:
    easy = tuned(tmp_path / "easy", max_size=0.9)
    assert easy.reason is StopReason.NOTHING_LOST and easy.best is not None and (easy.best.loss or 0) <= 0
    hard = tuned(tmp_path / "hard", eval_func=_size, strategy="mse", max_size=0.9, max_trials=30)
    assert hard.reason is StopReason.EXHAUSTED and hard.met and hard.best is not None
    assert hard.best.score == max(trial.score for trial in hard.trials if trial.met)
    assert len(hard.trials) > 2


def _size(model: Any) -> float:
    """A score that every op in int8 takes away from."""
    return float(model.size)


def test_a_budget_that_nothing_keeps_gives_the_nearest(tmp_path: Path) -> None:
    result = tuned(tmp_path / "run", max_size=0.01)
    assert not result.met and result.best is not None
    assert result.best.model_size == min(trial.model_size for trial in result.trials)
    assert "does NOT keep, the budget" in str(result)


def test_a_resumed_run_has_the_same_budget_and_the_snapshot_tells_the_same(tmp_path: Path) -> None:
    first = tuned(tmp_path / "run", ENCODER, strategy="mse", max_latency=0.9, max_trials=2)
    judged = judge_snapshot(quaver.read_snapshot(first.history_path))
    assert judged.criterion == first.criterion and judged.best == first.best
    images, _, test, labels = digits()
    again = quaver.fit(
        ENCODER,
        calib_dataloader=images[:64],
        eval_func=Accuracy(test, labels),
        resume=tmp_path / "run",
        max_trials=4,
        verbose=0,
    )
    assert again.criterion == first.criterion
    assert [trial.config for trial in again.trials[:2]] == [trial.config for trial in first.trials]
    with pytest.raises(SettingsError, match=r"max_latency.*pass calib_dataloader"):
        quaver.fit(ENCODER, eval_func=Accuracy(test, labels), resume=tmp_path / "run", max_trials=6, verbose=0)


def test_with_workers_every_trial_is_measured_too(tmp_path: Path) -> None:
    result = tuned(tmp_path / "run", ENCODER, strategy="mse", max_latency=0.95, max_trials=3, n_jobs=2)
    assert all("latency" in trial.measured for trial in result.trials)
    assert [trial.met for trial in result.trials] == [trial.measured["latency"] <= 0.95 for trial in result.trials]


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"objective": "accuracy"}, "within a budget: give `max_latency`, `max_size` or `max_bits`"),
        (
            {"max_latency": 0.6},
            "`max_latency` is a target budget for objective=\"accuracy\", but the objective is 'latency'",
        ),
        ({"max_size": 0.6, "objective": "size"}, "but the objective is 'size': pass one or the other"),
        ({"objective": "accuracy", "max_size": 0.5, "relative": 0.01}, "leave out `relative`"),
        ({"objective": "accuracy", "max_latency": 60}, "60 % is 0.6"),
    ],
)
def test_settings_that_do_not_go_together_are_named(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        make_config(settings)
    assert complaint in str(caught.value)


def test_a_budget_over_a_criterion_takes_its_place_and_the_other_way_round() -> None:
    file = {"relative": 0.02, "strategy": "mse"}
    config = make_config(file, objective="accuracy", max_latency=0.6)
    assert (config.relative, config.max_latency, config.strategy) == (None, 0.6, "mse")
    assert make_config(config, objective="size", relative=0.03) == Config(
        objective="size", relative=0.03, strategy="mse"
    )
    kept = yaml.safe_load(yaml.safe_dump(config.to_dict()))
    assert make_config(kept) == config


def test_the_command_line_says_what_was_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images, *_ = digits()
    import numpy as np

    np.save(tmp_path / "calib.npy", images[:64])
    (tmp_path / "my.py").write_text(
        "from quaver.demo.run import Accuracy, digits\naccuracy = Accuracy(*digits()[2:])\n", encoding="utf-8"
    )
    words = [
        "tune",
        "--model",
        str(RESNET),
        "--calib",
        str(tmp_path / "calib.npy"),
        "--eval",
        f"{tmp_path / 'my.py'}:accuracy",
    ]
    budget = ["--objective", "accuracy", "--max-size", "60%", "--no-report", "--quiet", "--max-trials", "2"]
    assert main([*words, *budget, "--workspace", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert "Budget kept: size of at most 0.6 of fp32" in said
    assert main(["history", str(tmp_path / "run")]) == 0
    assert "budget: size of at most 0.6 of fp32" in capsys.readouterr().out
