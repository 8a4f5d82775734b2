"""One settings object, whether it comes from keywords, a dict or a YAML file."""

from __future__ import annotations

import functools
import re
import time
import typing
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from fake import FakeFloat

import quaver
from quaver import FP32, INT8, Config, Criterion, OpConfig, Probe, SettingsError, Strategy, TuningSpace
from quaver.api.config.keywords import Settings
from quaver.api.config.layout import YAML_LAYOUT
from quaver.api.config.resolve import make_config
from quaver.engine.timing.objective import Objective, Size
from quaver.rules import apply_rules
from quaver.strategies import Basic, registry
from quaver.trial import Trial

LAYOUT = """
version: 1.0

model:
  name: cnn
  framework: onnxruntime

quantization:
  calibration:
    sampling_size: 160 # number of samples for calibration

tuning:
  strategy:
    name: basic
  accuracy_criterion:
    relative: 0.02
  exit_policy:
    timeout: 0
    max_trials: 500
  random_seed: 9527
"""


@pytest.fixture
def written(tmp_path: Path) -> Any:
    """A function that writes a YAML file and returns its path."""

    def write(text: str) -> Path:
        path = tmp_path / "conf.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_the_defaults_are_one_percent_and_a_stop_at_the_first_success() -> None:
    config = make_config(None)
    assert config == Config()
    assert (config.criterion, config.timeout, config.max_trials) == (Criterion(0.01), 0, 100)


def test_the_yaml_layout_of_the_walk_through_is_read(written: Any) -> None:
    expected = Config(
        strategy="basic",
        relative=0.02,
        max_trials=500,
        seed=9527,
        calibration_sampling_size=160,
        framework="onnxruntime",
    )
    assert make_config(written(LAYOUT)) == expected
    assert make_config(str(written(LAYOUT))) == expected
    assert make_config(yaml.safe_load(LAYOUT)) == expected


def test_keywords_override_a_file_a_dict_and_a_config(written: Any) -> None:
    for given in (written(LAYOUT), {"relative": 0.02, "strategy": "basic"}, Config(relative=0.02, strategy="basic")):
        config = make_config(given, relative=0.05, max_trials=7)
        assert (config.relative, config.max_trials, config.strategy) == (0.05, 7, "basic")


def test_a_relative_criterion_replaces_an_absolute_one_and_the_other_way_round(written: Any) -> None:
    absolute = make_config(written(LAYOUT), absolute=0.5)
    assert absolute.criterion == Criterion(None, 0.5)
    assert make_config(absolute, relative=0.03).criterion == Criterion(0.03)
    assert make_config({"absolute": 0.5}).criterion == Criterion(None, 0.5)
    with pytest.raises(SettingsError, match="one of the two"):
        make_config(None, relative=0.01, absolute=0.5)


def test_every_key_of_the_layout_is_a_setting() -> None:
    known = set(Config.__dataclass_fields__)
    assert {name for name in YAML_LAYOUT.values() if name is not None} == known


def test_settings_by_name_work_in_a_dict_and_in_a_file(written: Any) -> None:
    assert make_config({"strategy": "basic", "timeout": 60}) == Config(strategy="basic", timeout=60)
    assert make_config(written("strategy: basic\ntimeout: 60")) == Config(strategy="basic", timeout=60)


def test_recorded_settings_can_be_used_for_another_run(written: Any) -> None:
    config = Config(strategy="basic", absolute=0.5, op_type_dict={"Conv": ["fp32"]}, workspace="here")
    assert make_config(written(yaml.safe_dump(config.to_dict()))) == config


def test_rules_and_options_keep_their_own_keys(written: Any) -> None:
    config = make_config(
        written(
            """
            quantization:
              op_name_dict: {"/layer.*MatMul": {activation: {dtype: [fp32]}}}
              op_type_dict: {Conv: int8}
            tuning:
              strategy: {name: basic, options: {depth: 3}}
            """
        )
    )
    assert config.op_name_dict == {"/layer.*MatMul": {"activation": {"dtype": ["fp32"]}}}
    assert (config.op_type_dict, config.strategy_options) == ({"Conv": "int8"}, {"depth": 3})


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n", "tuning:\n", "tuning: {exit_policy: }\nmodel:\n"])
def test_an_empty_file_or_section_changes_nothing(written: Any, text: str) -> None:
    assert make_config(written(text)) == Config()


