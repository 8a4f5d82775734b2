"""Compare this version with an older one on real models: evaluations, latency, scores, processor time and memory.

    python -m benchmarks.versions [--before COMMIT] [--repeats N] [--busy] [--again] [NAME...]

Both versions tune each model in a process of their own, on one thread, with an empty timing cache and the same data.
The older one is installed from git into `build/versions`, and its runs are kept there; `--again` repeats them. Then all
models run in one process, interleaved: the float model, the two tuned ones, and those that `quantize_static` gives in
four ways. Latency is processor time on one thread
as a part of the float model's, batch 1: lower quartile, median, upper quartile.

The multiple of the roofline is a model's time over the time that its multiplications would take at 210 billion int8
multiply-adds a second, which one core of the machine that the figure comes from can do (docs/kernels.md).

Models are those of `benchmarks.models` and `benchmarks.unseen`. Each finished model is written to the result file at
once; a later call measures only the models that it is asked for and keeps the others.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks import result_files, unseen
from benchmarks.comparison.measuring import latencies
from benchmarks.models import Bench
from benchmarks.models.bench import feeds
from benchmarks.peers.onnx_session import OnnxSession
from benchmarks.tune_once import RELATIVE, load

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results" / "versions.json"
BEFORE = "6f48313"
# Seconds of interleaved timing for each model.
SECONDS = 8.0
# Int8 multiply-adds a second of one core; see the module's docstring.
ROOFLINE = 210e9
# Models of each kind that is tuned often; the last six were found for one judgement of the version after 0.2.0.
MODELS = (
    "resnet8_cifar10",
    "mobilenetv2_cifar10",
    "page_orientation",
    "silero_vad",
    "ppocrv2_zh_rec",
    "swift_f0",
    "basic_pitch",
    "blazeface",
    "ddddocr_line",
    "ppocrv4_det",
    "yolov8n_nms",
    "ppocrv4_en_rec",
    "paraphrase_minilm",
    *unseen.NEWEST,
)
# The ways to call `quantize_static` by hand: all op types or those with weights, one scale or one for each channel.
BY_HAND: dict[str, dict[str, Any]] = {
    "all": {},
    "all, per channel": {"per_channel": True},
    "weights": {"op_types_to_quantize": ["Conv", "MatMul", "Gemm"]},
    "weights, per channel": {"op_types_to_quantize": ["Conv", "MatMul", "Gemm"], "per_channel": True},
}


def installed(commit: str) -> Path:
    """Return a folder with quaver as of a commit, to be put on the path; it is installed if it is not there yet."""
    target = ROOT / "build" / "versions" / commit
    if not target.exists():
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(fileobj=io.BytesIO(archive)) as files:
                files.extractall(folder, filter="data")
            made = Path(folder) / "installed"
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", made, folder]
            subprocess.run([str(part) for part in command], check=True)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(made, target)
    return target


def run_version(name: str, version: Path | None, folder: Path) -> dict[str, Any]:
    """Return the figures of `tune_once` in a new process with an empty timing cache, or those that a run left there."""
    if (kept := folder / "figures.json").exists():
        figures: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        return figures
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    paths = [str(path) for path in (version, ROOT) if path is not None]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])]),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    command = [sys.executable, "-m", "benchmarks.tune_once", name, str(folder)]
    with (folder / "log.txt").open("w", encoding="utf-8") as log:
        ended = subprocess.run(command, env=environment, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT, check=False)
    if ended.returncode:
        last = (folder / "log.txt").read_text(encoding="utf-8").strip().rpartition("\n")[2]
        return {"error": last[:300]}
    figures = json.loads(kept.read_text(encoding="utf-8"))
    return figures


def quantize_by_hand(bench: Bench, folder: Path) -> dict[str, Path | str]:
    """Return the files of `quantize_static`, or the message of the error, for each way to call it."""
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._left = iter(bench.calib)

        def get_next(self) -> dict[str, Any] | None:
            feed = next(self._left, None)
            return None if feed is None else dict(feed)

    made: dict[str, Path | str] = {}
    ready = folder / "ready.onnx"
    for way, chosen in BY_HAND.items():
        target = folder / f"{way.replace(', ', '_').replace(' ', '_')}.onnx"
        try:
            if not ready.exists():
                with contextlib.suppress(Exception):
                    quant_pre_process(str(bench.model_path), str(ready))
            if not ready.exists():
                quant_pre_process(str(bench.model_path), str(ready), skip_symbolic_shape=True)
            quantize_static(str(ready), str(target), Reader(), activation_type=QuantType.QUInt8, **chosen)
            OnnxSession(target)(dict(bench.calib[0]))
            made[way] = target
        except Exception as error:
            made[way] = (
                f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0].replace(f'{folder}/', '')[:160]}"
            )
    return made


def multiply_adds(model: Path, feed: Mapping[str, Any]) -> int:
    """Return the multiplications of a model's convolutions and matrix products on a feed, as they really run."""
    proto = onnx.load(model)
    weights = {tensor.name: list(tensor.dims) for tensor in proto.graph.initializer}
    wanted = [node for node in proto.graph.node if node.op_type in ("Conv", "ConvTranspose", "MatMul", "Gemm")]
    names = list(dict.fromkeys(name for node in wanted for name in (*node.input[:2], node.output[0]) if name))
    present = {output.name for output in proto.graph.output}
    for name in names:
        if name not in present and name not in weights:
            proto.graph.output.append(onnx.ValueInfoProto(name=name))
    import onnxruntime as ort

    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    outputs = [output.name for output in session.get_outputs() if output.name in names]
    shapes = weights | {key: list(np.shape(value)) for key, value in feed.items()}
    shapes |= dict(zip(outputs, (list(np.shape(value)) for value in session.run(outputs, dict(feed))), strict=True))
    total = 0
    for node in wanted:
        first, second, result = (shapes[name] for name in (*node.input[:2], node.output[0]))
        match node.op_type:
            case "Conv":
                total += math.prod(result) * math.prod(second[1:])
            case "ConvTranspose":
                total += math.prod(first) * math.prod(second[1:])
            case "MatMul":
                total += math.prod(result) * first[-1]
            case "Gemm":
                transposed = next((attribute.i for attribute in node.attribute if attribute.name == "transA"), 0)
                total += math.prod(result) * first[0 if transposed else 1]
    return total


