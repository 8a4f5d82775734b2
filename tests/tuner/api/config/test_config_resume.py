"""What a resumed run takes from the run before, and what it is told."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake import FakeAdapter, FakeFloat, quality

import quaver
from quaver import Config, Criterion, OpConfig, SettingsError, TuneResult
from quaver.adapters import registry
from quaver.api.config.resolve import resolve_settings
from quaver.api.config.resume import resumed_config
from quaver.engine.event_base import Event
from quaver.engine.events import SettingChanged
from quaver.strategies import registry as strategy_registry

EARLIER = Config(
    strategy="bayesian",
    strategy_options={"batch": 2},
    absolute=0.5,
    higher_is_better=False,
    timeout=60,
    max_trials=7,
    objective="size",
    seed=3,
    calibration_sampling_size=16,
    op_name_dict={"a": "fp32"},
    op_type_dict={"Conv": {"weight": {"granularity": ["per_tensor"]}}},
    quant_format="qoperator",
    threads=2,
    diagnosis=True,
    workspace="there",
    framework="onnx",
)


def resumed(given: Any = None, earlier: Config = EARLIER, **keywords: Any) -> tuple[Config, dict[str, tuple[Any, Any]]]:
    settings = resolve_settings(given, {"resume": "there", **keywords})
    config, changes = resumed_config(settings.explicit, earlier.to_dict())
    return config, {change.name: (change.before, change.now) for change in changes}


def test_a_resumed_run_keeps_its_settings() -> None:
    config, changes = resumed()
    assert config.to_dict() == {**EARLIER.to_dict(), "workspace": None, "resume": "there"}
    assert changes == {}


def test_passing_the_same_settings_changes_nothing() -> None:
    for given in (EARLIER, EARLIER.to_dict()):
        assert resumed(given)[1] == {}


@pytest.mark.parametrize("way", ["keyword", "dict", "file", "config"])
def test_a_changed_setting_takes_effect_and_is_reported(way: str, tmp_path: Path) -> None:
    (tmp_path / "conf.yaml").write_text("tuning: {exit_policy: {max_trials: 9}, random_seed: 3}")
    if way == "keyword":
        config, changes = resumed(max_trials=9, seed=3)
    else:
        given: Any = {"dict": {"max_trials": 9}, "file": tmp_path / "conf.yaml", "config": Config(max_trials=9)}[way]
        config, changes = resumed(given)
    assert (config.max_trials, config.objective, config.threads) == (9, "size", 2)
    assert changes == {"max_trials": (7, 9)}


def test_an_explicit_default_takes_effect_unless_it_is_in_a_config() -> None:
    assert resumed(max_trials=100)[1] == {"max_trials": (7, 100)}
    assert resumed({"max_trials": 100})[1] == {"max_trials": (7, 100)}
    assert resumed(Config(max_trials=100))[1] == {}


def test_relative_replaces_absolute_and_the_other_way_round() -> None:
    config, changes = resumed(relative=0.02)
    assert config.criterion == Criterion(0.02, None, higher_is_better=False)
    assert changes == {"relative": (None, 0.02), "absolute": (0.5, None)}
    assert resumed(Config(relative=0.02))[0].criterion == config.criterion
    config, changes = resumed(earlier=Config(relative=0.02), absolute=3.0)
    assert config.criterion == Criterion(None, 3.0)
    assert changes == {"relative": (0.02, None), "absolute": (None, 3.0)}


def test_a_new_strategy_does_not_inherit_options() -> None:
    config, changes = resumed(strategy="basic")
    assert (config.strategy, config.strategy_options) == ("basic", {})
    assert changes == {"strategy": ("bayesian", "basic"), "strategy_options": ({"batch": 2}, {})}
    assert resumed(strategy="bayesian")[0].strategy_options == {"batch": 2}
    assert resumed(strategy_options={"batch": 3})[1] == {"strategy_options": ({"batch": 2}, {"batch": 3})}


@pytest.mark.parametrize(("name", "value"), [("calibration_sampling_size", 32), ("quant_format", "qdq")])
def test_settings_that_trials_depend_on_cannot_change(name: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=f"`{name}` is {value!r}, but .* in the run that is resumed"):
        resumed(**{name: value})


def test_mistakes_are_named() -> None:
    with pytest.raises(SettingsError, match="unknown setting 'max_trails'; did you mean 'max_trials'"):
        resumed(max_trails=3)
    with pytest.raises(SettingsError, match="`max_trials` must be"):
        resumed(max_trials=0)


class Mine(quaver.Strategy):
    """A strategy of the user's, registered or not."""

    name = "mine"

    def propose(self, space: quaver.TuningSpace, probe: quaver.Probe) -> Any:
        yield space.default_config()


def small(model: Any) -> float:
    return float(model.size)


def test_a_custom_strategy_or_objective_has_to_be_passed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match=rf"the run used strategy '{__name__}\.Mine', pass it again"):
        resumed(earlier=Config(strategy=Mine))
    assert resumed(earlier=Config(strategy=Mine), strategy=Mine) == (Config(strategy=Mine, resume="there"), {})
    with pytest.raises(SettingsError, match=rf"the run used objective '{__name__}\.small@[0-9a-f]+', pass it again"):
        resumed(earlier=Config(objective=small))
    assert resumed(earlier=Config(objective=small), objective=small)[1] == {}
    monkeypatch.setitem(strategy_registry._registered, "mine", Mine)
    assert resumed(earlier=Config(strategy=Mine))[0].strategy == "mine"