@pytest.mark.parametrize("number", ["0.01", "1e-2", "1.0e-2", "1E-2", "+1e-2", ".1e-1"])
def test_numbers_may_be_written_in_scientific_notation(written: Any, number: str) -> None:
    assert make_config(written(f"tuning: {{accuracy_criterion: {{relative: {number}}}}}")).relative == 0.01


def test_a_list_of_sampling_sizes_stays_a_list() -> None:
    config = make_config({"quantization": {"calibration": {"sampling_size": [50, 160]}}})
    assert config.calibration_sampling_size == (50, 160) and config.max_samples == 160


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("tunning: {}", "unknown key 'tunning'; did you mean 'tuning'?"),
        ("tuning: {exit_policy: {max_trails: 3}}",
         "unknown key 'tuning.exit_policy.max_trails'; did you mean 'tuning.exit_policy.max_trials'?"),
        ("tuning: {accuracy_criteria: {relative: 0.1}}",
         "unknown key 'tuning.accuracy_criteria'; did you mean 'tuning.accuracy_criterion'?"),
        ("quantization: {calibration: {sample_size: 3}}",
         "did you mean 'quantization.calibration.sampling_size'?"),
        ("tuning: {max_trials: 3}", "unknown key 'tuning.max_trials'; did you mean 'tuning.exit_policy.max_trials'?"),
        ("tuning: {}\nrelative: 0.1", "unknown key 'relative'; did you mean 'tuning.accuracy_criterion.relative'?"),
        ("max_trails: 3", "unknown key 'max_trails'; did you mean 'tuning.exit_policy.max_trials'?"),
        ("tuning: {sampling_size: 3}", "did you mean 'quantization.calibration.sampling_size'?"),
        ("timeout: 3\nmax_trails: 3", "unknown setting 'max_trails'; did you mean 'max_trials'"),
        ("evaluation: {}", "unknown key 'evaluation'; known are: 'version', 'model', 'quantization', 'tuning'"),
        ("5: 3", "unknown key '5'"),
        ("null: 3", "unknown key 'None'"),
    ],
)  # fmt: skip
def test_the_error_for_an_unknown_key_suggests_the_nearest_at_its_level(
    written: Any, text: str, complaint: str
) -> None:
    path = written(text)
    with pytest.raises(SettingsError) as caught:
        make_config(path)
    assert str(caught.value).startswith(f"{path}: ") and complaint in str(caught.value)


def test_the_error_for_an_unknown_keyword_suggests_the_nearest() -> None:
    with pytest.raises(SettingsError, match="unknown setting 'max_trails'; did you mean 'max_trials'"):
        make_config(None, max_trails=3)
    with pytest.raises(SettingsError, match="the configuration: unknown setting 'max_trails'; did you mean"):
        make_config({"relative": 0.1, "max_trails": 3})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("tuning: 5", "'tuning' must hold keys (accuracy_criterion, strategy, exit_policy, workers"),
        ("tuning: {strategy: basic}", "'tuning.strategy' must hold keys (name, options), not 'basic'"),
        ("tuning: {strategy: {name: {first: basic}}}", "'tuning.strategy.name' takes a value, not a mapping"),
        ("- tuning\n- model", "must hold a mapping (version, model, quantization, tuning), not ['tuning', 'model']"),
        ("just words", "must hold a mapping"),
        ("tuning: [", "is not valid YAML"),
        ("tuning: {a: 1", "is not valid YAML"),
        ("version: 2020-13-45", "is not valid YAML: month must be in 1..12"),
        ("version: !!bool x", "is not valid YAML"),
        ("version: !!timestamp x", "is not valid YAML"),
        ("? [a]\n: 3", "is not valid YAML"),
        ("model:\n\tname: x", "is not valid YAML"),
        ("version: \x00", "is not valid YAML"),
    ],
)
def test_a_file_with_a_wrong_structure_is_refused_with_the_reason(written: Any, text: str, complaint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        make_config(written(text))
    assert complaint in str(caught.value) and len(str(caught.value)) < 500


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"cannot read the configuration .*nowhere.yaml': No such file"):
        make_config(tmp_path / "nowhere.yaml")
    with pytest.raises(SettingsError, match=r"the configuration must be a regular file, and .* is a folder"):
        make_config(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(SettingsError, match="is not valid YAML"):
        make_config(tmp_path / "binary")


@pytest.mark.parametrize("given", [5, [1], 0.01, {1, 2}, object()])
def test_a_configuration_of_another_type_is_refused(given: Any) -> None:
    with pytest.raises(SettingsError, match=r"a configuration is a YAML file, a dict or a quaver\.Config, not"):
        make_config(given)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("relative", "0.01"),
        ("relative", -1),
        ("absolute", [1]),
        ("higher_is_better", "no"),
        ("higher_is_better", 1),
        ("timeout", "60"),
        ("timeout", -1),
        ("max_trials", 0),
        ("max_trials", 2.5),
        ("seed", -1),
        ("seed", "9527"),
        ("threads", -1),
        ("threads", True),
        ("batch", 0),
        ("batch", True),
        ("batch", 1.5),
        ("calibration_sampling_size", 0),
        ("calibration_sampling_size", "160"),
        ("calibration_sampling_size", []),
        ("calibration_sampling_size", [50, "160"]),
        ("op_name_dict", ["Conv"]),
        ("op_type_dict", "Conv"),
        ("strategy_options", [1]),
        ("quant_format", 8),
        ("workspace", 5),
        ("workspace", ""),
        ("workspace", b"folder"),
        ("resume", ["a"]),
        ("framework", 5),
    ],
)
def test_the_error_for_a_wrong_value_names_its_setting(name: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=f"{name}.*{re.escape(repr(value))}"):
        make_config(None, **{name: value})


