"""What `portable` costs and what it brings: both settings on real models, on this processor and on an emulated one.

    python -m benchmarks.portable [NAME...]   # models of benchmarks.models and benchmarks.unseen; needs qemu-user

For each model `fit` runs with `portable=False` and with `portable=True`. The search may choose other calibrations and
repairs for the second, so the configuration of the first is built with `portable=True`, too ("same"). Scores are taken
on this machine; latency is processor time on one thread, all models and fp32 interleaved. Then some samples go through
each model natively and on an emulated processor without VNNI. Errors are relative to the float model's outputs here.

Where a C compiler and the system allow it, AVX512 and VNNI are hidden from a process (`mask_cpuid.c`), which runs the
kernels for AVX2 at full speed: the scores of all samples, and latencies, are then taken without VNNI, too.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import quaver
from benchmarks import result_files
from benchmarks.models import Bench
from benchmarks.models.bench import feeds
from benchmarks.peers.onnx_session import OnnxSession
from benchmarks.remedies import RELATIVE, find, in_turns
from quaver.adapters import AdapterOptions, load_model, load_unmodified
from quaver.adapters.onnxrt.build import affine
from quaver.affine import QuantizationParameters
from quaver.engine.emulation import EmulatedModel, EmulatedSession, emulator_command
from quaver.engine.inspection.output_error import as_outputs, relative_error, same_top1
from quaver.processors import noted_portability
from quaver.space import TuningSpace

MODELS = (
    "magika_filetype",
    "ppocr_cls180",
    "wakeword_embedding",
    "page_orientation",
    "paraphrase_minilm",
    "minilm_retrieval",
    "mobilenetv2_cifar10",
    "ppocrv4_en_rec",
    "resnet8_cifar10",
)
CPU = "haswell"
SAMPLES = 24


def measure(name: str, folder: Path, samples: int) -> list[dict[str, Any]]:
    """Return a row for each setting."""
    bench = find(name)
    rows = [_tune(bench, portable, folder / f"{name} {portable}") for portable in (False, True)]
    rows.append(_same_config(bench, folder / f"{name} False", rows[0]["trial"], folder / "same.onnx"))
    sessions = [OnnxSession(bench.model_path), *(OnnxSession(row["path"]) for row in rows)]
    fp32_seconds, *seconds = in_turns(sessions, bench.calib[0])
    paths = [row["path"] for row in rows]
    mask = compile_mask(folder)
    masked = [] if mask is None else _without_vnni(bench, paths, mask, folder)
    inputs = samples_of(bench, samples)
    reference = outputs_of(bench.model_path, inputs, [])
    for row, taken in zip(rows, seconds, strict=True):
        row["latency"] = round(taken / fp32_seconds, 3)
        path = row.pop("path")
        for place, command in (("native", []), (CPU, emulator_command(CPU))):
            outputs = outputs_of(path, inputs, command)
            row[f"error_{place}"] = error_of(reference, outputs)
            row[f"top1_{place}"] = same_top1(reference, outputs)
        row["samples"] = len(inputs)
    for row, figures in zip(rows, masked, strict=False):
        row |= figures
    return rows


def compile_mask(folder: Path) -> list[str] | None:
    """Return the command that hides VNNI from a program; None where that cannot be done."""
    library = folder / "mask_cpuid.so"
    source = Path(__file__).with_name("mask_cpuid.c")
    try:
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
        command = ["env", f"LD_PRELOAD={library}"]
        subprocess.run([*command, "true"], check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return command


def _without_vnni(bench: Bench, paths: list[Path], mask: list[str], folder: Path) -> list[dict[str, float]]:
    """Return the score and the latency of each model where VNNI is hidden."""
    feed = folder / "feed.npz"
    np.savez(feed, **bench.calib[0])
    timing = [*mask, sys.executable, "-m", "benchmarks.portable", "--time", feed, bench.model_path, *paths]
    fp32_seconds, *seconds = json.loads(subprocess.run(timing, capture_output=True, check=True).stdout)
    figures = []
    for path, taken in zip(paths, seconds, strict=True):
        native = load_unmodified(str(path), 1)
        with closing(EmulatedSession(path, mask, native)) as session:
            assert "AVX512VNNI" not in session.features and "AVX2" in session.features
            score = bench.eval_func(EmulatedModel(native, session))
        figures.append({"score_without_vnni": round(score, 4), "latency_without_vnni": round(taken / fp32_seconds, 3)})
    return figures


def _tune(bench: Bench, portable: bool, workspace: Path) -> dict[str, Any]:
    result = quaver.fit(
        str(bench.model_path),
        calib_dataloader=bench.calib,
        eval_func=bench.eval_func,
        relative=RELATIVE,
        threads=1,
        workspace=workspace,
        report=False,
        verbose=0,
        portable=portable,
    )
    assert result.best is not None and result.best.score is not None and result.model is not None
    noted = noted_portability(quaver.read_snapshot(workspace).notes)
    coarsened = None if noted is None else noted.coarsened
    return {
        "model": bench.name,
        "portable": portable,
        "met": result.met,
        "fp32": round(result.baseline or 0.0, 4),
        "score": round(result.best.score, 4),
        "held_out": round(bench.held_out_eval_func(result.model), 4),
        "evaluations": result.evaluations,
        "int8_ops": len(result.best.config.int8_ops),
        "fp32_ops": len(result.best.config.fp32_ops),
        "coarsened": None if coarsened is None else noted.to_dict()["coarsened"],  # type: ignore[union-attr]
        "trial": result.best.number,
        "path": result.model_path,
    }


def _same_config(bench: Bench, workspace: Path, trial: int, path: Path) -> dict[str, Any]:
    """Return the row of the best configuration of a run, built with `portable=True`."""
    snapshot = quaver.read_snapshot(workspace)
    config = snapshot.trial(trial).config
    with closing(load_model(str(bench.model_path), AdapterOptions(threads=1, portable=True))) as adapter:
        assert snapshot.header is not None
        adapter.restore(snapshot.header.calibration)
        model = adapter.assemble(config)
        model.save(path)
        return {
            "model": bench.name,
            "portable": "same",
            "score": round(bench.eval_func(model), 4),
            "held_out": round(bench.held_out_eval_func(model), 4),
            "coarsened": adapter.portability_of(config).to_dict()["coarsened"],
            "path": path,
        }


def compare_ways(name: str, samples: int) -> dict[str, Any]:
    """Return the relative output error of a model with all ops in int8, each way to rule overflow out."""
    bench = find(name)
    inputs = samples_of(bench, samples)
    reference = outputs_of(bench.model_path, inputs, [])
    row: dict[str, Any] = {"model": name, "samples": len(inputs)}
    for way, portable, patches in WAYS:
        with (
            ExitStack() as stack,
            closing(load_model(str(bench.model_path), AdapterOptions(threads=1, portable=portable))) as adapter,
        ):
            for target, function in patches:
                stack.enter_context(patch(target, function))
            adapter.calibrate(bench.calib)
            model = adapter.assemble(TuningSpace(adapter.ops()).without(adapter.ops_with_mask_values).default_config())
            outputs = [as_outputs(model.run(feed)) for feed in inputs]
        row[way] = error_of(reference, outputs)
    return row


def _seven_bit_weights(weight: Any, axis: int | None, reduction: Any = None) -> Any:
    """Scale all weights to at most 64 steps: what a blanket reduce_range does."""
    return affine.weight_scale(weight, axis) * np.float32(127 / 64)


def _any_two_weights(weight: Any, axis: int | None, reduction: Any = None) -> Any:
    """Scale weights so that no two of a channel overflow, whichever are neighbours."""
    scale = affine.weight_scale(weight, axis)
    if axis is None or reduction is None:
        return scale * np.float32(127 / 64 if reduction is not None else 1)
    rows = np.sort(np.moveaxis(weight, axis, 0).reshape(weight.shape[axis], -1), axis=1)
    largest = np.maximum(rows[:, -2:].clip(0).sum(axis=1), -rows[:, :2].clip(None, 0).sum(axis=1))
    return np.maximum(scale, largest / np.float32(128)).astype(np.float32)


def _seven_bit_activations(low: float, high: float, scheme: str) -> QuantizationParameters:
    """Map the calibrated range onto 0..127; what lies beyond it can still overflow."""
    params = affine.activation_parameters(low, high, scheme)
    return QuantizationParameters(params.scale * np.float32(255 / 127), (params.zero_point // 2).astype(np.uint8))


_BUILD = "quaver.adapters.onnxrt.build"
# What a way is called, whether neighbours are bounded, and what is done instead of the usual.
WAYS: tuple[tuple[str, bool, tuple[tuple[str, Any], ...]], ...] = (
    ("none", False, ()),
    ("neighbours bounded", True, ()),
    ("any two weights bounded", True, ((f"{_BUILD}.weight_store.weight_scale", _any_two_weights),)),
    ("all weights on 7 bits", False, ((f"{_BUILD}.weight_store.weight_scale", _seven_bit_weights),)),
    ("activations on 7 bits", False, ((f"{_BUILD}.builder.activation_parameters", _seven_bit_activations),)),
)


def samples_of(bench: Bench, count: int) -> list[dict[str, Any]]:
    """Return the first evaluation samples, one in each feed where the model allows it."""
    batch = min(bench.eval_func.batch, 1)
    return [dict(feed) for feed, _ in zip(feeds(bench.eval_func.inputs, batch), range(count), strict=False)]


def outputs_of(path: Path, inputs: list[dict[str, Any]], command: list[str]) -> list[Any]:
    """Return the outputs of a model for each feed, in a process that `command` runs."""
    native = load_unmodified(str(path), 1)
    with closing(EmulatedSession(path, command, native)) as session:
        return [as_outputs(session.run(None, feed)) for feed in inputs]


def error_of(reference: list[Any], outputs: list[Any]) -> float:
    """Return the norm of the difference over the norm of the reference, in three digits."""
    return float(f"{math.sqrt(relative_error(reference, outputs)):.3g}")


def summary(rows: list[dict[str, Any]]) -> str:
    """Return a table with a line for each model."""
    lines = [
        "| model | score fp32 / False / True / same | held out False / True / same | latency False / True / same "
        "| score without VNNI | latency without VNNI "
        f"| coarser channels | error False: native -> {CPU} | error True: native -> {CPU} "
        f"| error same: native -> {CPU} | top-1 on {CPU} False / True / same |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for off, on, same in zip(rows[::3], rows[1::3], rows[2::3], strict=True):
        coarser = on["coarsened"]
        share = coarser["coarser_channels"] / max(coarser["channels"], 1) if coarser else 0.0
        cells = (
            on["model"],
            f"{on['fp32']} / {off['score']} / {on['score']} / {same['score']}",
            f"{off['held_out']} / {on['held_out']} / {same['held_out']}",
            f"{off['latency']} / {on['latency']} / {same['latency']}",
            " / ".join(str(row.get("score_without_vnni")) for row in (off, on, same)),
            " / ".join(str(row.get("latency_without_vnni")) for row in (off, on, same)),
            f"{share:.0%} of {coarser['ops'] if coarser else 0} ops",
            *(f"{row['error_native']} -> {row[f'error_{CPU}']}" for row in (off, on, same)),
            f"{off[f'top1_{CPU}']} / {on[f'top1_{CPU}']} / {same[f'top1_{CPU}']}",
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and write the results; those of models that are not named stay as they are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"models; {', '.join(MODELS)} by default")
    parser.add_argument("--time", nargs="+", metavar="PATH", help="time the models on a .npz, and print the seconds")
    parser.add_argument("--samples", type=int, default=SAMPLES, help=f"that go through both (default: {SAMPLES})")
    args = parser.parse_args()
    if args.time:
        with np.load(args.time[0]) as arrays:
            print(json.dumps(in_turns([OnnxSession(path) for path in args.time[1:]], dict(arrays))))
        return
    emulator_command(CPU)  # say it now if there is none
    names = args.names or list(MODELS)
    rows = [row for row in result_files.rows_of("portable") if row["model"] not in names]
    ways = [row for row in result_files.read("portable").get("ways", []) if row["model"] not in names]
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            measured = measure(name, Path(folder), args.samples)
        rows += measured
        ways.append(compare_ways(name, args.samples))
        print(summary(measured), ways[-1], sep="\n", flush=True)
        title = "What `portable` costs and brings"
        result_files.write("portable", title, measured, replaces=["model"], emulated=CPU, ways=ways)
    print(summary(rows))


if __name__ == "__main__":
    main()