def test_objects_in_options_have_to_be_passed_again_but_choices_in_rules_do_not() -> None:
    options = Config(strategy="bayesian", strategy_options={"batch": small})
    with pytest.raises(
        SettingsError, match=rf"of '{__name__}\.small' in `strategy_options` only the name was recorded"
    ):
        resumed(earlier=options)
    assert resumed(earlier=options, strategy_options={"batch": 2})[0].strategy_options == {"batch": 2}
    ruled = Config(op_name_dict={"a": OpConfig(quaver.INT8, "entropy")})
    assert resumed(earlier=ruled, op_name_dict={"a": OpConfig(quaver.INT8, "entropy")})[1] == {}


def test_settings_that_an_older_version_lacked_have_their_default() -> None:
    earlier = {"strategy": "basic", "relative": 0.9, "max_trials": 7}
    config, changes = resumed_config({"resume": "there"}, earlier)
    assert (config.relative, config.strategy, config.seed, changes) == (0.9, "basic", Config().seed, [])
    with pytest.raises(SettingsError, match=r"1 % is 0\.01"):
        resumed_config({"resume": "there", "relative": 1}, earlier)


@pytest.mark.parametrize("wrong", [{"strategy": ["x"]}, {"strategy": 5}, {"objective": {}}, {"max_trials": "7"},
                                   {"op_name_dict": [1]}, {"strategy_options": 3}])  # fmt: skip
def test_settings_of_a_wrong_type_in_a_history_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        resumed_config({"resume": "there"}, {**Config().to_dict(), **wrong})


Fit = Callable[..., TuneResult]
MODEL = FakeFloat({"a": 0.0, "b": 0.2, "c": 0.1})


@pytest.fixture
def fit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fit:
    """`quaver.fit` on a model that exists in name only, in an empty folder."""
    monkeypatch.setattr(registry, "adapters", lambda: {"fake": FakeAdapter})
    monkeypatch.chdir(tmp_path)

    def run(**settings: Any) -> TuneResult:
        return quaver.fit(MODEL, **{"calib_dataloader": np.zeros((4, 2), np.float32), "eval_func": quality, **settings})

    return run


def test_a_resumed_fit_continues_with_its_settings(fit: Fit) -> None:
    first = fit(workspace="here", strategy="basic", absolute=0.01, objective="size", max_trials=2, seed=3)
    with warnings.catch_warnings(action="error"):
        again = fit(resume="here", calib_dataloader=None)
    assert (again.trials, again.criterion, again.objective.name) == (first.trials, Criterion(None, 0.01), "size")
    assert "max_trials: 2" in Path("here/quaver.yaml").read_text()


def test_a_change_is_reported_once(fit: Fit, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    fit(workspace="here", strategy="basic", objective="size", max_trials=1)
    with pytest.warns(UserWarning, match="resumed run: max_trials is 2 from here on; it was 1") as said:
        fit(resume="here", max_trials=2, verbose=0)
    assert [Path(one.filename).name for one in said] == ["test_config_resume.py"]
    told: list[Event] = []
    with warnings.catch_warnings(action="error"):
        fit(resume="here", max_trials=3, observer=told.append)
    assert [(event.name, event.now) for event in told if isinstance(event, SettingChanged)] == [("max_trials", 3)]
    log = Path("here/quaver.log").read_text()
    assert log.count("max_trials is 2 from here on; it was 1") == 1 and log.count("max_trials is 3 from") == 1
    assert caplog.text == ""


def test_changed_versions_are_reported_and_recorded(fit: Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    fit(workspace="here", strategy="basic", objective="size", max_trials=1)
    monkeypatch.setattr(FakeAdapter, "versions", {"fake": "2"})
    told = "the version of fake is '2' from here on; it was '1'"
    with pytest.warns(UserWarning, match=f"resumed run: {told}"):
        fit(resume="here", verbose=0)
    assert told in Path("here/quaver.log").read_text()
    runs = quaver.read_snapshot("here").runs
    assert [run.versions["fake"] for run in runs] == ["1", "2"] and all(run.versions["quaver"] for run in runs)
    with warnings.catch_warnings(action="error"):
        fit(resume="here")


def test_a_relative_criterion_on_a_baseline_of_zero_is_refused_when_resuming(
    fit: Fit,
) -> None:
    fit(workspace="here", strategy="basic", absolute=0.5, objective="size", eval_func=lambda model: 0.0)
    with pytest.raises(SettingsError, match="the fp32 model scores 0, so a relative criterion has no meaning"):
        fit(resume="here", relative=0.01)
    assert fit(resume="here").met


def test_diagnosing_a_resumed_run_needs_samples(fit: Fit) -> None:
    fit(workspace="here", strategy="basic", objective="size", max_trials=1)
    with pytest.raises(SettingsError, match=r"diagnosis=True .* pass calib_dataloader, also to a resumed run"):
        fit(resume="here", diagnosis=True, calib_dataloader=None)


def test_paths_may_begin_with_a_tilde(fit: Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    result = fit(workspace="~/run", strategy="basic", objective="size", max_trials=1)
    assert result.workspace == tmp_path / "home" / "run"
    assert fit(resume="~/run").trials == fit(resume=Path("~/run/history.snapshot")).trials == result.trials
    assert result.save("~/saved.fake") == tmp_path / "home" / "saved.fake"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]
    assert quaver.recover(MODEL, "~/run", 1).sha256 == result.trials[0].model_hash
