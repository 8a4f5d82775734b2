"""Flags of `quaver tune` become settings."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import quaver
from quaver.api.config.setting import GROUPS
from quaver.command import flags
from quaver.command.main import parse


def config(*words: str) -> quaver.Config:
    return flags.parse_settings(parse(["tune", *words])).config


def test_every_setting_has_a_flag() -> None:
    parser = argparse.ArgumentParser()
    flags.add(parser)
    assert {action.dest for action in parser._actions} - {"help"} == {item.name for item in fields(quaver.Config)}


def test_flags_become_settings() -> None:
    settings = config(
        "--strategy-option", "a=[1, 2]", "--strategy-option", "b=x=y", "--lower-is-better", "--absolute", "0.5",
        "--op-name", "a=b/Conv=fp32", "--op-type", "Conv={weight: {granularity: [per_tensor]}}", "--threads", "2",
        "--batch", "4",
    )  # fmt: skip
    assert settings.strategy_options == {"a": [1, 2], "b": "x=y"}
    assert settings.higher_is_better is False and settings.absolute == 0.5 and settings.relative is None
    assert settings.op_name_dict == {"a=b/Conv": "fp32"}
    assert settings.op_type_dict == {"Conv": {"weight": {"granularity": ["per_tensor"]}}}
    assert settings.threads == 2 and settings.batch == 4 and settings.max_trials == quaver.Config().max_trials
    assert config("--diagnosis").diagnosis is True and config("--no-diagnosis").diagnosis is False
    assert config("--relative", "0.7", "--allow-any-loss").relative == 0.7


def test_rules_are_appended_to_the_file_and_options_of_another_strategy_are_dropped(tmp_path: Path) -> None:
    file = tmp_path / "conf.yaml"
    file.write_text(
        "quantization: {op_name_dict: {a: fp32, b: fp32}}\n"
        "tuning: {strategy: {name: basic, options: {deep: 1}}, workspace: old}\n"
    )
    settings = config(str(file), "--op-name", "a=int8", "--resume", "run")
    assert list(settings.op_name_dict.items()) == [("b", "fp32"), ("a", "int8")]
    assert settings.resume == "run" and settings.workspace is None and settings.strategy_options == {"deep": 1}
    assert config(str(file), "--strategy", "other").strategy_options == {}
    assert config(str(file), "--strategy", "basic", "--strategy-option", "x=1").strategy_options == {"deep": 1, "x": 1}


def parsed(*words: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    parser.add_argument("config", nargs="?")
    flags.add(parser)
    return flags.parse_settings(parser.parse_args(words)).explicit


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--relative", "1%"], {"relative": 0.01}),
        (["--relative", "top1=1%", "--relative", "f1=0.02"], {"relative": {"top1": 0.01, "f1": 0.02}}),
        (["--absolute", "0.5"], {"absolute": 0.5}),
        (["--absolute", "wer=0.5"], {"absolute": {"wer": 0.5}}),
        (["--lower-is-better"], {"higher_is_better": False}),
        (["--higher-is-better"], {"higher_is_better": True}),
        (["--lower-is-better", "wer", "--lower-is-better", "cer"], {"higher_is_better": {"wer": False, "cer": False}}),
        (["--confidence", "0.9", "--no-early-stop"], {"confidence": 0.9, "early_stop": False}),
        (["--early-stop-delta", "0.01", "--confirm-tries", "5"], {"early_stop_delta": 0.01, "confirm_tries": 5}),
    ],
)
def test_a_limit_is_for_all_metrics_or_for_one(words: list[str], expected: dict[str, Any]) -> None:
    assert parsed(*words) == expected


def test_a_limit_for_all_metrics_and_one_for_a_metric_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="--relative is passed for all metrics and for 'f1'"):
        parsed("--relative", "0.01", "--relative", "f1=0.02")


def test_help_shows_the_settings_by_group() -> None:
    parser = argparse.ArgumentParser(usage="quaver tune")
    flags.add(parser)
    text = parser.format_help()
    titles = [text.index(f"{group}: {title}:") for group, title in GROUPS.items()]
    assert titles == sorted(titles)
    assert text.index("criterion:") < text.index("--relative") < text.index("search:") < text.index("--max-trials")


def test_help_names_flags_instead_of_settings() -> None:
    parser = argparse.ArgumentParser()
    flags.add(parser)
    text = " ".join(parser.format_help().split())
    assert "instead of --relative" in text and "with --objective accuracy: maximum latency" in text
    assert "implies --isolate" in text and "a crash or a hang of --eval does not end the run (default: no)" in text
