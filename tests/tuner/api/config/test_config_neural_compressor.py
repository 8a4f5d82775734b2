"""Files written for Neural Compressor: what they say here, and every word that says nothing, at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import quaver
from quaver import Config, SettingsError
from quaver.adapters import Repair, register_repair
from quaver.adapters.repairs import base as registry
from quaver.api.config.neural_compressor import translate
from quaver.api.config.resolve import make_config
from quaver.demo.data import Accuracy, digits

MODEL = Path(__file__).parents[4] / "tests" / "data" / "digits_resnet.onnx"

FILE_1X = """
version: 1.0
model: {name: resnet50, framework: onnxrt_qlinearops}
device: cpu
quantization:
  approach: post_training_static_quant
  recipes: {scale_propagation_max_pooling: True, first_conv_or_matmul_quantization: True}
  calibration: {sampling_size: "50, 100"}
  model_wise:
    weight: {granularity: per_channel, scheme: sym, dtype: int8, algorithm: minmax}
    activation: {granularity: per_tensor, dtype: "int8, fp32", algorithm: "minmax, kl"}
  optype_wise: {Gemm: {activation: {dtype: [fp32]}, weight: {dtype: [fp32]}}}
  op_wise: {conv1: {activation: {dtype: [uint8, fp32], algorithm: [minmax, kl]}}}
tuning:
  strategy: {name: mse}
  accuracy_criterion: {relative: 0.02}
  objective: performance
  exit_policy: {timeout: 0, max_trials: 40, performance_only: False}
  random_seed: 9527
  tensorboard: False
  workspace: {path: here}
