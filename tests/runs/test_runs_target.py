"""Runs for another machine: the times there decide, and the times of this machine are reported separately."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import quaver
from quaver import INT8, OpConfig, QuantConfig, SettingsError
from quaver.command.main import main
from quaver.demo.data import Accuracy, digits
from quaver.engine.scoring.judge import judge_snapshot
from quaver.engine.timing.cost_model import from_dict

DATA = Path(__file__).parents[1] / "data"
RESNET, ENCODER = DATA / "digits_resnet.onnx", DATA / "digits_encoder.onnx"
IMAGES, _, TEST, LABELS = digits()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `quaver profile --save` writes on this machine."""
    folder = tmp_path_factory.mktemp("cost")
    np.save(folder / "calib.npy", IMAGES[:64])
    words = ["profile", str(RESNET), "--calib", str(folder / "calib.npy"), "--save", str(folder / "cost.json")]
    assert main([*words, "--target", "a board"]) == 0
    content: dict[str, Any] = json.loads((folder / "cost.json").read_text(encoding="utf-8"))
    return content


def written(folder: Path, content: Any) -> Path:
    path = folder / "cost.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def doctored(saved: dict[str, Any], slow: str = "", **changes: Any) -> dict[str, Any]:
    """Every op three times as fast in int8, but one that is three times as slow; conversions take nothing."""
    ops = {name: {"fp32": 1e-3, "int8": 3e-3 if name == slow else 0.3e-3} for name in saved["seconds"]["ops"]}
    free = dict.fromkeys(("quantize_element", "dequantize_element", "quantize", "dequantize"), 0.0)
    return {**saved, "seconds": {"ops": ops, "rest": 0.0, "conversions": free}, **changes}


def tuned(folder: Path, cost_model: Path, model: Path = RESNET, **settings: Any) -> quaver.TuneResult:
    settings = {"report": False, "verbose": 0, "workspace": folder / "run", "max_trials": 3, **settings}
    return quaver.fit(
        model, calib_dataloader=IMAGES[:64], eval_func=Accuracy(TEST, LABELS), cost_model=cost_model, **settings
    )


def test_what_is_saved_here_can_be_used_here(saved: dict[str, Any], tmp_path: Path) -> None:
    assert saved["target"] == "a board" and saved["fit"] is not None
    result = tuned(tmp_path, written(tmp_path, saved))
    assert result.met and result.best is not None and result.target == "a board"
    assert {"latency", "predicted_latency", "predicted_ms"} <= set(result.best.measured)
    assert "predicted for a board: " in str(result) and "on this machine" in str(result)


def test_an_op_that_is_slow_there_stays_in_fp32_whatever_it_takes_here(saved: dict[str, Any], tmp_path: Path) -> None:
    name = list(saved["seconds"]["ops"])[4]
    result = tuned(tmp_path, written(tmp_path, doctored(saved, slow=name)))
    assert result.best is not None and result.best.config.fp32_ops == (name,)
    count = len(result.best.config)
    assert result.best.measured["predicted_latency"] == pytest.approx((0.3 * (count - 1) + 1) / count)


def test_a_budget_of_latency_is_one_for_the_target(saved: dict[str, Any], tmp_path: Path) -> None:
    path = written(tmp_path, doctored(saved))
    result = tuned(tmp_path, path, objective="accuracy", max_latency=0.6)
    assert result.met and all(trial.met for trial in result.trials) and result.best is not None
    assert 0.5 < result.trials[0].measured["predicted_latency"] <= 0.6  # what the budget allows is used
    assert result.best.measured["predicted_latency"] <= 0.6
    assert "predicted latency of at most 0.6 of fp32" in str(result)
    judged = judge_snapshot(quaver.read_snapshot(result.history_path))
    assert judged.best == result.best and judged.criterion == result.criterion


def test_a_resumed_run_decides_by_the_same_figures_when_the_file_is_gone(saved: dict[str, Any], tmp_path: Path) -> None:
    path = written(tmp_path, doctored(saved, slow=list(saved["seconds"]["ops"])[4]))
    first = tuned(tmp_path, path)
    path.unlink()
    again = quaver.fit(
        RESNET,
        calib_dataloader=IMAGES[:64],
        eval_func=Accuracy(TEST, LABELS),
        resume=tmp_path / "run",
        report=False,
        verbose=0,
    )
    assert again.best == first.best and again.target == "a board" and len(again.trials) == len(first.trials)


