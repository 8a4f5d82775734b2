"""A decoder language model: what `auto` finds for a criterion and for budgets, beside ONNX Runtime's own tool.

    python -m benchmarks.language_model smollm2.onnx tokens.npy            # all parts; about 15 minutes on a quiet core
    python -m benchmarks.language_model smollm2.onnx tokens.npy budgets    # one part: criterion, budgets or tool

`smollm2.onnx` is SmolLM2-135M-Instruct as torch exports it, with `input_ids` and `attention_mask`; `tokens.npy` holds
texts of 128 tokens. The first 32 texts are scored, and 32 others, from number 100 on, are the calibration data.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import quaver
from benchmarks import result_files
from quaver.adapters import load_unmodified
from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.adapters.options import AdapterOptions
from quaver.metrics.language import log_probabilities
from quaver.ops import FLOAT, QuantConfig
from quaver.types import Array, Feed
from quaver.weight_table import Assignment, WeightTable

TEXTS, FIRST_CALIBRATION, BATCH = 32, 100, 4
LIMITS = (160e6, 130e6, 110e6, 90e6)
ALLOWED = 0.02
KEYS = ("part", "what")


class Scores:
    """Perplexity and divergence of models on the scored texts, in one run of each; the float model runs once."""

    def __init__(self, ids: Array) -> None:
        self._feeds = list(feeds(ids[:TEXTS]))
        self._float: list[Array] = []

    def reference(self, model: Any) -> float:
        """Return the perplexity of the float model, and keep its log probabilities in half precision."""
        perplexity, _ = self._run(model, keep=True)
        return perplexity

    def of(self, model: Any) -> tuple[float, float]:
        """Return perplexity and divergence."""
        return self._run(model, keep=False)

    def _run(self, model: Any, keep: bool) -> tuple[float, float]:
        loss, lost, count = 0.0, 0.0, 0
        for at, feed in enumerate(self._feeds):
            logs = log_probabilities(model.run(feed))
            if keep:
                self._float.append(logs.astype(np.float16))
            else:
                teacher = self._float[at].astype(np.float32)
                lost += float((np.exp(teacher) * (teacher - logs)).sum(dtype=np.float64))
            chosen = np.take_along_axis(logs[:, :-1], feed["input_ids"][:, 1:, None], -1)
            loss -= float(chosen.sum(dtype=np.float64))
            count += chosen.size
        tokens = sum(feed["input_ids"].size for feed in self._feeds)
        return float(np.exp(loss / count)), lost / tokens


def feeds(ids: Array) -> Iterator[Feed]:
    """Yield texts in batches, with an attention mask of ones."""
    for at in range(0, len(ids), BATCH):
        part = ids[at : at + BATCH]
        yield {"input_ids": part, "attention_mask": np.ones_like(part)}


def criterion(path: Path, ids: Array, scores: Scores) -> Iterator[dict[str, Any]]:
    """Tune with a criterion of 2 % perplexity, and yield a row."""
    spent: list[float] = []

    def perplexity(model: Any) -> float:
        began = time.process_time()
        value, _ = scores.of(model)
        spent.append(time.process_time() - began)
        return value

    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        result = quaver.fit(
            str(path),
            calib_dataloader=list(feeds(ids[FIRST_CALIBRATION : FIRST_CALIBRATION + TEXTS])),
            eval_func=perplexity,
            objective="size",
            relative=ALLOWED,
            higher_is_better=False,
            workspace=Path(folder) / "run",
            report=False,
        )
        seconds = time.process_time() - began
    best = result.best
    assert best is not None
    yield {
        "part": "criterion", "what": "auto, 2 % perplexity", "met": result.met, "evaluations": len(spent),
        "bytes": best.model_size, "perplexity": best.score, "loss": best.loss,
        "cpu_seconds_outside": seconds - sum(spent), "cpu_seconds_of_an_evaluation": float(np.median(spent)),
        "peak_gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }  # fmt: skip


def budgets(path: Path, ids: Array, scores: Scores) -> Iterator[dict[str, Any]]:
    """Build the best assignment of each size with and without rounding, and yield a row for each."""
    adapter = OnnxAdapter.load(path, AdapterOptions(threads=2))
    adapter.calibrate(list(feeds(ids[FIRST_CALIBRATION : FIRST_CALIBRATION + TEXTS])))
    table = adapter.weight_table([adapter.group_divergence(group) for group in adapter.weight_groups()])
    plain = WeightTable(
        [
            [option for option in options if not any(pick.repairs for pick in option.picks.values())]
            for options in table.weights
        ]
    )
    start = QuantConfig((op.name, FLOAT) for op in adapter.ops())
    rest = adapter.assemble(None).size - table.in_fp32().bytes
    yield _row(adapter, start, table.finest_quantized(), scores, "budgets", "8 bits")
    for limit in LIMITS:
        for name, choices in (("with rounding", table), ("nearest rounding", plain)):
            assignment = choices.within_bytes(limit - 2 * max(rest, 0))
            if assignment is not None:
                yield _row(adapter, start, assignment, scores, "budgets", f"{limit / 1e6:.0f} MB, {name}")
    adapter.close()


def _row(
    adapter: OnnxAdapter, start: QuantConfig, assignment: Assignment, scores: Scores, part: str, what: str
) -> dict[str, Any]:
    model = adapter.assemble(start.replace(assignment.picks))
    perplexity, divergence = scores.of(model)
    size = model.size
    model.close()
    return {
        "part": part, "what": what, "bytes": size, "perplexity": perplexity, "divergence": divergence,
        "predicted": assignment.divergence,
    }  # fmt: skip


def tool(path: Path, _: Array, scores: Scores) -> Iterator[dict[str, Any]]:
    """Quantize with ONNX Runtime's tool in four ways, and yield a row for each."""
    from onnxruntime.quantization import matmul_nbits_quantizer as nbits

    products = [node for node in onnx.load(path, load_external_data=False).graph.node if node.op_type == "MatMul"]
    with tempfile.TemporaryDirectory() as folder:
        for what, bits, block in (("int8", 8, 128), ("int4", 4, 64), ("int4", 4, 32), ("mixed", 4, 32)):
            model = onnx.load(path)
            if what == "mixed":
                eight = {name: {"bits": 8} for name in _mixed_rule(model, [node.name for node in products])}
                config: Any = nbits.KQuantWeightOnlyQuantConfig(customized_weight_config=eight)
                quantizer = nbits.MatMulNBitsQuantizer(model, block_size=block, accuracy_level=4, algo_config=config)
            else:
                quantizer = nbits.MatMulNBitsQuantizer(
                    model, bits=bits, block_size=block, is_symmetric=False, accuracy_level=4
                )
            quantizer.process()
            target = Path(folder) / "model.onnx"
            quantizer.model.save_model_to_file(str(target), use_external_data_format=False)
            opened = load_unmodified(target)
            perplexity, divergence = scores.of(opened)
            opened.close()
            yield {
                "part": "tool", "what": f"ORT {what}, block {block}", "bytes": target.stat().st_size,
                "perplexity": perplexity, "divergence": divergence,
            }  # fmt: skip