"""
FILE_2X = """
device: cpu
backend: default
domain: auto
approach: static
quant_format: QDQ
quant_level: 1
calibration_sampling_size: [50, 100]
excluded_precisions: [bf16]
recipes: {smooth_quant: false, first_conv_or_matmul_quantization: true, layer_wise_quant: false}
op_type_dict: {Gemm: {activation: {dtype: [fp32]}}}
accuracy_criterion: {higher_is_better: true, criterion: absolute, tolerable_loss: 0.03}
tuning_criterion: {timeout: 0, max_trials: 30, objective: modelsize}
"""


def read(text: str) -> Config:
    return make_config(yaml.safe_load(text))


def problems(text: str) -> dict[str, str]:
    return {problem.key: problem.advice for problem in translate(yaml.safe_load(text)).problems}


def test_a_file_of_1x_is_translated_completely() -> None:
    config = read(FILE_1X)
    every = {
        "activation": {
            "mode": ["static"],
            "granularity": "per_tensor",
            "dtype": ["int8", "fp32"],
            "algorithm": ["minmax", "kl"],
        },
        "weight": {"granularity": "per_channel", "scheme": "sym", "algorithm": "minmax"},
    }
    assert config.op_type_dict == {
        "*": every,
        "Gemm": {"activation": {"dtype": ["fp32"]}, "weight": {"dtype": ["fp32"]}},
    }
    assert config.op_name_dict == {"conv1": {"activation": {"dtype": ["uint8", "fp32"], "algorithm": ["minmax", "kl"]}}}
    assert (config.framework, config.strategy, config.relative) == ("onnxrt_qlinearops", "mse", 0.02)
    assert (config.objective, config.max_trials, config.max_samples) == ("latency", 40, 100)
    assert config.workspace == "here"


def test_arguments_of_2x_are_translated_completely() -> None:
    config = read(FILE_2X)
    assert (config.absolute, config.relative, config.max_trials) == (0.03, None, 30)
    assert (config.strategy, config.objective, config.quant_format) == ("basic", "size", "qdq")
    assert config.calibration_sampling_size == (50, 100)
    every = {"activation": {"mode": ["static"], "dtype": ["fp32", "int8", "int4", "fp16"]}, "repairs": []}
    assert config.op_type_dict == {"*": every, "Gemm": {"activation": {"dtype": ["fp32"]}}}


@pytest.mark.parametrize("text", ["quantization: {reduce_range: %s}", "reduce_range: %s"])
def test_reduce_range_means_portable(text: str) -> None:
    assert read(text % "true").portable is True
    assert read(text % "false").portable is False
    assert read(text % "null").portable is None


def test_arguments_of_2x_may_stand_in_sections_of_a_file() -> None:
    nested = "quantization: {approach: static, quant_level: 0}\ntuning: {tuning_criterion: {max_trials: 3}}"
    config = read(nested)
    assert (config.strategy, config.max_trials) == ("conservative", 3)
    assert config.op_type_dict == {"*": {"activation": {"mode": ["static"]}}}


@pytest.mark.parametrize("text", [FILE_1X, FILE_2X])
def test_a_real_model_is_tuned_by_such_a_file(text: str, tmp_path: Path) -> None:
    images, _, test, labels = digits()
    content = yaml.safe_load(text)
    content.get("quantization", {}).pop("op_wise", None)  # names ops of another model
    written = tmp_path / "conf.yaml"
    written.write_text(yaml.safe_dump(content), encoding="utf-8")
    result = quaver.fit(
        MODEL,
        written,
        calib_dataloader=images[:64],
        eval_func=Accuracy(test, labels),
        workspace=tmp_path / "run",
        verbose=0,
    )
    assert result.met and result.best is not None
    kinds = {op.name: op.kind for op in quaver.read_snapshot(result.history_path).header.ops}
    assert all(choice.mode in ("", "static") for choice in result.best.config.values())
    assert not any(choice.quantized for name, choice in result.best.config.items() if kinds[name] == "Gemm")
    assert result.best.config.int8_ops


def test_the_recipes_of_a_file_repair_a_real_model(tmp_path: Path) -> None:
    images, _, test, labels = digits()
    recipes = {"smooth_quant": True, "smooth_quant_args": {"alpha": 0.5}, "fast_bias_correction": True}
    result = quaver.fit(
        MODEL.with_name("digits_encoder.onnx"),
        {"recipes": recipes, "approach": "static", "tuning_criterion": {"strategy": "basic", "max_trials": 1}},
        calib_dataloader=images[:64],
        eval_func=Accuracy(test, labels),
        workspace=tmp_path / "run",
        verbose=0,
    )
    done = {repair for choice in result.trials[0].config.values() for repair in choice.repairs}
    assert done == {"smoothing:0.5", "bias_correction"}


def test_one_error_names_every_key_without_counterpart_with_advice() -> None:
    text = """
    model: {name: a, framework: pytorch_fx}
    device: gpu
    quantization:
      approach: quant_aware_training
      recipes: {layer_wise_quant: true, last_conv_or_matmul_quantization: false, gptq_args: {percdamp: 0.1}, smoth: 1}
      op_wise: {conv1: {weight: {bits: 3, group_size: 32, dtype: float8}, activation: {dtipe: fp32}}}
      reduce_range: 7
    tuning:
      strategy: {name: sigopt, sigopt_api_token: secret}
      objective: footprint
      multi_objectives: {objective: [accuracy, performance], weight: [1, 2]}
      tensorboard: true
      exit_policy: {performance_only: true, max_trails: 3}
    pruning: {approach: {weight_compression: {start_epoch: 0}}}
    """
    with pytest.raises(SettingsError) as caught:
        read(text)
    said = str(caught.value)
    for key, instead in {
        "'model.framework'": "export the model to ONNX",
        "'device'": "run on the CPU",
        "'quantization.approach'": "trains",
        "'quantization.recipes.layer_wise_quant'": "leave it out",
        "'quantization.recipes.last_conv_or_matmul_quantization'": "op_name_dict: {NAME: fp32}",
        "'quantization.recipes.gptq_args'": "leave it out",
        "'quantization.recipes.smoth'": "did you mean 'smooth_quant'",
        "['weight']['bits']": "8 bits",
        "['weight']['group_size']": "8 bits",
        "['weight']['dtype']": "'float8' is not possible",
        "['activation']['dtipe']": "did you mean 'dtype'?",
        "'quantization.reduce_range'": "true or false",
        "'tuning.strategy.name'": "use 'bayesian'",
        "'tuning.strategy.sigopt_api_token'": "leave it out",
        "'tuning.objective'": "use 'size'",
        "'tuning.multi_objectives.objective'": "one objective at a time",
        "'tuning.multi_objectives.weight'": "one objective at a time",
        "'tuning.tensorboard'": "--track tensorboard",
        "'tuning.exit_policy.performance_only'": "max_trials: 1",
        "'tuning.exit_policy.max_trails'": "did you mean 'tuning.exit_policy.max_trials'",
        "'pruning.approach.weight_compression.start_epoch'": "does nothing else",
    }.items():
        line = next((line for line in said.splitlines() if key in line), "")
        assert instead in line, (key, said)
    assert "secret" not in said


def test_a_file_of_2x_with_approach_recipes_and_types_of_ops_runs(tmp_path: Path) -> None:
    images, _, test, labels = digits()
    text = """
    approach: dynamic
    quant_level: auto
    recipes: {smooth_quant: true, smooth_quant_args: {alpha: 0.5}, fast_bias_correction: true}
    op_type_dict:
      MatMul: {weight: {dtype: [int8, fp32], granularity: [per_channel]}, activation: {quant_mode: dynamic}}
    accuracy_criterion: {tolerable_loss: 0.05}
    tuning_criterion: {timeout: 0, max_trials: 2}
    """
    (tmp_path / "conf.yaml").write_text(text, encoding="utf-8")
    result = quaver.fit(
        MODEL.with_name("digits_encoder.onnx"),
        tmp_path / "conf.yaml",
        calib_dataloader=images[:64],
        eval_func=Accuracy(test, labels),
        workspace=tmp_path / "run",
        verbose=0,
    )
    kinds = {op.name: op.kind for op in quaver.read_snapshot(result.history_path).header.ops}
    products = [pick for name, pick in result.trials[0].config.items() if kinds[name] == "MatMul" and pick.quantized]
    assert {pick.mode for pick in products} == {"dynamic"}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (
            """
            approach: static
            recipes: {smooth_quant: true, smooth_quant_args: {alpha: auto, auto_alpha_args: {init_alpha: 0.5}},
                      weight_correction: true, gemm_to_matmul: false, dedicated_qdq_pair: true}
            op_type_dict: {Conv: {weight: {scheme: [sym], algorithm: [minmax]}, activation: {algorithm: [kl]}},
                           Add: {activation: {dtype: [fp32]}, weight: {dtype: [fp32]}}}
            tuning_criterion: {strategy: bayesian, strategy_kwargs: {confidence_batches: 2},
                               objective: [performance, accuracy]}
            """,
            ("recipes.weight_correction", "recipes.dedicated_qdq_pair", "recipes.smooth_quant_args.auto_alpha_args",
             "strategy_kwargs.confidence_batches", "tuning_criterion.objective"),
        ),
        (
            """
            approach: weight_only
            recipes: {rtn_args: {enable_full_range: true}, gptq_args: {percdamp: 0.01}, nonsense: 3}
            op_type_dict: {MatMul: {weight: {bits: 4, group_size: 32, scheme: sym, algorithm: GPTQ}}}
            diagnosis: true
            n_samples: 3
            """,
            ("recipes.rtn_args", "recipes.gptq_args", "recipes.nonsense", "['weight']['group_size']",
             "['weight']['scheme']", "['weight']['algorithm']", "n_samples"),
        ),
    ],
    ids=["static", "weight_only"],
)  # fmt: skip
def test_the_error_for_a_file_of_2x_names_exactly_the_keys_without_counterpart(
    text: str, named: tuple[str, ...]
) -> None:
    with pytest.raises(SettingsError) as caught:
        read(text)
    head, *lines = str(caught.value).splitlines()
    assert f"{len(named)} keys cannot be used" in head and len(lines) == len(named)
    assert all(any(key in line for line in lines) for key in named)


def test_keys_that_fit_takes_in_code_are_ignored_with_a_warning() -> None:
    text = """
    model: {name: a, inputs: image, outputs: logits}
    quantization: {calibration: {sampling_size: 10, dataloader: {dataset: {ImageFolder: {root: /data}}}}}
    evaluation: {accuracy: {metric: {topk: 1}}, performance: {warmup: 10}}
    """
    with pytest.warns(UserWarning, match="evaluation.accuracy.*eval_func") as caught:
        assert read(text) == Config(calibration_sampling_size=10)
    said = str(caught[0].message)
    assert "model.inputs" in said and "calibration.dataloader" in said and "evaluation.performance" in said
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("word", "mode"),
    [("static", "static"), ("dynamic", "dynamic"), ("post_training_dynamic_quant", "dynamic"), ("weight_only",) * 2],
)
def test_an_approach_is_a_mode_of_all_ops(word: str, mode: str) -> None:
    assert read(f"approach: {word}").op_type_dict == {"*": {"activation": {"mode": [mode]}}}


def test_the_approach_auto_allows_all_modes() -> None:
    assert read("approach: auto") == Config()
    assert "did you mean 'dynamic'" in problems("approach: dinamic")["approach"]


def test_onnxrt_integerops_means_dynamic_mode() -> None:
    config = read("model: {framework: onnxrt_integerops}\nquantization: {approach: post_training_dynamic_quant}")
    assert config.framework == "onnxruntime"
    assert config.op_type_dict == {"*": {"activation": {"mode": ["dynamic"]}}}


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        ("quant_level: 0", "conservative"),
        ("quant_level: 1", "basic"),
        ("quant_level: auto", "auto"),
        ("quant_level: 1\nstrategy: mse", "mse"),
        ("quant_level: 1\ntuning_criterion: {strategy: bayesian}", "bayesian"),
        ("quantization: {quant_level: 1}\ntuning: {strategy: {name: mse_v2}}", "mse_v2"),
    ],
)
def test_a_quant_level_is_a_strategy_unless_the_file_names_one(text: str, strategy: str) -> None:
    assert read(text).strategy == strategy


def test_keys_that_contradict_each_other_are_named() -> None:
    with pytest.raises(SettingsError, match="'strategy' is 'mse' here, and other keys mean 'conservative'"):
        read("quant_level: 0\nstrategy: mse")
    with pytest.raises(SettingsError, match="means strategy 'mse', and 'quant_level' means 'conservative'"):
        read("quant_level: 0\ntuning_criterion: {strategy: mse}")


def test_an_option_of_an_unknown_strategy_is_named() -> None:
    found = problems("tuning_criterion: {strategy: mse_v2, strategy_kwargs: {confidence_batches: 2, candidates: 5}}")
    assert found == {
        "tuning_criterion.strategy_kwargs.confidence_batches": "mse_v2 measures on all probe samples; leave it out"
    }
    config = read("tuning_criterion: {strategy: mse_v2, strategy_kwargs: {candidates: 5}}")
    assert (config.strategy, config.strategy_options) == ("mse_v2", {"candidates": 5})


def test_the_backend_of_workers_is_left_to_quaver() -> None:
    assert read("backend: loky\nn_jobs: 2").backend == "loky"
    assert read("backend: default").backend is None
    assert "CPU kernels" in problems("backend: onnxrt_cuda_ep")["backend"]


@pytest.fixture
def two_repairs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Smoothing and bias correction, registered."""
    monkeypatch.setattr(registry, "_registered", {})
    for called in ("smoothing", "bias_correction"):

        class Registered(Repair):
            name = called

            def statistics(self, op: Any) -> Any:
                return ()

            def apply(self, op: Any, statistics: Any, quantized: Any) -> Any:
                return op

        register_repair(Registered)
    yield


