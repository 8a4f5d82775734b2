from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml
from command_samples import ODD, make_folder, quaver, tune

import quaver as library

STRATEGY = """
import quaver


class AllButOne(quaver.Strategy):
    '''All but the first op in fp32.'''

    name = "all_but_one"

    def __init__(self, keep=1):
        self.keep = keep

    def propose(self, space, probe):
        yield space.default_config().fallback(*space.tunable[self.keep:])
"""


def test_a_criterion_that_is_met_gives_0_a_model_and_a_plain_summary(tmp_path: Path) -> None:
    done = tune(make_folder(tmp_path), "--relative", "5%", "-o", "out.onnx")
    assert done.returncode == 0, done.stderr
    assert all(line.startswith("quaver ") for line in done.stderr.splitlines())
    assert "\x1b" not in done.stdout and "\r" not in done.stdout
    first = done.stdout.splitlines()[0]  # int8 may be slower on a model this small, which the line reports, too
    assert first.startswith("Criterion met") and ": the loss is " in first
    for part in ("fp32 score    1\n", "(allowed: 5.00%)", "3 int8, 0 fp32", "latency", "x fp32", "out.onnx", "Next:"):
        assert part in done.stdout
    assert {node.op_type for node in onnx.load(tmp_path / "out.onnx").graph.node} >= {"QuantizeLinear"}
    assert (tmp_path / "out.onnx").read_bytes() == (tmp_path / "run" / "best_model.onnx").read_bytes()


def test_a_criterion_that_is_not_met_gives_3_and_says_how_to_go_on(tmp_path: Path) -> None:
    done = tune(make_folder(tmp_path), "--max-trials", 2, function="only_fp32")
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith("CRITERION NOT MET: the loss is 50.00% at best, and 1.00% is allowed")
    assert "--resume run --max-trials 4" in done.stdout
    assert done.stdout.count("--max-trials") == 1 and "--workspace" not in done.stdout
    assert "    quaver diagnose model.onnx --calib calib.npz --history run --trial 1\n" in done.stdout


def test_a_model_that_misses_the_criterion_is_written_only_if_that_is_said(tmp_path: Path) -> None:
    make_folder(tmp_path)
    done = tune(tmp_path, "--max-trials", 2, "-o", "out.onnx", function="only_fp32")
    assert done.returncode == 3 and not (tmp_path / "out.onnx").exists()
    assert "model         run/best_model.onnx" in done.stdout
    assert "not written   out.onnx, because no model meets the criterion" in done.stdout
    assert "quaver recover model.onnx run 1 -o out.onnx" in done.stdout and "--save-anyway" in done.stdout
    taken = quaver(tmp_path, "recover", "model.onnx", "run", 1, "-o", "out.onnx")
    assert taken.returncode == 0, taken.stderr
    again = tune(tmp_path, "--resume", "run", "-o", "any.onnx", "--save-anyway", function="only_fp32")
    assert again.returncode == 3 and "not written" not in again.stdout and "quaver recover" not in again.stdout
    assert (tmp_path / "any.onnx").read_bytes() == (tmp_path / "out.onnx").read_bytes()


def test_a_winner_that_is_all_fp32_is_called_that(tmp_path: Path) -> None:
    done = tune(make_folder(tmp_path), function="only_fp32")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("NOTHING WAS QUANTIZED: the best trial runs every op in fp32")
    assert "0 int8, 3 fp32" in done.stdout


def test_ops_that_went_back_are_listed_up_to_ten_and_names_are_shown_as_they_are(tmp_path: Path) -> None:
    make_folder(tmp_path, gemms=14, last=ODD)
    (tmp_path / "mine.py").write_text(STRATEGY)
    done = tune(tmp_path, "--strategy", "mine.py:AllButOne", "--strategy-option", "keep=5", function="always")
    assert done.returncode == 0, done.stderr
    assert "5 int8, 11 fp32" in done.stdout
    assert done.stdout.count("(Gemm)\n") == 10 and "... and 1 more\n" in done.stdout
    shown = quaver(tmp_path, "show", "run", 1)
    assert "[bold]head[/bold] :smile: \\x1b[31m/Gemm" in shown.stdout and "\x1b" not in shown.stdout