def test_workspace_and_resume_exclude_each_other() -> None:
    with pytest.raises(SettingsError, match="`workspace` for a new run or `resume` for an earlier one"):
        make_config(None, workspace="a", resume="b")


def test_settings_are_recorded_as_builtins() -> None:
    config = Config(
        relative=np.float64(0.02),
        workspace=Path("a") / "b",
        op_name_dict={"x": {"activation": {"dtype": ("fp32",)}}, "y": OpConfig(INT8, "entropy"), "z": FP32},
        strategy_options={"by": {1: np.arange(2)}, "kinds": {"b", "a"}, "share": np.float32(0.5), "raw": b"x"},
    )
    plain = config.to_dict()
    assert plain["workspace"] == str(Path("a", "b"))
    assert plain["op_name_dict"] == {
        "x": {"activation": {"dtype": ["fp32"]}},
        "y": {
            "activation": {"dtype": ["int8"], "algorithm": ["entropy"], "scheme": ["asym"], "mode": ["static"]},
            "weight": {"granularity": ["per_channel"]},
        },
        "z": "fp32",
    }
    assert plain["strategy_options"] == {"by": {1: [0, 1]}, "kinds": ["a", "b"], "share": 0.5, "raw": b"x"}
    assert {type(plain[name]) for name in ("relative", "timeout")} == {float}
    assert yaml.safe_load(yaml.safe_dump(plain)) == plain


def test_a_choice_recorded_as_a_rule_allows_the_same() -> None:
    ops = FakeFloat({"a": 0.0}).ops
    for choice in ops[0].choices:
        kept = Config(op_name_dict={"a": choice}).to_dict()["op_name_dict"]
        assert apply_rules(ops, kept) == apply_rules(ops, {"a": choice})


class Sized(Objective):
    name = "size"

    def value(self, trial: Trial) -> float:
        return trial.model_size


class Options(Strategy):
    """It can be made in several ways, of which its name would say nothing."""

    name = "options"

    def __init__(self, token: str = "") -> None:
        self.token = token

    def __repr__(self) -> str:
        return self.token

    def propose(self, space: TuningSpace, probe: Probe) -> Any:
        yield space.default_config()


def test_strategies_and_objectives_are_recorded_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._registered, "options", Options)
    here = __name__
    for strategy, name in [
        ("basic", "basic"),
        (Basic, "basic"),
        (Basic(), "basic"),
        (Options, "options"),
        (Options("secret"), f"{here}.Options"),
    ]:
        assert Config(strategy=strategy).to_dict()["strategy"] == name  # type: ignore[arg-type]
    for objective, name in [
        ("size", "size"),
        (Size, "size"),
        (Size(), "size"),
        (Sized, f"{here}.Sized"),
        (len, "builtins.len"),
        (lambda model: 0.0, f"{here}.test_strategies_and_objectives_are_recorded_by_name.<locals>.<lambda>"),
    ]:
        assert Config(objective=objective).to_dict()["objective"].split("@")[0] == name


def test_no_repr_of_an_object_is_recorded_or_shown() -> None:
    config = Config(
        strategy=Options("secret"),
        objective=functools.partial(round, ndigits=3),
        strategy_options={"x": Options("secret")},
    )
    assert "secret" not in repr(config) + str(config.to_dict())
    assert config.to_dict()["objective"] == "builtins.round"


