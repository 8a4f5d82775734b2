from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from command_samples import make_folder, quaver, tune, tune_words

from quaver.command import user_files as loading
from quaver.command.main import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nothing here gets as far as to leave something behind."""
    made = make_folder(tmp_path_factory.mktemp("errors"))
    (made / "raises.py").write_text("import beside\n\nvalue = {}['missing']\n")
    (made / "exits.py").write_text("import sys\n\nsys.exit(4)\n")
    (made / "wrong.py").write_text("def accuracy(model)\n    return 1.0\n")
    (made / "bad.npz").write_bytes(b"this is no zip file")
    (made / "bad.yaml").write_text("tuning:\n  exit_policy:\n    max_trails: 3\n")
    (made / "torn.yaml").write_text("tuning: [1, 2\n")
    return made


WRONG_USAGE = {
    "an unknown flag": (["tune", "--max-trails", "3"], "unknown option '--max-trails'; did you mean '--max-trials'"),
    "a misspelt needed flag": (["tune", "--modle", "m.onnx"], "did you mean '--model'"),
    "an unknown command": (["tun"], "there is no command 'tun'; did you mean 'tune'"),
    "an unknown YAML key": (["tune", "bad.yaml"], "did you mean 'tuning.exit_policy.max_trials'"),
    "a torn YAML file": (["tune", "torn.yaml"], "'torn.yaml' is not valid YAML"),
    "a missing YAML file": (["tune", "none.yaml"], "cannot read the configuration 'none.yaml'"),
    "a setting out of range": (["tune", "--max-trials", "0"], "`max_trials` must be a whole number of at least 1"),
    "a word for a number": (["tune", "--timeout", "soon"], "invalid float value: 'soon'"),
    "a loss in percent": (["tune", "--relative", "1"], "would allow a loss of 100% of the fp32 score; 1 % is 0.01"),
    "a wrong fraction": (["tune", "--relative", "a%"], "'a%' is not a number like 0.01 or 1%"),
    "a rule without a value": (["tune", "--op-type", "Conv"], "'Conv' is not of the form TYPE=RULE"),
    "no model": (["tune"], "pass the float model"),
    "no snapshot": (["history", "nowhere"], "there is no snapshot at nowhere"),
    "no trial number": (["show", "nowhere", "first"], "'first' is neither the number of a trial nor `best`"),
    "no output": (["recover", "model.onnx", "nowhere", "1"], "pass the path to save the model to"),
    "one argument too many": (["history", "a", "b"], "one argument too many: 'b'"),
}  # fmt: skip


@pytest.fixture
def said(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[Sequence[str]], str]:
    """Runs the command in this process, which must end with 2 and one paragraph on stderr."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(loading, "_modules", {})

    def run(words: Sequence[str]) -> str:
        try:
            code = main(words)
        except SystemExit as end:  # argparse ends the process itself
            code = int(str(end.code))
        told = capsys.readouterr()
        assert code == 2
        assert told.out == "" and told.err.count("\n") == 1 and "Traceback" not in told.err
        return told.err

    return run


@pytest.mark.parametrize("words, wanted", WRONG_USAGE.values(), ids=WRONG_USAGE)
def test_wrong_usage_gives_2_and_one_paragraph(
    said: Callable[[Sequence[str]], str], words: list[str], wanted: str
) -> None:
    assert wanted in said(words)


@pytest.mark.parametrize("case", ["an unknown flag", "an unknown YAML key"])
def test_the_process_ends_with_2_too(folder: Path, case: str) -> None:
    words, wanted = WRONG_USAGE[case]
    done = quaver(folder, *words)
    assert done.returncode == 2 and wanted in done.stderr and done.stderr.count("\n") == 1 and done.stdout == ""