def test_flags_override_the_file_and_flags_not_given_leave_it_alone(tmp_path: Path) -> None:
    make_folder(tmp_path)
    layout = {
        "version": 1.0,
        "quantization": {"calibration": {"sampling_size": 16}, "op_type_dict": {"Gemm": "fp32"}},
        "tuning": {
            "strategy": {"name": "basic"},
            "accuracy_criterion": {"absolute": 0.25, "higher_is_better": False},
            "exit_policy": {"max_trials": 50},
            "random_seed": 7,
        },
    }
    (tmp_path / "conf.yaml").write_text(yaml.safe_dump(layout))
    done = quaver(
        tmp_path, "tune", "conf.yaml", "--model", "model.onnx", "--calib", "calib.npz", "--eval", "my_eval.py:error",
        "--max-trials", 1, "--workspace", "run", "--op-name", "stem/C.*=[int8]",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    used = yaml.safe_load((tmp_path / "run" / "quaver.yaml").read_text())
    assert used["max_trials"] == 1 and used["seed"] == 7 and used["calibration_sampling_size"] == 16
    assert used["absolute"] == 0.25 and used["relative"] is None and used["higher_is_better"] is False
    assert used["op_type_dict"] == {"Gemm": "fp32"} and used["op_name_dict"] == {"stem/C.*": ["int8"]}
    assert "kept in fp32  1 by your rules" in done.stdout and "moved to fp32" not in done.stdout


def test_a_resumed_run_evaluates_only_what_is_new(tmp_path: Path) -> None:
    make_folder(tmp_path)
    assert tune(tmp_path, "--max-trials", 2, function="only_fp32").returncode == 3
    assert len((tmp_path / "calls").read_text()) == 3  # the baseline and two trials
    done = tune(tmp_path, "--max-trials", 5, "--resume", "run", function="only_fp32")
    assert done.returncode == 3, done.stderr
    assert len((tmp_path / "calls").read_text()) == 6
    assert len(library.read_snapshot(tmp_path / "run").trials) == 5
    again = tune(tmp_path, "--max-trials", 5, function="only_fp32")
    assert again.returncode == 2 and "holds the history of an earlier run" in again.stderr


def test_a_resumed_run_goes_on_with_the_flags_that_it_was_started_with(tmp_path: Path) -> None:
    make_folder(tmp_path)
    given = ("--absolute", 0.25, "--objective", "size", "--op-name", "stem/Conv=fp32", "--seed", 5, "--threads", 1)
    assert tune(tmp_path, "--max-trials", 2, *given, function="only_fp32").returncode == 3
    words = ("--model", "model.onnx", "--eval", "my_eval.py:only_fp32", "--resume", "run")
    done = quaver(tmp_path, "tune", *words, "--quiet", "--max-trials", 4, "--op-name", "body/Conv=fp32")
    assert done.returncode == 3, done.stderr
    assert done.stderr.splitlines() == [
        "quaver: resumed run: max_trials is 4 from here on; it was 2",
        "quaver: resumed run: op_name_dict is {'stem/Conv': 'fp32', 'body/Conv': 'fp32'} from here on; "
        "it was {'stem/Conv': 'fp32'}",
    ]
    assert "(allowed: 0.25)" in done.stdout and "kept in fp32  2 by your rules" in done.stdout
    used = yaml.safe_load((tmp_path / "run" / "quaver.yaml").read_text())
    kept = {"absolute": 0.25, "objective": "size", "seed": 5, "threads": 1, "strategy": "basic", "max_trials": 4}
    assert {name: used[name] for name in kept} == kept
    assert used["op_name_dict"] == {"stem/Conv": "fp32", "body/Conv": "fp32"}


def test_a_strategy_in_a_file_has_to_be_named_again(tmp_path: Path) -> None:
    make_folder(tmp_path)
    (tmp_path / "mine.py").write_text(STRATEGY)
    mine = ("--strategy", "mine.py:AllButOne", "--strategy-option", "keep=2")
    assert tune(tmp_path, *mine, function="always").returncode == 0
    words = ("tune", "--model", "model.onnx", "--eval", "my_eval.py:always", "--resume", "run")
    refused = quaver(tmp_path, *words)
    assert refused.returncode == 2 and "the run used strategy 'mine.AllButOne', pass it again" in refused.stderr
    again = quaver(tmp_path, *words, "--quiet", "--strategy", "mine.py:AllButOne")
    assert (again.returncode, again.stderr) == (0, "")


def test_paths_may_begin_with_a_tilde(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    make_folder(home)
    done = quaver(
        tmp_path, "tune", "--model=~/model.onnx", "--calib=~/calib.npz", "--eval=~/my_eval.py:accuracy", "-o",
        "~/out.onnx", "--workspace", "~/run", "--relative", 0.05, "--strategy", "basic", HOME=str(home),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (home / "out.onnx").is_file() and (home / "run" / "history.snapshot").is_file()
    for words in (["history", "~/run"], ["recover", "~/model.onnx", "~/run", "1", "-o", "~/again.onnx"]):
        assert quaver(tmp_path, *words, HOME=str(home)).returncode == 0
    assert (home / "again.onnx").read_bytes() == (home / "out.onnx").read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


@pytest.mark.parametrize("form", ["other_name.npz", "folder", "data.py:batches"])
def test_calibration_data_comes_in_many_forms(tmp_path: Path, form: str) -> None:
    make_folder(tmp_path)
    images = np.load(tmp_path / "calib.npz")["image"]
    np.savez(tmp_path / "other_name.npz", pixels=images)
    np.save(tmp_path / "plain.npy", images)
    (tmp_path / "folder").mkdir()
    np.savez(tmp_path / "folder" / "1.npz", image=images[:8])
    np.save(tmp_path / "folder" / "2.npy", images[8:16])
    (tmp_path / "data.py").write_text(
        "import numpy as np\nimport beside\n"
        "ARRAY = np.load(beside.HERE / 'plain.npy')\n"
        "def batches():\n    return (ARRAY[i : i + 8] for i in range(0, 64, 8))\n"
    )
    done = tune(tmp_path, "--calib", form, "--relative", 0.05, "--max-trials", 1)
    assert done.returncode == 0, done.stderr


def test_the_objective_can_be_a_function_in_a_file(tmp_path: Path) -> None:
    make_folder(tmp_path)
    (tmp_path / "goals.py").write_text("def bytes_of(model):\n    return model.size\n")
    done = tune(tmp_path, "--objective", "goals.py:bytes_of", "--relative", 0.05)
    assert done.returncode == 0, done.stderr
    told = json.loads(quaver(tmp_path, "history", "run", "--json").stdout)
    assert next(iter(told["trials"][0]["measured"].values())) == told["trials"][0]["model_size"]
