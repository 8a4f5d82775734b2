"""A decoder language model: what `auto` finds for a criterion and for budgets, beside ONNX Runtime's own tool.

    python -m benchmarks.language_model smollm2/ docstrings.npy reviews.npy             # all parts
    python -m benchmarks.language_model smollm2/ docstrings.npy reviews.npy budgets     # one part

`smollm2/` is SmolLM2-135M-Instruct in fp32 as the model builder of onnxruntime-genai writes it; docs/llm.md shows how
to get it. The other files hold texts of 128 token numbers. Of the first file, the first 16 texts are scored, and 16
others, from number 100 on, are the calibration data. Of the second, 4 texts are scored: another kind of text. The
folder that the criterion leads to is saved to `--save`, and the part `times` times it.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import quaver
from benchmarks import result_files
from quaver.adapters import load_unmodified
from quaver.adapters.generation import CONFIG, model_file
from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.adapters.options import AdapterOptions
from quaver.engine.timing.steps import step_latencies
from quaver.metrics.language import log_probabilities
from quaver.ops import FLOAT, INT4, INT8, OpConfig, QuantConfig
from quaver.types import Array
from quaver.weight_table import WeightTable

TEXTS, OTHER_TEXTS, FIRST_CALIBRATION, BATCH = 16, 4, 100, 4
LIMITS = (160e6, 130e6, 110e6, 90e6)
ALLOWED = 0.02
KEYS = ("part", "what")
Row = dict[str, Any]


@dataclass
class Scores:
    """Perplexity and divergence of models on the scored texts, in one run of each; the float model runs once."""

    texts: dict[str, Array]
    _float: dict[str, list[Array]] = field(default_factory=dict)

    def of(self, model: Any, kinds: Iterable[str] = ("", "other_")) -> Row:
        """Return perplexity and divergence on both kinds of text. The first model is the float model."""
        row: Row = {}
        for kind in kinds:
            loss, lost, same, count = 0.0, 0.0, 0, 0
            is_first = kind not in self._float
            expected = self._float.setdefault(kind, [])
            for at in range(0, len(self.texts[kind]), BATCH):
                ids = self.texts[kind][at : at + BATCH]
                logs = log_probabilities(first_output(model(ids)))
                if is_first:
                    expected.append(logs.astype(np.float16))
                teacher = expected[at // BATCH].astype(np.float32)
                lost += float((np.exp(teacher) * (teacher - logs)).sum(dtype=np.float64))
                same += int((teacher.argmax(-1) == logs.argmax(-1)).sum())
                loss -= float(np.take_along_axis(logs[:, :-1], ids[:, 1:, None], -1).sum(dtype=np.float64))
                count += ids.size
            predicted = count - len(self.texts[kind])
            row |= {f"{kind}perplexity": float(np.exp(loss / predicted))}
            if not is_first:
                row |= {f"{kind}divergence": max(lost / count, 0.0), f"{kind}same_top_token": same / count}
        return row


@dataclass(frozen=True)
class Setting:
    """The model, the data and the folder of results that each part of the benchmark uses."""

    folder: Path
    calibration: list[Array]
    scores: Scores
    save: Path


def first_output(result: Any) -> Array:
    """Return the scores of all tokens; the cache follows them."""
    return np.asarray(result[0] if isinstance(result, list) else result)


def criterion(setting: Setting) -> Iterator[Row]:
    """Tune with a criterion of 2 % perplexity, save the folder, and yield a row."""
    spent: list[float] = []

    def perplexity(model: Any) -> float:
        began = time.process_time()
        score: float = setting.scores.of(model, [""])["perplexity"]
        spent.append(time.process_time() - began)
        return score

    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        result = quaver.fit(
            setting.folder,
            calib_dataloader=setting.calibration,
            eval_func=perplexity,
            objective="size",
            relative=ALLOWED,
            higher_is_better=False,
            threads=1,
            timeout=3600,  # without one, the first success ends the search
            workspace=Path(folder) / "run",
            report=False,
        )
        seconds = time.process_time() - began
        best = result.best
        assert best is not None
        result.save(setting.save)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    saved = load_unmodified(setting.save, threads=1)
    yield {
        "part": "criterion", "what": "quaver, 2 % perplexity", "met": result.met, "evaluations": len(spent),
        "bytes": best.model_size, "loss": best.loss, "cpu_seconds_outside": seconds - sum(spent),
        "cpu_seconds_of_an_evaluation": float(np.median(spent)), "peak_gigabytes": peak,
        "trials": [[trial.score, trial.model_size] for trial in result.trials], **setting.scores.of(saved),
    }  # fmt: skip
    saved.close()


def budgets(setting: Setting) -> Iterator[Row]:
    """Yield a row for the best assignment of each size with and without rounding, and for each size of the tool."""
    adapter, table = studied(setting)
    plain = WeightTable(
        [
            [option for option in options if not any(pick.repairs for pick in option.picks.values())]
            for options in table.weights
        ]
    )
    start = QuantConfig((op.name, FLOAT) for op in adapter.ops())
    rest = adapter.assemble(None).size - table.in_fp32().bytes
    limits = [(limit, f"{limit / 1e6:.0f} MB") for limit in LIMITS]
    rows = [row for row in result_files.rows_of("language_model") if row["part"] == "tool"]
    equal = [(row["bytes"], f"bytes of {row['what']}") for row in rows if "int8" not in row["what"]]
    jobs = [(size, name, kind) for size, name in limits for kind in ("with rounding", "nearest rounding")]
    jobs += [(size, name, "with rounding") for size, name in equal]
    for limit, name, kind in jobs:
        assignment = (table if kind == "with rounding" else plain).within_bytes(limit - 2 * max(rest, 0))
        if assignment is not None:
            yield _row(adapter, start.replace(assignment.picks), setting, f"{name}, {kind}", assignment.divergence)
    finest = table.finest_quantized()
    yield _row(adapter, start.replace(finest.picks), setting, "8 bits", finest.divergence)
    row = _row(adapter, mixed_rule([op.name for op in adapter.ops()]), setting, "mixed rule, tied head in 8 bits", None)
    yield row
    best = table.within_bytes(row["bytes"] - 2 * max(rest, 0))
    assert best is not None
    yield _row(adapter, start.replace(best.picks), setting, "bytes of the mixed rule, with rounding", best.divergence)
    adapter.close()


def mixed_rule(names: list[str]) -> QuantConfig:
    """Return the tool's mixed rule in quaver's choices: the tied head and some products in 8 bits, the others in 4."""
    eight = OpConfig(INT8, granularity="per_block", mode="weight_only")
    four = OpConfig(INT4, granularity="per_block_32", mode="weight_only")
    wide = {name for name in names if "layers." not in name} | set(wide_products(names))
    return QuantConfig((name, eight if name in wide else four) for name in names)


def studied(setting: Setting) -> tuple[OnnxAdapter, WeightTable]:
    """Return the calibrated model and the table of its weights."""
    adapter = OnnxAdapter.load(setting.folder, AdapterOptions(threads=1))
    adapter.calibrate(setting.calibration)
    return adapter, adapter.weight_table([adapter.group_divergence(group) for group in adapter.weight_groups()])


def _row(adapter: OnnxAdapter, config: QuantConfig, setting: Setting, what: str, predicted: float | None) -> Row:
    model = adapter.assemble(config)
    row = {"part": "budgets", "what": what, "bytes": model.size, "predicted": predicted, **setting.scores.of(model)}
    model.close()
    return row


def tool(setting: Setting) -> Iterator[Row]:
    """Quantize with ONNX Runtime's tool in four ways, and yield a row for each."""
    from onnxruntime.quantization import matmul_nbits_quantizer as nbits

    source = model_file(setting.folder)
    names = [node.name for node in onnx.load(source, load_external_data=False).graph.node if node.op_type == "MatMul"]
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(setting.folder / CONFIG, folder)
        for what, bits, block in (("int8", 8, 128), ("int4", 4, 64), ("int4", 4, 32), ("mixed", 4, 32)):
            model = onnx.load(source)
            if what == "mixed":
                eight = {name: {"bits": 8} for name in [*wide_products(names), *names[-1:]]}
                config: Any = nbits.KQuantWeightOnlyQuantConfig(customized_weight_config=eight)
                quantizer = nbits.MatMulNBitsQuantizer(model, block_size=block, accuracy_level=4, algo_config=config)
            else:
                quantizer = nbits.MatMulNBitsQuantizer(
                    model, bits=bits, block_size=block, is_symmetric=False, accuracy_level=4
                )
            quantizer.process()
            target = Path(folder) / "model.onnx"
            quantizer.model.save_model_to_file(str(target), use_external_data_format=False)
            opened = load_unmodified(target, threads=1)
            scores = setting.scores.of(opened)
            opened.close()
            yield {"part": "tool", "what": f"ORT {what}, block {block}", "bytes": target.stat().st_size, **scores}


