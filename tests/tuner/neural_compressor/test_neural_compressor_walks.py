"""Scripts for Neural Compressor run on quaver with their import lines changed, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pandas as pd
import pytest
from forms import f1, forms
from scripts import run_script

sys.path.insert(0, str(Path(__file__).parents[3]))

from benchmarks import planted
from quaver.demo.data import Accuracy, digits
from quaver.strategies import registry

TAGGER = Path(__file__).parents[2] / "data" / "layout_tagger.onnx"
CNN_YAML = """
version: 1.0
model:
  name: cnn
  framework: onnxrt
quantization:
  calibration:
    sampling_size: 160
tuning:
  strategy:
    name: mse
  accuracy_criterion:
    relative: 0.015
  exit_policy:
    timeout: 0
    max_trials: 500
  random_seed: 9527
"""


def run(script, **names):
    return run_script(script, "neural_compressor", "quaver.neural_compressor", **names)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    """Of its own; and what a script registers is gone after it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))


@pytest.fixture
def outlier():
    """A convolution net that one convolution ruins in int8, its calibration data and its eval_func."""
    train, _, images, labels = digits()
    model = planted.plant(onnx.load(planted.MODEL), planted.CASES["W1"])
    convolutions = [node.name for node in model.graph.node if node.op_type == "Conv"]
    return {"model": model, "dataloader": train[:128], "eval": Accuracy(images, labels), "culprit": convolutions[2]}


def test_quantize_diagnose_and_fall_back(outlier, capsys):
    after = run(
        """
        from neural_compressor import PostTrainingQuantConfig, quantization

        q_model = quantization.fit(
            model, PostTrainingQuantConfig(diagnosis=True), calib_dataloader=dataloader
        )
        poor = eval(q_model)

        config = PostTrainingQuantConfig(
            diagnosis=True, op_name_dict={culprit: {"activation": {"dtype": ["fp32"]}}}, quant_level=1
        )
        q_model = quantization.fit(model, config, calib_dataloader=dataloader, eval_func=eval)
        q_model.save("int8.onnx")
        """,
        **outlier,
    )
    printed = capsys.readouterr().out
    assert "Activations summary" in printed and "Weights summary" in printed
    assert after["poor"] < 0.5
    found = after["q_model"].result
    assert found.met and found.evaluations == 2
    assert found.best.config.fp32_ops == (outlier["culprit"],)
    assert Path("int8.onnx").stat().st_size < outlier["model"].ByteSize()


def test_benchmark_lists_ops_by_their_time(outlier, capsys):
    after = run(
        """
        from neural_compressor import BenchmarkConfig, benchmark

        found = benchmark.fit(model, BenchmarkConfig(diagnosis=True, iteration=5), b_dataloader=dataloader)
        """,
        **outlier,
    )
    printed = capsys.readouterr().out
    seconds = [row.seconds for row in after["found"].rows]
    assert seconds == sorted(seconds, reverse=True)
    assert after["found"].rows[0].name in printed and "throughput" in printed


class Forms:
    """A dataset of samples by number, as dicts and labels."""

    def __init__(self, count, seed):
        self.inputs, self.tags = forms(count, seed)

    def __len__(self):
        return len(self.tags)

    def __getitem__(self, index):
        return {name: array[index] for name, array in self.inputs.items()}, self.tags[index]


def tagged(model):
    inputs, tags = forms(48, 7)
    return f1(np.asarray(model(inputs)).argmax(-1), tags)