def _mixed_rule(model: onnx.ModelProto, products: list[str]) -> list[str]:
    """Return the products in 8 bits by the rule of the tool's users: v and down of some layers, and the head."""
    weights = {tensor.name for tensor in model.graph.initializer}
    names = [node.name for node in model.graph.node if node.name in products and node.input[1] in weights]
    head, layers = model.graph.node[-1].name, [names[at : at + 7] for at in range(0, len(names) - 6, 7)]
    count, eight = len(layers), [head]
    for at, layer in enumerate(layers):
        if at < count / 8 or at >= 7 * count / 8 or (at - count // 8) % 3 == 2:
            eight += [layer[2], layer[6]]
    return eight


PARTS = {"criterion": criterion, "budgets": budgets, "tool": tool}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("tokens", type=Path)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[*PARTS])
    options = parser.parse_args()
    ids = np.load(options.tokens).astype(np.int64)
    scores = Scores(ids)
    opened = load_unmodified(options.model)
    rows = [{"part": "float", "what": "fp32", "bytes": opened.size, "perplexity": scores.reference(opened)}]
    opened.close()
    for part in options.parts:
        for row in PARTS[part](options.model, ids, scores):
            print(row, flush=True)
            rows.append(row)
            result_files.write(
                "language_model", "SmolLM2-135M on docstrings: perplexity, divergence and bytes", rows, replaces=KEYS
            )


if __name__ == "__main__":
    main()