def wide_products(names: list[str]) -> list[str]:
    """Return the products in 8 bits by the rule of the tool's users: v and down of the outer and of each third layer.

    The model has q, k and v in one product.
    """
    count = len({name.partition("layers.")[2].partition("/")[0] for name in names if "layers." in name})
    wide = [at for at in range(count) if at < count / 8 or at >= 7 * count / 8 or (at - count // 8) % 3 == 2]
    return [name for at in wide for name in names if f"layers.{at}/" in name and ("qkv" in name or "down" in name)]


def times(setting: Setting) -> Iterator[Row]:
    """Time the prompt and the next token of the saved model and of uniform choices, all interleaved with fp32."""
    adapter = OnnxAdapter.load(setting.folder, AdapterOptions(threads=1))
    adapter.calibrate(setting.calibration[:1])
    choices = {
        "int8, blocks": OpConfig(INT8, granularity="per_block", mode="weight_only"),
        "int8, dynamic": OpConfig(INT8, mode="dynamic"),
        "int4, blocks of 32": OpConfig(INT4, granularity="per_block_32", mode="weight_only"),
        "int4, blocks of 64": OpConfig(INT4, granularity="per_block", mode="weight_only"),
    }
    models = {"quaver, 2 % perplexity": load_unmodified(setting.save, threads=1)}
    for what, choice in choices.items():
        picks = [(op.name, choice if choice in op.choices else op.choices[0]) for op in adapter.ops()]
        models[what] = adapter.assemble(QuantConfig(picks))
    steps = step_latencies([*models.values()], adapter.assemble(None), adapter.probe_samples[0], seconds=60)
    for (what, model), step in zip(models.items(), steps, strict=True):
        yield {
            "part": "times", "what": what, "bytes": model.size, "tokens": step.tokens, "prompt": step.prompt,
            "prompt_ms": step.prompt_ms, "token": step.token, "token_ms": step.token_ms,
        }  # fmt: skip
    adapter.close()


PARTS = {"criterion": criterion, "times": times, "tool": tool, "budgets": budgets}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("others", type=Path)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[*PARTS])
    parser.add_argument("--save", type=Path, default=Path("build") / "small_language_model")
    options = parser.parse_args()
    ids, others = (np.load(path).astype(np.int64) for path in (options.texts, options.others))
    texts = ids[FIRST_CALIBRATION : FIRST_CALIBRATION + TEXTS]
    batches = [texts[at : at + BATCH] for at in range(0, len(texts), BATCH)]
    setting = Setting(options.folder, batches, Scores({"": ids[:TEXTS], "other_": others[:OTHER_TEXTS]}), options.save)
    opened = load_unmodified(options.folder, threads=1)
    rows = [{"part": "float", "what": "fp32", "bytes": opened.size, **setting.scores.of(opened)}]
    opened.close()
    for part in options.parts:
        for row in PARTS[part](setting):
            print(row, flush=True)
            rows.append(row)
            title = "SmolLM2-135M: perplexity, divergence, bytes and times, on docstrings and on film reviews"
            result_files.write("language_model", title, rows, replaces=KEYS)


if __name__ == "__main__":
    main()