def compare(name: str, before: Path, repeats: int, folder: Path) -> dict[str, Any]:
    """Return the row of a model."""
    bench = load(name)
    runs: dict[str, list[dict[str, Any]]] = {"before": [], "after": []}
    earlier = before.with_name(f"{before.name}_runs") / name
    places = {"before": earlier, "after": folder}
    for repeat in range(repeats):
        for label, version in (("before", before), ("after", None)):
            runs[label].append(run_version(name, version, places[label] / f"{label}_{repeat}"))
    by_hand = quantize_by_hand(bench, folder)
    files: dict[str, Path] = {"fp32": bench.model_path}
    files |= {label: path for label in runs if (path := places[label] / f"{label}_0" / "model.onnx").exists()}
    files |= {way: path for way, path in by_hand.items() if isinstance(path, Path)}
    sessions = {label: OnnxSession(path) for label, path in files.items()}
    feed = dict(next(feeds(bench.eval_func.inputs, min(bench.eval_func.batch, 1))))
    start = time.process_time()
    for _ in range(3):
        sessions["fp32"](feed)
    fp32_seconds = (time.process_time() - start) / 3
    times = dict(zip(sessions, latencies(list(sessions.values()), feed, SECONDS, time.process_time), strict=True))
    fp32_score = bench.eval_func(sessions["fp32"])
    row: dict[str, Any] = {"model": name, "fp32": round(fp32_score, 4), "fp32_ms": round(1000 * fp32_seconds, 2)}
    bound = multiply_adds(bench.model_path, feed) / ROOFLINE
    for label, figures in runs.items():
        row[label] = {**figures[0], "latency": times.get(label)}
        if label in times and bound > 0:
            row[label]["of_roofline"] = round(times[label][1] * fp32_seconds / bound, 2)
        if repeats > 1:
            row[label]["repeats"] = figures[1:]
    row["by_hand"] = {}
    for way, made in by_hand.items():
        if isinstance(made, str):
            row["by_hand"][way] = {"error": made}
            continue
        score = bench.eval_func(sessions[way])
        met = fp32_score - score <= RELATIVE * abs(fp32_score)
        row["by_hand"][way] = {"score": round(score, 4), "met": met, "latency": times[way]}
    return row


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep the machine busy with this many processes meanwhile."""
    loop = "import numpy\na = numpy.ones((700, 700))\nwhile True: a @ a"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    running = [subprocess.Popen([sys.executable, "-c", loop], env=environment) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table with a line for each model, and the means."""

    def cell(row: Mapping[str, Any], label: str, key: str) -> str:
        value = row[label].get(key)
        return "" if value is None else str(value[1] if isinstance(value, list | tuple) else value)

    lines = [
        "| model | evaluations | latency | met | held out (fp32 score) | s outside | MB | of roofline "
        "| by hand, if met |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        best = min((way["latency"][1] for way in row["by_hand"].values() if way.get("met")), default=None)
        pair = [
            f"{cell(row, 'before', key)} / {cell(row, 'after', key)}"
            for key in (
                "evaluations",
                "latency",
                "met",
                "held_out",
                "processor_seconds",
                "peak_memory_mb",
                "of_roofline",
            )
        ]
        pair[3] += f" ({row['fp32']})"
        lines.append(f"| {row['model']} | {' | '.join(pair)} | {best if best is not None else 'none'} |")
    means: dict[str, Callable[[Sequence[float]], float]] = {
        "mean": statistics.fmean,
        "geometric mean": statistics.geometric_mean,
    }
    both = [row for row in rows if row["before"].get("latency") and row["after"].get("latency")]
    for label, mean in means.items() if both else ():
        values = [mean([row[version]["latency"][1] for row in both]) for version in ("before", "after")]
        lines.append(f"| {label} of {len(both)} | | {values[0]:.3f} / {values[1]:.3f} | | | | | | |")
    return "\n".join(lines)


def main() -> None:
    """Compare, print, and write the results; those of models that are not named stay as they are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="models; one of each kind by default")
    parser.add_argument("--before", default=BEFORE, metavar="COMMIT", help=f"the older version (default: {BEFORE})")
    parser.add_argument("--repeats", type=int, default=1, metavar="N", help="runs of each version (default: 1)")
    parser.add_argument("--busy", action="store_true", help="keep all cores busy meanwhile")
    parser.add_argument("--again", action="store_true", help="repeat the runs of the older version, too")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE", help="the file to write")
    args = parser.parse_args()
    before = installed(args.before)
    rows = {row["model"]: row for row in result_files.rows_of(args.results)}
    for name in args.names or MODELS:
        if args.again:
            shutil.rmtree(before.with_name(f"{before.name}_runs") / name, ignore_errors=True)
        with tempfile.TemporaryDirectory() as folder, busy(os.cpu_count() or 1 if args.busy else 0):
            rows[name] = compare(name, before, args.repeats, Path(folder))
        title = "Two versions of quaver on the same models"
        result_files.write(args.results, title, [rows[name]], replaces=["model"], before=args.before)
        print(summary([rows[name]]), flush=True)
    print(summary(list(rows.values())))


if __name__ == "__main__":
    main()
