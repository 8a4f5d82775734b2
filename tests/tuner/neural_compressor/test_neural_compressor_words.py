"""What has no counterpart is named at once; what has one arrives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from quaver.errors import HistoryError, SettingsError
from quaver.history import read_snapshot
from quaver.neural_compressor import (
    AccuracyCriterion,
    BenchmarkConfig,
    PostTrainingQuantConfig,
    TuningCriterion,
    benchmark,
    quantization,
)
from quaver.neural_compressor.data import DataLoader
from quaver.neural_compressor.experimental import Quantization
from quaver.neural_compressor.strategy import TuneStrategy, strategy_registry
from quaver.neural_compressor.utils.constant import FP32
from quaver.neural_compressor.utils.utility import recover
from quaver.rules import parse


def test_every_word_arrives_as_a_setting():
    config = PostTrainingQuantConfig(
        approach="static",
        quant_format="QOperator",
        calibration_sampling_size=64,
        op_name_dict={"conv1": FP32},
        diagnosis=True,
        tuning_criterion=TuningCriterion(strategy="mse", timeout=60, max_trials=7, objective="modelsize"),
        accuracy_criterion=AccuracyCriterion(criterion="absolute", tolerable_loss=0.5, higher_is_better=False),
    )
    wanted = {
        "quant_format": "qoperator", "calibration_sampling_size": 64, "diagnosis": True, "strategy": "mse",
        "timeout": 60, "max_trials": 7, "objective": "size", "absolute": 0.5, "higher_is_better": False,
    }  # fmt: skip
    assert wanted.items() <= config.settings.items()
    assert parse(config.settings["op_name_dict"]["conv1"], "rule") == {"precision": frozenset(["fp32"])}


def test_all_that_cannot_be_done_is_named_at_once():
    with pytest.raises(SettingsError) as raised:
        PostTrainingQuantConfig(
            backend="onnxrt_cuda_ep", recipes={"layer_wise_quant": True}, quant_levle=1, device="gpu"
        )
    said = str(raised.value)
    for word in ("onnxrt_cuda_ep", "layer_wise_quant", "quant_levle", "gpu"):
        assert word in said


@pytest.mark.parametrize("kind", [TuningCriterion, AccuracyCriterion, BenchmarkConfig])
def test_unknown_keywords_are_all_named(kind):
    with pytest.raises(SettingsError, match=r"'one'.*'other'"):
        kind(one=1, other=2)


def test_several_instances_are_refused_before_any_work():
    with pytest.raises(SettingsError, match="num_of_instance"):
        BenchmarkConfig(num_of_instance=4)


def test_what_is_not_used_is_said():
    config = PostTrainingQuantConfig()
    with pytest.raises(SettingsError, match="calib_func"):
        quantization.fit("model.onnx", config, calib_func=print)
    with pytest.raises(SettingsError, match="pass both, or an eval_func"):
        quantization.fit("model.onnx", config, eval_metric=object())
    with pytest.raises(SettingsError, match="PostTrainingQuantConfig"):
        quantization.fit("model.onnx", {"approach": "static"})
    with pytest.raises(SettingsError, match="b_func"):
        benchmark.fit("model.onnx", BenchmarkConfig(), b_func=print)
    with pytest.raises(SettingsError, match="'modle'; it has: model"):
        Quantization().modle = 1
    with pytest.raises(SettingsError, match=r"quantizer\.model"):
        Quantization().fit()
    with pytest.raises(SettingsError, match="0 or more"):
        recover("model.onnx", "history.snapshot", -1)


def test_recover_counts_configurations_from_zero():
    snapshot = Path(__file__).parents[2] / "history" / "data" / "digits-3.snapshot"
    count = len(read_snapshot(snapshot).trials)
    with pytest.raises(HistoryError, match=rf"no configuration {count}; it has 0 to {count - 1}"):
        recover("model.onnx", snapshot, count)


def test_a_strategy_must_be_a_generator():
    with pytest.raises(Exception, match="must be a generator"):

        @strategy_registry
        class Listed(TuneStrategy):
            def next_tune_cfg(self):
                return []


def test_a_loader_stacks_samples_of_every_form():
    pairs = [(np.full(3, index), index) for index in range(5)]
    batches = list(DataLoader(framework="onnxruntime", dataset=pairs, batch_size=2))
    assert [batch[0].shape for batch in batches] == [(2, 3), (2, 3), (1, 3)]
    assert list(batches[2][1]) == [4]
    named = DataLoader("onnxruntime", dataset=iter([{"x": np.zeros(2)}]))
    assert [batch["x"].shape for batch in named] == [(1, 2)]
    with pytest.raises(SettingsError, match="sampler"):
        DataLoader("onnxruntime", dataset=pairs, sampler=object())
