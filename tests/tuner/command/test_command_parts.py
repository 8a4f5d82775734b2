"""The parts that need no process of their own."""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from command_samples import quaver

import quaver as library
from quaver import formatting
from quaver.api.calibration import expected_samples
from quaver.api.display.live import TimeLeft
from quaver.command import flags, sentences
from quaver.command import user_files as loading
from quaver.command.main import COMMANDS, parse
from quaver.command.verbs.tune import again_with
from quaver.trial import Trial, TrialState


def config(*words: str) -> library.Config:
    return flags.parse_settings(parse(["tune", *words])).config


def test_every_setting_has_a_flag() -> None:
    parser = argparse.ArgumentParser()
    flags.add(parser)
    assert {action.dest for action in parser._actions} - {"help"} == {item.name for item in fields(library.Config)}


def test_flags_become_settings() -> None:
    made = config(
        "--strategy-option", "a=[1, 2]", "--strategy-option", "b=x=y", "--lower-is-better", "--absolute", "0.5",
        "--op-name", "a=b/Conv=fp32", "--op-type", "Conv={weight: {granularity: [per_tensor]}}", "--threads", "2",
        "--batch", "4",
    )  # fmt: skip
    assert made.strategy_options == {"a": [1, 2], "b": "x=y"}
    assert made.higher_is_better is False and made.absolute == 0.5 and made.relative is None
    assert made.op_name_dict == {"a=b/Conv": "fp32"}
    assert made.op_type_dict == {"Conv": {"weight": {"granularity": ["per_tensor"]}}}
    assert made.threads == 2 and made.batch == 4 and made.max_trials == library.Config().max_trials
    assert config("--diagnosis").diagnosis is True and config("--no-diagnosis").diagnosis is False
    assert config("--relative", "0.7", "--allow-any-loss").relative == 0.7


def test_rules_are_added_behind_those_of_the_file_and_options_of_another_strategy_are_dropped(tmp_path: Path) -> None:
    file = tmp_path / "conf.yaml"
    file.write_text(
        "quantization: {op_name_dict: {a: fp32, b: fp32}}\n"
        "tuning: {strategy: {name: basic, options: {deep: 1}}, workspace: old}\n"
    )
    made = config(str(file), "--op-name", "a=int8", "--resume", "run")
    assert list(made.op_name_dict.items()) == [("b", "fp32"), ("a", "int8")]
    assert made.resume == "run" and made.workspace is None and made.strategy_options == {"deep": 1}
    assert config(str(file), "--strategy", "other").strategy_options == {}
    assert config(str(file), "--strategy", "basic", "--strategy-option", "x=1").strategy_options == {"deep": 1, "x": 1}


def test_the_next_command_replaces_flags_instead_of_repeating_them() -> None:
    argv = ["tune", "my conf.yaml", "--workspace", "a", "--max-trials=3", "--eval", "e.py:f", "--timeout", "5"]
    assert again_with(argv, "--resume", "a b", "--max-trials", 6) == (
        "quaver tune 'my conf.yaml' --eval e.py:f --timeout 5 --resume 'a b' --max-trials 6"
    )


def test_files_of_the_same_name_do_not_get_in_each_others_way(tmp_path: Path) -> None:
    for index in (1, 2):
        (tmp_path / str(index)).mkdir()
        (tmp_path / str(index) / "same_name.py").write_text(f"def value():\n    return {index}\n")
    both = [loading.load_function(f"{tmp_path}/{index}/same_name.py:value", "--eval")() for index in (1, 2)]
    assert both == [1, 2]


def test_calibration_files_are_read_as_arrays(tmp_path: Path) -> None:
    images = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.save(tmp_path / "a.npy", images)
    np.savez(tmp_path / "b.npz", image=images, mask=images[:, :1])
    (tmp_path / "calibration_data.py").write_text("ARRAY = [1, 2]\n")
    assert np.array_equal(loading.calibration(str(tmp_path / "a.npy")), images)
    assert list(loading.calibration(str(tmp_path / "b.npz"))) == ["image", "mask"]
    assert [type(batch) for batch in loading.calibration(str(tmp_path))] == [np.memmap, dict]
    assert loading.calibration(f"{tmp_path}/calibration_data.py:ARRAY") == [1, 2]
    assert expected_samples(images, 3) == 3 and expected_samples({"image": images}, None) == 4


def test_pickled_arrays_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(library.CalibrationError, match="cannot be read as npy"):
        loading.calibration(str(tmp_path / "objects.npy"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(library.CalibrationError, match=r"holds no \.npz and no \.npy file"):
        loading.calibration(str(tmp_path / "empty"))


def test_names_cannot_command_the_terminal() -> None:
    assert formatting.printable("a\x1b[2J\nb\u202e") == "a\\x1b[2J\\nb\\u202e"


@pytest.mark.parametrize(
    "written, meant",
    [(formatting.duration(3.14), "3.1 s"), (formatting.duration(90), "90 s"), (formatting.duration(8000), "2 h 13 min"),
     (formatting.file_size(999), "999 bytes"), (formatting.file_size(111752), "112 KB"),
     (formatting.file_size(2 * 10**9), "2 GB"),
     (formatting.latency_ratio(0.5), "0.50x fp32 (2.00x faster)"),
     (formatting.latency_ratio(1.3), "1.30x fp32 (1.30x SLOWER)")],
)  # fmt: skip
def test_figures_are_written_for_people(written: str, meant: str) -> None:
    assert written == meant


def trial(seconds: float) -> Trial:
    return Trial(1, library.QuantConfig({}), TrialState.COMPLETE, 1.0, 0.0, False, seconds)


def test_the_time_left_comes_from_the_trials_or_from_the_timeout() -> None:
    clock = TimeLeft(0.0, 50, 0.0)
    assert clock.left() == ""
    clock.planned(11)
    clock.baseline(trial(100))
    clock.evaluating(1)
    clock.finished(trial(60))
    assert clock.left() == "at most about 10 min left"
    hurried = TimeLeft(100.0, 100, 40.0)
    hurried.planned(100)
    hurried.baseline(trial(60))
    assert hurried.left() == "60 s left"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_helps_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        parse([name, "--help"])
    assert f"\n  quaver {name}" in capsys.readouterr().out


def test_the_version_is_told(tmp_path: Path) -> None:
    assert quaver(tmp_path, "--version").stdout == f"quaver {library.__version__}\n"


def test_no_command_at_all_gives_the_help_and_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse([])
    assert "quaver demo" in capsys.readouterr().err


def test_help_loads_nothing_heavy() -> None:
    code = "import sys, quaver.command.main; print(*sys.modules)"
    loaded = set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split())
    assert "quaver.command.main" in loaded
    assert not loaded & {"onnx", "onnxruntime", "sklearn", "skopt", "scipy", "joblib", "rich", "tensorflow"}


def test_the_librarys_advice_is_put_into_shell_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    advice = f"go on with fit(..., resume={str(tmp_path / 'a b' / 'history.snapshot')!r})"
    assert sentences.in_shell_words(advice) == "go on with `quaver tune ... --resume 'a b/history.snapshot'`"