WRONG_FILES = {
    "a missing function": ("my_eval.py:acuracy", "there is no 'acuracy' in 'my_eval.py'; did you mean 'accuracy'"),
    "no function": ("my_eval.py", "--eval takes FILE.py:NAME, such as my_eval.py:my_function"),
    "a number": ("my_eval.py:NUMBER", "is a int, not a function"),
    "a missing file": ("none.py:accuracy", "there is no file 'none.py'"),
    "a file that raises": ("raises.py:accuracy", "raised KeyError when it was imported: 'missing'"),
    "a file that exits": ("exits.py:accuracy", "raised SystemExit when it was imported"),
    "a syntax error": ("wrong.py:accuracy", "(wrong.py, line 1)"),
}


@pytest.mark.parametrize("reference, wanted", WRONG_FILES.values(), ids=WRONG_FILES)
def test_an_eval_function_that_cannot_be_loaded_gives_2(
    said: Callable[[Sequence[str]], str], folder: Path, reference: str, wanted: str
) -> None:
    assert wanted in said(["tune", "--model", "model.onnx", "--calib", "calib.npz", "--eval", reference])
    assert not (folder / "quaver_workspace").exists()


@pytest.mark.parametrize("reference", ["my_eval.py:acuracy", "raises.py:accuracy"])
def test_its_process_ends_with_2_too_and_the_line_that_raised_is_named(folder: Path, reference: str) -> None:
    done = quaver(folder, "tune", "--model", "model.onnx", "--calib", "calib.npz", "--eval", reference)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert ("raises.py, line 3" in done.stderr) == (reference == "raises.py:accuracy")


@pytest.mark.parametrize(
    "words, wanted",
    [
        (["--calib", "none.npz"], "there is nothing at 'none.npz'"),
        (["--calib", "bad.npz"], "'bad.npz' cannot be read as npz"),
        (["--calib", "conf.txt"], "there is nothing at 'conf.txt'"),
        (["--calib", "test.npz"], "lacks the model input 'image'"),
        (["-o", "model.onnx"], "would overwrite the float model"),
        (["-o", "model.onnx/out.onnx"], "model.onnx' is not a writable folder"),
        (["--save-anyway"], "--save-anyway needs -o"),
        (["--strategy", "baisc"], "unknown strategy 'baisc'; did you mean 'basic'?"),
        (["--strategy-option", "depth=2"], "has no option 'depth'"),
        (["--op-type", "Conf=fp32"], "did you mean 'Conv'?"),
    ],
)
def test_what_is_wrong_before_tuning_gives_2_and_leaves_nothing(
    said: Callable[[Sequence[str]], str], folder: Path, words: list[str], wanted: str
) -> None:
    assert wanted in said(tune_words("--quiet", *words))
    assert not (folder / "run").exists()


def test_an_eval_function_that_fails_on_fp32_gives_2_and_debug_shows_where(tmp_path: Path) -> None:
    make_folder(tmp_path)
    done = tune(tmp_path, function="broken")
    assert done.returncode == 2
    assert "eval_func failed on the fp32 model: ZeroDivisionError" in done.stderr
    assert "my_eval.py, line " in done.stderr and "in broken" in done.stderr and "Traceback" not in done.stderr
    debug = tune(tmp_path, "--debug", function="broken")
    assert debug.returncode == 2 and "Traceback" in debug.stderr and "return 1 / 0" in debug.stderr


def test_trials_that_all_fail_give_3_and_the_way_to_their_traceback(tmp_path: Path) -> None:
    make_folder(tmp_path)
    done = tune(tmp_path, function="broken_in_int8")
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith("NO RESULT: all 3 trials failed")
    assert "RuntimeError: no [red]int8[/red] today" in done.stdout
    assert "quaver show run 3" in done.stdout
    shown = quaver(tmp_path, "show", "run", 3)
    assert "trial 3: failed" in shown.stdout
    assert "Traceback" in shown.stdout and "RuntimeError: no [red]int8[/red] today" in shown.stdout
    listed = quaver(tmp_path, "history", "run")
    assert "trials 1 to 3 failed: RuntimeError: no [red]int8[/red] today" in listed.stdout