def test_an_object_that_was_recorded_by_name_has_to_be_passed_again(written: Any) -> None:
    kept = Config(strategy_options={"scores": [len]}).to_dict()
    with pytest.raises(
        SettingsError, match=r"of 'builtins\.len' in `strategy_options` only the name was recorded: pass"
    ):
        make_config(written(yaml.safe_dump(kept)))


def test_the_repr_of_a_config_shows_changed_settings() -> None:
    assert repr(Config()) == "Config()"
    assert repr(Config(strategy="basic", absolute=0.5)) == "Config(absolute=0.5, strategy='basic')"


@pytest.mark.parametrize("relative", [0.5, 1, 1.0, 2, 100])
def test_a_loss_of_half_the_score_needs_allow_any_loss(relative: float) -> None:
    with pytest.raises(
        SettingsError, match=r"would allow a loss of \d+% of the fp32 score; 1 % is 0\.01\. Pass `allow_any_loss"
    ):
        make_config(None, relative=relative)
    assert make_config(None, relative=relative, allow_any_loss=True).criterion == Criterion(relative)
    assert make_config(None, relative=0.49).relative == 0.49


def test_a_new_strategy_drops_the_options_of_the_other(written: Any) -> None:
    path = written("tuning: {strategy: {name: bayesian, options: {batch: 2}}}")
    assert make_config(path, strategy="basic").strategy_options == {}
    assert make_config(path, strategy="bayesian").strategy_options == {"batch": 2}
    assert make_config(path, strategy="mse_v2", strategy_options={"candidates": 3}).strategy_options == {
        "candidates": 3
    }


def test_workspace_replaces_resume_of_a_file_and_the_other_way_round(written: Any) -> None:
    assert make_config(written("workspace: a"), resume="b").workspace is None
    assert make_config(written("resume: a"), workspace="b").resume is None


def test_a_file_in_the_home_folder_is_found(written: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    written("seed: 7")
    assert make_config("~/conf.yaml").seed == make_config(Path("~") / "conf.yaml").seed == 7


def test_the_typed_keywords_are_the_settings() -> None:
    assert typing.get_type_hints(Settings) == typing.get_type_hints(Config)
    assert Settings.__total__ is False
    for item in fields(Config):
        assert f"\n        {item.name}: " in (quaver.fit.__doc__ or ""), item.name


def test_a_hostile_tag_is_refused_and_runs_nothing(written: Any, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    for tag in ("python/object/apply:os.system", "python/object/new:os.system", "python/name:os.system"):
        with pytest.raises(SettingsError, match="is not valid YAML: could not determine a constructor"):
            make_config(written(f"tuning: !!{tag} ['touch {proof}']"))
    assert not proof.exists()


def laughs(join: str) -> str:
    """Nine levels of nine aliases each: 3 billion values in a kilobyte."""
    levels = (f"    l{level}: &l{level} {join % ', '.join([f'*l{level - 1}'] * 9)}" for level in range(1, 10))
    return "\n".join(["quantization:", "  op_type_dict:", "    l0: &l0 {a: 1, b: 2, c: 3}", *levels])


@pytest.mark.parametrize(
    "text",
    [
        laughs("[%s]"),
        laughs("{<<: [%s]}"),
        laughs("[%s]") + "\ntuning: *l9",
        laughs("[%s]") + "\ntuning: {strategy: {name: *l9}}",
        "quantization: {op_name_dict: &a {x: *a}}",
        "tuning: {strategy: {options: {x: &a [*a]}}}",
        "tuning: " + "[" * 3000,
        "tuning: " + "{a: " * 3000 + "1" + "}" * 3000,
        "tuning: {random_seed: " + "1" * 5000 + "}",
    ],
    ids=["laughs", "merges", "laughs-section", "laughs-value", "itself", "itself-list", "deep", "deep-maps", "digits"],
)
def test_a_file_that_would_exhaust_memory_is_refused_at_once(written: Any, text: str) -> None:
    begin = time.monotonic()
    with pytest.raises(SettingsError) as caught:
        make_config(written(text))
    assert len(str(caught.value)) < 1000
    assert time.monotonic() - begin < 20  # it would take hours


def test_aliases_are_allowed(written: Any) -> None:
    rules = "quantization: {op_type_dict: {Conv: &r {activation: {dtype: fp32}}, Gemm: *r, Add: {<<: *r}}}"
    assert len({str(rule) for rule in make_config(written(rules)).op_type_dict.values()}) == 1