def test_history_and_show_tell_predictions_and_measurements_apart(
    saved: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned(tmp_path, written(tmp_path, saved))
    for words in (["history", str(tmp_path / "run")], ["show", str(tmp_path / "run"), "1"]):
        assert main(words) == 0
        assert "predicted for a board" in capsys.readouterr().out


@pytest.mark.parametrize("model", [RESNET, ENCODER], ids=["resnet", "encoder"])
def test_one_file_times_the_model_where_there_is_no_quaver(model: Path, tmp_path: Path) -> None:
    kit = quaver.save_board_kit(model, tmp_path / "board.pyz", IMAGES[:64])
    hidden = (
        "import sys; sys.modules['quaver'] = None; import runpy; sys.argv = sys.argv[1:]; sys.path[0] = sys.argv[0]; "
    )
    words = [sys.executable, "-c", f"{hidden}runpy.run_path(sys.argv[0], run_name='__main__')", str(kit)]
    done = subprocess.run(
        [*words, "--target", "bare", "--runs", "5"], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    raw = json.loads(done.stdout)
    assert raw["target"] == "bare" and len(raw["raw"]["whole"]) > 2
    result = tuned(tmp_path, written(tmp_path, raw), model)
    kept = quaver.read_snapshot(result.history_path).notes["cost_model"]["content"]
    assert {"int8 dynamic", "int8 weight_only"} <= modes_of(kept)
    assert result.target == "bare" and result.best is not None and result.best.measured["predicted_ms"] > 0
    content = quaver.read_snapshot(result.history_path).notes["cost_model"]["content"]
    shares = [sum(one[kind] for one in content["seconds"]["ops"].values()) for kind in ("fp32", "int8")]
    # Most of the time belongs to ops, not to unknown kernels.
    assert all(
        0.4 * taken < share <= 1.01 * taken for share, taken in zip(shares, raw["raw"]["whole"][:2], strict=True)
    )


def modes_of(content: dict[str, Any]) -> set[str]:
    return {way for one in content["seconds"]["ops"].values() for way in one}


def test_each_mode_of_an_op_has_a_time_of_its_own_there(saved: dict[str, Any], tmp_path: Path) -> None:
    assert {"fp32", "int8", "int8 dynamic", "int8 weight_only"} <= modes_of(saved)
    content = doctored(saved)
    convolution = next(name for name, one in saved["seconds"]["ops"].items() if "int8 weight_only" in one)
    content["seconds"]["ops"][convolution]["int8 weight_only"] = 2e-3
    cost = from_dict(content, "cost.json")
    plain = QuantConfig(dict.fromkeys(content["seconds"]["ops"], OpConfig(INT8)))
    weights = plain.replace({convolution: OpConfig(INT8, mode="weight_only")})
    slower = cost.predict(weights)["predicted_ms"] - cost.predict(plain)["predicted_ms"]
    assert slower == pytest.approx(2.0 - 0.3)
    assert from_dict(cost.to_dict(), "again") == cost


def test_a_mode_that_was_not_timed_there_is_taken_to_be_no_faster_than_fp32(saved: dict[str, Any]) -> None:
    cost = from_dict(doctored(saved), "cost.json")
    dynamic = QuantConfig(dict.fromkeys(saved["seconds"]["ops"], OpConfig(INT8, mode="dynamic")))
    assert cost.predict(dynamic)["predicted_latency"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"model": "0" * 64}, "is of another model: its fingerprint is 000000000000"),
        ({"adapter": "litert"}, "is of a model of litert"),
        ({"quaver_cost_model": 9}, "is not a cost model of this version"),
        ({"seconds": {"ops": {}}}, "take no time"),
        ({"seconds": {"ops": {"nope": {"fp32": 1, "int8": 1}}}}, "names the op 'nope', which this model"),
        ({"seconds": {"ops": {"nope": {"fp32": -1, "int8": 1}}}}, "-1 is no time in seconds"),
        ({"seconds": None}, "is damaged"),
        ({"raw": {"kernels": []}, "configs": "?"}, "was prepared by another version of quaver"),
    ],
)  # fmt: skip
def test_a_file_that_does_not_fit_is_named_before_any_work(
    saved: dict[str, Any], tmp_path: Path, change: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        tuned(tmp_path, written(tmp_path, {**saved, **change}))
    assert complaint in str(caught.value) and "cost.json" in str(caught.value)


def test_a_file_without_an_op_or_that_is_none_is_named(saved: dict[str, Any], tmp_path: Path) -> None:
    less = doctored(saved)
    gone = next(iter(less["seconds"]["ops"]))
    del less["seconds"]["ops"][gone]
    with pytest.raises(SettingsError, match="lacks 1 op"):
        tuned(tmp_path, written(tmp_path, less))
    (tmp_path / "cost.json").write_text("{", encoding="utf-8")
    with pytest.raises(SettingsError, match="is not JSON"):
        tuned(tmp_path / "a", tmp_path / "cost.json")
    with pytest.raises(SettingsError, match="cannot read the cost model"):
        tuned(tmp_path / "b", tmp_path / "none.json")


def test_flags_that_do_not_go_together_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, complaint in (
        (["--save", "c.json"], "need --calib"),
        (["--save", "c.json", "--board", "b.pyz"], "pass --save"),
        (["--target", "x"], "--target needs --save"),
        (["--save", "c.json", "--against", "q.onnx"], "leave out --against"),
    ):
        assert main(["profile", str(RESNET), *words]) == 2
        assert complaint in capsys.readouterr().err
