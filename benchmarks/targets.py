"""How far predictions from the file of a cost model are off, with this machine as if it were the board.

    python -m benchmarks.targets [NAME...]   # models of benchmarks.models and benchmarks.unseen

For each model: a cost model as `quaver profile --save` writes it, and one as the board kit does, run by another
process. From each, the latency that is predicted of `KINDS` of configurations beside what they take when they are run
interleaved with fp32; then `fit` with the file, and the same of its winner.
"""

from __future__ import annotations

import argparse
import math
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from statistics import fmean
from typing import Any

import quaver
from benchmarks import result_files
from benchmarks.models import Bench
from benchmarks.remedies import RELATIVE, find
from quaver.adapters import AdapterOptions, load_model
from quaver.engine.timing.cost_model import read_file, resolved
from quaver.engine.timing.latency import measure as in_turns
from quaver.engine.timing.time_model import measure_edges
from quaver.ops import MODES, QuantConfig
from quaver.space import TuningSpace

QUICK = (
    "paraphrase_minilm", "ppocrv2_zh_rec", "wakeword_embedding", "page_orientation", "magika_filetype", "ppocr_cls180",
    "mobilenetv2_cifar10", "minilm_retrieval", "silero_vad", "lac_tags",
)  # fmt: skip
SECONDS = 1.5


def files(bench: Bench, folder: Path) -> Iterator[tuple[str, Path]]:
    """The cost models of a model, by how they are made."""
    yield "save", quaver.save_cost_model(str(bench.model_path), folder / "save.json", bench.calib)
    kit = quaver.save_board_kit(str(bench.model_path), folder / "board.pyz", bench.calib)
    with open(folder / "board.json", "wb") as target:
        subprocess.run([sys.executable, str(kit)], stdout=target, check=True)
    yield "board", folder / "board.json"


def kinds(space: TuningSpace) -> Iterator[tuple[str, QuantConfig]]:
    """All ops in each mode that they have, else static; all of them mixed; and every second op of each in fp32."""
    rng = random.Random(0)
    plain = space.default_config()
    ways = [("static", plain)]
    for mode in MODES[1:]:
        own = {op.name: [one for one in op.choices if one.mode == mode][:1] for op in space.ops}
        ways.append((mode, plain.replace({name: found[0] for name, found in own.items() if found})))
    mixed = {op.name: rng.choice([one for one in op.choices if not one.repairs]) for op in space.ops}
    repaired = {op.name: op.repaired(plain[op.name], *op.repairs[:1]) for op in space.ops}
    ways += [("any of all choices", plain.replace(mixed)), ("repaired", plain.replace(repaired))]
    for label, config in dict.fromkeys(ways):
        if label == "static" or config != plain:
            yield label, config
            quantized = config.quantized_ops
            yield f"half {label}", config.fallback(*rng.sample(quantized, len(quantized) // 2))


def predictions(bench: Bench, costs: dict[str, Path]) -> Iterator[dict[str, Any]]:
    """What is predicted of configurations, and what they take."""
    with closing(load_model(str(bench.model_path), AdapterOptions(threads=1))) as adapter:
        adapter.calibrate(bench.calib)
        space = TuningSpace(adapter.ops())
        between = measure_edges(adapter, adapter.probe_samples[0])
        said = {}
        for label, path in costs.items():
            said[label] = resolved(read_file(path), adapter, str(path)).with_edges(between)
        found = list(kinds(space))
        float_model = adapter.assemble(None).with_threads(1)
        for kind, config in found:
            models = [float_model, adapter.assemble(config).with_threads(1)]
            base, one = in_turns(models, adapter.probe_samples[0], SECONDS)
            yield {
                "model": bench.name,
                "config": kind,
                "measured": round(one.seconds / base.seconds, 3),
                **{label: round(cost.predict(config)["predicted_latency"], 3) for label, cost in said.items()},
            }


def winner(bench: Bench, label: str, path: Path, folder: Path) -> dict[str, Any]:
    """What is predicted of the winner of a run, and what it takes."""
    result = quaver.fit(
        str(bench.model_path),
        calib_dataloader=bench.calib,
        eval_func=bench.eval_func,
        relative=RELATIVE,
        threads=1,
        workspace=folder / label,
        cost_model=path,
    )
    assert result.best is not None
    modes = [pick.mode for pick in result.best.config.values() if pick.quantized]
    return {
        "model": bench.name,
        "config": "winner",
        "measured": round(result.best.measured["latency"], 3),
        label: round(result.best.measured["predicted_latency"], 3),
        "met": result.met,
        "evaluations": result.evaluations,
        "ops": {mode: modes.count(mode) for mode in MODES},
    }


def measure(name: str) -> Iterator[dict[str, Any]]:
    """All rows of a model."""
    bench = find(name)
    with tempfile.TemporaryDirectory() as folder:
        costs = dict(files(bench, Path(folder)))
        yield from predictions(bench, costs)
        for label, path in costs.items():
            try:
                yield winner(bench, label, path, Path(folder))
            except quaver.QuaverError as error:  # a model in which nothing gets faster
                yield {"model": name, "config": "winner", "refused": str(error)[:80]}


def summary(rows: list[dict[str, Any]]) -> Iterator[str]:
    """By kind of configuration: how far predictions are off, on average and at worst."""
    for kind in dict.fromkeys(row["config"] for row in rows):
        for label in ("save", "board"):
            off = [
                math.log(row[label] / row["measured"])
                for row in rows
                if row["config"] == kind and "measured" in row and label in row
            ]
            if off:
                worst = max(off, key=abs)
                yield f"{kind:24} {label:6} off by {fmean(map(abs, off)):.3f}, at worst {math.exp(worst):.2f} times"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"models; {', '.join(QUICK)} by default")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in given.names or QUICK:
        for row in measure(name):
            rows.append(row)
            print(row, flush=True)
    print("\n".join(summary(rows)))
    result_files.write("targets", "Predicted and measured latency on a target", rows, replaces=["model", "config"])


if __name__ == "__main__":
    main()