@pytest.mark.usefixtures("two_repairs")
@pytest.mark.parametrize(
    ("recipes", "allowed"),
    [
        ("{smooth_quant: true, fast_bias_correction: true}", ["smoothing", "bias_correction"]),
        ("{smooth_quant: true, smooth_quant_args: {alpha: auto}}", None),
        ("{smooth_quant: true, smooth_quant_args: {alpha: 0.5}}", ["smoothing:0.5"]),
        ("{smooth_quant: false}", []),
        ("{smooth_quant: false, fast_bias_correction: true}", ["bias_correction"]),
        ("{layer_wise_quant: false}", None),
    ],
)
def test_recipes_become_rules_on_repairs(recipes: str, allowed: list[str] | None) -> None:
    rules = read(f"recipes: {recipes}").op_type_dict
    assert rules == ({} if allowed is None else {"*": {"repairs": allowed}})


def test_a_recipe_without_its_repair_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})
    assert "'smoothing' is not offered here" in problems("recipes: {smooth_quant: true}")["recipes.smooth_quant"]
    assert problems("recipes: {smooth_quant: false, fast_bias_correction: false}") == {}


def test_four_bits_with_a_group_size_of_64_are_translated() -> None:
    rule = {"weight": {"bits": 4, "group_size": 64, "scheme": "asym"}}
    given = read("op_type_dict: {MatMul: {weight: {bits: 4, group_size: 64, scheme: asym}}}")
    assert given.op_type_dict == {"MatMul": rule}
