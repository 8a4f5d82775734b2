"""The parts that need no process of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command_samples import quaver

import quaver as library
from quaver import formatting
from quaver.api.calibration import expected_samples
from quaver.command import sentences
from quaver.command import user_files as loading
from quaver.command.main import COMMANDS, parse
from quaver.command.verbs.tune import again_with


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
    advice = f"continue with fit(..., resume={str(tmp_path / 'a b' / 'history.snapshot')!r})"
    assert sentences.in_shell_words(advice) == "continue with `quaver tune ... --resume 'a b/history.snapshot'`"
