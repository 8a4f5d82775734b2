"""What the documentation promises, run as printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from networks import Closeness, chain, inputs

import quaver
from quaver.adapters.onnxrt.profile.kernels import integer_kernels
from quaver.strategies import registry

MODEL = chain(12)


def printed(page: str, holds: str) -> str:
    """The block of a page that holds a text."""
    text = (Path(__file__).parents[2] / page).read_text(encoding="utf-8")
    (found,) = (block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if holds in block)
    return str(found)


TUNE = printed("README.md", "quaver.fit(")
RECOVER = printed("docs/running.md", "quaver.recover(")
ASK = printed("docs/running.md", "quaver.open_run(")
CUSTOM = printed("CONTRIBUTING.md", "register_strategy")

YAML = """
version: 1.0

model:
  name: cnn
  framework: onnxruntime

quantization:
  calibration:
    sampling_size: 48 # number of samples for calibration

tuning:
  strategy:
    name: basic
  accuracy_criterion:
    relative: 0.01
  exit_policy:
    timeout: 0
    max_trials: 3
  random_seed: 9527
"""


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the examples take for granted: a model in the current folder, data and a score."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    onnx.save(MODEL, "model.onnx")
    return {"quaver": quaver, "batches": np.split(inputs(), 4), "accuracy": Closeness(MODEL), "np": np}


def test_the_readmes_example_of_a_run_works_as_printed(
    names: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    exec(TUNE, names)
    result = names["result"]
    assert result.met and result.best.met and result.best.loss <= 0.01
    assert Path("model-int8.onnx").read_bytes() == result.model_path.read_bytes()
    assert capsys.readouterr().out == f"{result}\n"
    assert result.workspace.parent.name == "quaver_workspace"


def test_the_readmes_example_saves_nothing_that_misses_the_criterion(names: dict[str, Any]) -> None:
    exec(TUNE.replace("relative=0.01", 'absolute=0.0, strategy="basic", max_trials=2'), names)
    assert not names["result"].met and not Path("model-int8.onnx").exists()


def test_the_loop_of_ones_own_ends_as_fit_does(names: dict[str, Any]) -> None:
    same = 'relative=0.01, objective="size"'  # what is measured may differ from one run to the next
    exec(TUNE.replace("relative=0.01", same), names)
    fitted = names["result"]
    exec(ASK.replace("relative=0.01", same), names)
    told = names["result"]
    assert told.met and told.reason is fitted.reason
    assert [trial.config for trial in told.trials] == [trial.config for trial in fitted.trials]
    assert told.best.model_hash == fitted.best.model_hash


def test_the_example_of_going_back_works_as_printed_whatever_was_tried(names: dict[str, Any]) -> None:
    for change in ("relative=0.01", "relative=0.4"):  # the latter is done after one trial
        exec(TUNE.replace("relative=0.01", change), names)
        exec(RECOVER, names)
        result = names["result"]
        assert names["again"].sha256 == result.best.model_hash
        assert names["accuracy"](names["again"]) == pytest.approx(result.best.score)
        assert Path("again.onnx").read_bytes() == result.model_path.read_bytes()
    assert len(result.trials) == 1


def test_the_example_of_a_strategy_works_as_printed(names: dict[str, Any]) -> None:
    exec(CUSTOM, names)
    result = quaver.fit(
        "model.onnx",
        calib_dataloader=names["batches"],
        eval_func=names["accuracy"],
        strategy="worst_first",
        relative=0.01,
        objective="size",
    )
    assert result.met and [len(trial.config.fp32_ops) for trial in result.trials] == list(range(len(result.trials)))
    assert 2 < len(result.trials) <= 13
    ranking = quaver.read_snapshot(result.history_path).notes
    assert any(name.startswith("probe.") for name in ranking)


def test_a_yaml_file_says_what_keywords_say(names: dict[str, Any]) -> None:
    Path("conf.yaml").write_text(YAML)
    data = {"calib_dataloader": names["batches"], "eval_func": names["accuracy"]}
    by_file = quaver.fit("model.onnx", "conf.yaml", **data)
    by_words = quaver.fit("model.onnx", strategy="basic", max_trials=3, calibration_sampling_size=48, **data)
    assert len(by_file.trials) == 3
    assert [trial.model_hash for trial in by_file.trials] == [trial.model_hash for trial in by_words.trials]
    overridden = quaver.fit("model.onnx", "conf.yaml", max_trials=1, relative=0.9, allow_any_loss=True, **data)
    assert len(overridden.trials) == 1 and overridden.met


def test_eval_func_gets_what_evaluation_code_expects(names: dict[str, Any]) -> None:
    seen: list[Any] = []

    def accuracy(model: Any) -> float:
        x = inputs(8)
        assert isinstance(model.model, onnx.ModelProto)
        outputs = [model(x), model(x=x), model.session.run(None, {model.session.get_inputs()[0].name: x})[0]]
        assert all(np.array_equal(output, outputs[0]) for output in outputs)
        onnx.load_model_from_string(model.SerializeToString())
        seen.append(model.size)
        return float(names["accuracy"](model))

    result = quaver.fit(
        MODEL, calib_dataloader=names["batches"], eval_func=accuracy, strategy="basic", max_trials=2, relative=0.01
    )
    assert [trial.model_size for trial in result.trials] == seen[1:] and seen[1] < seen[0]


def test_the_rule_of_the_walk_through_keeps_ops_in_fp32_on_the_deployed_kernels(names: dict[str, Any]) -> None:
    result = quaver.fit(
        MODEL,
        calib_dataloader=names["batches"],
        eval_func=names["accuracy"],
        strategy="basic",
        max_trials=2,
        op_name_dict={"layer.*[02468]/Gemm": {"activation": {"dtype": ["fp32"]}}},
    )
    expected = tuple(f"layer.{index}/Gemm" for index in (0, 2, 4, 6, 8, 10))
    assert result.best is not None and result.model_path is not None
    assert all(trial.config.fp32_ops == expected for trial in result.trials)
    kernels = integer_kernels(result.model_path.read_bytes(), result.best.config)
    assert set(kernels) == set(result.best.config.int8_ops)


def test_a_run_that_meets_nothing_still_gives_the_most_accurate_model(names: dict[str, Any]) -> None:
    result = quaver.fit(
        MODEL,
        calib_dataloader=names["batches"],
        eval_func=names["accuracy"],
        strategy="basic",
        relative=0.0001,
        max_trials=5,
    )
    assert not result.met and result.best is not None and result.model is not None
    assert result.best.score == max(trial.score for trial in result.trials if trial.score is not None)
    assert "does NOT meet the criterion" in str(result)
    assert result.save("anyway.onnx").is_file()


def test_a_run_without_a_single_score_says_so(names: dict[str, Any]) -> None:
    def accuracy(model: Any) -> float:
        if any(node.op_type == "QuantizeLinear" for node in model.model.graph.node):
            raise ValueError("labels")
        return 0.9

    result = quaver.fit(MODEL, calib_dataloader=names["batches"], eval_func=accuracy, strategy="basic")
    assert result.reason is quaver.StopReason.FAILURES and result.best is None and not result.met
    assert result.model is None and result.model_path is None
    assert str(result).startswith("no trial has a score (three trials in a row failed)")
    with pytest.raises(quaver.ModelError, match="no best model to save; see the errors in `trials`"):
        result.save("nothing.onnx")