def test_the_walk_to_the_ops_with_a_wide_range():
    """Two regular expressions, found by sorting the table of activations, bring the score back."""
    after = run(
        """
        import glob
        import os

        import onnx
        import pandas as pd
        from neural_compressor import PostTrainingQuantConfig, quantization
        from neural_compressor.data import DataLoader
        from neural_compressor.utils.constant import FP32

        onnx_model = onnx.load(input_model)
        calib_dataset = dataset
        config = PostTrainingQuantConfig(approach="static", quant_format="QOperator")
        q_model = quantization.fit(
            onnx_model, config, calib_dataloader=DataLoader(framework="onnxruntime", dataset=calib_dataset)
        )
        naive = eval_func(q_model)

        config = PostTrainingQuantConfig(
            approach="static", quant_format="QOperator", quant_level=1, diagnosis=True
        )  # set 'diagnosis' to True
        diagnosed = quantization.fit(
            onnx_model,
            config,
            eval_func=eval_func,
            calib_dataloader=DataLoader(framework="onnxruntime", dataset=calib_dataset),
        )

        subfolders = glob.glob("./nc_workspace" + "/*/")
        subfolders.sort(key=os.path.getmtime, reverse=True)
        activations = pd.read_csv(os.path.join(subfolders[0], "activations_table.csv"))
        weights = pd.read_csv(os.path.join(subfolders[0], "weights_table.csv"))
        activations["Min-Max data range"] = activations["Activation max"] - activations["Activation min"]
        widest = activations.sort_values(by="Min-Max data range", ascending=False)

        config = PostTrainingQuantConfig(
            approach="static",
            quant_format="QOperator",
            op_name_dict={
                r"/layoutlmv3/encoder/layer.\\d+/output/dense/MatMul": FP32,
                r"/layoutlmv3/encoder/layer.\\d+/output/Add": FP32,
            },
        )
        q_model = quantization.fit(
            onnx_model, config, calib_dataloader=DataLoader(framework="onnxruntime", dataset=calib_dataset)
        )
        q_model.save(output_model)
        mended = eval_func(q_model)
        """,
        input_model=str(TAGGER),
        output_model="tagger-int8.onnx",
        dataset=Forms(64, 5),
        eval_func=tagged,
    )
    assert after["naive"] < 0.5
    assert after["mended"] > 0.99
    excluded = after["q_model"].q_config["quant_cfg"]["excluded_symbols"]
    assert len(excluded) == 6 and all("/output/Add" in name or "/output/dense/MatMul" in name for name in excluded)
    assert after["diagnosed"].result.met
    assert isinstance(after["widest"], pd.DataFrame)
    leading = list(after["widest"]["OP name"][:6])
    assert all("/output/Add" in name or "/output/dense/MatMul" in name for name in leading)
    kinds = {node.op_type for node in onnx.load("tagger-int8.onnx").graph.node}
    assert "QuantizeLinear" in kinds and "MatMul" in kinds


def test_a_yaml_file_a_quantizer_and_recover(outlier):
    Path("cnn.yaml").write_text(CNN_YAML, encoding="utf-8")
    after = run(
        """
        from neural_compressor.experimental import Quantization
        from neural_compressor.utils.utility import recover

        quantizer = Quantization("./cnn.yaml")
        quantizer.model = model
        quantizer.calib_dataloader = dataloader
        quantizer.eval_func = eval_func
        qnet = quantizer.fit().model
        qnet.export("__quantized")
        print(quantizer.strategy.best_qmodel.q_config["quant_cfg"])
        snapshot = qnet.result.history_path
        first = recover(model, snapshot, 0).model
        last = recover(model, snapshot, qnet.result.best.number - 1).model
        """,
        **outlier,
        eval_func=lambda net: float((net.forward(digits()[2]).argmax(1) == digits()[3]).mean()),
    )
    result = after["qnet"].result
    assert result.met and after["quantizer"].strategy.best_qmodel is after["qnet"]
    excluded = after["qnet"].q_config["quant_cfg"]["excluded_symbols"]
    assert outlier["culprit"] in excluded
    assert Path("__quantized.onnx").read_bytes() == after["last"].SerializeToString()
    assert not after["first"].q_config["quant_cfg"]["excluded_symbols"]
    assert result.history_path.parent.parent.name == "nc_workspace"


def test_a_strategy_of_ones_own(outlier):
    after = run(
        """
        from neural_compressor import PostTrainingQuantConfig, TuningCriterion, quantization
        from neural_compressor.strategy.strategy import TuneStrategy, strategy_registry

        heard = []


        @strategy_registry
        class WorstFirstTuneStrategy(TuneStrategy):
            def __init__(self, model, conf, q_dataloader, q_func=None, eval_func=None):
                super().__init__(model, conf, q_dataloader, q_func, eval_func)

            def next_tune_cfg(self):
                config = self.initial_tuning_cfg()
                yield config
                for name in self.probe.ranking():
                    heard.append(self.last_tune_result[0])
                    kind = self.tuning_space[name].kind
                    config["op"][name, kind] = {"activation": {"dtype": "fp32"}, "weight": {"dtype": "fp32"}}
                    yield config


        config = PostTrainingQuantConfig(tuning_criterion=TuningCriterion(strategy="worstfirst", max_trials=5))
        q_model = quantization.fit(model, config, calib_dataloader=dataloader, eval_func=eval)
        """,
        **outlier,
    )
    assert after["heard"] and after["heard"][0] < 0.5
    assert after["q_model"].result.met
    assert after["q_model"].q_config["quant_cfg"]["excluded_symbols"] == [outlier["culprit"]]
