"""Every way to run an op in 8 bits, on the ops of real models: its time, and the error of what it writes.

    python -m benchmarks.modes [NAME...]

For each kind of op and each mode: the time of those ops, in a model in which they alone run so, as a part of their time
in fp32; and the mean squared error of their results from float inputs, as a part of the results. One thread, profiles
interleaved, the least of several. docs/modes.md has the table.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence

from benchmarks import models, unseen
from benchmarks.models import Bench
from quaver.adapters import AdapterOptions, adapter_for, load_with
from quaver.adapters.base import Adapter
from quaver.engine.timing.time_model import op_times
from quaver.ops import MODES, Op, QuantConfig
from quaver.space import TuningSpace

NAMES = (
    "minilm_retrieval", "minilm_imdb", "ppocrv4_en_rec", "magika_filetype",
    "paraphrase_minilm", "ppocrv2_zh_rec", "page_orientation", "wakeword_embedding",
)  # fmt: skip
SAMPLES = 16


def load(name: str) -> Bench:
    return (models if name in models.NAMES else unseen).load(name)


def label(op: Op) -> str:
    """The kind of an op; products of two activations are a kind of their own."""
    weighty = any(choice.granularity == "per_channel" for choice in op.choices)
    return op.kind if weighty or op.kind != "MatMul" else "MatMul of activations"


def in_mode(space: TuningSpace, kind: str, mode: str) -> QuantConfig | None:
    """All ops of a kind by their first choice in a mode, all others in fp32; None where no op has one."""
    changes = {
        op.name: choice
        for op in space.ops
        if label(op) == kind
        for choice in [choice for choice in op.choices if choice.quantized and choice.mode == mode][:1]
    }
    return space.float_config().replace(changes) if changes else None


def measure(adapter: Adapter, space: TuningSpace) -> Iterator[tuple[str, str, int, float, float]]:
    """Of each kind and mode: how many ops, their time of that in fp32, and their error."""
    for kind in dict.fromkeys(map(label, space.ops)):
        for mode in MODES:
            config = in_mode(space, kind, mode)
            if config is None:
                continue
            fp32, quantized = op_times(adapter, config)
            names = config.quantized_ops
            errors = adapter.local_errors(config)
            before, after = (sum(seconds.get(name, 0.0) for name in names) for seconds in (fp32, quantized))
            noise = sum(errors[name][0] / errors[name][1] for name in names if errors[name][1] > 0)
            yield kind, mode, len(names), after / before if before else float("nan"), noise / len(names)


def main(names: Sequence[str]) -> None:
    rows: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in names or NAMES:
        bench = load(name)
        adapter = load_with(adapter_for(bench.model_path), bench.model_path, AdapterOptions(threads=1))
        try:
            adapter.calibrate(bench.calib, 64)
            for kind, mode, count, time, error in measure(adapter, TuningSpace(adapter.ops())):
                print(
                    f"{name:20} {kind:18} {count:4} ops  {mode:12} {time:6.2f} of fp32  error {error:.1e}", flush=True
                )
                rows[kind, mode].append(f"{time:.2f}")
        finally:
            adapter.close()
    print()
    for (kind, mode), times in rows.items():
        print(f"{kind:18} {mode:12} {' '.join(times)}")


if __name__ == "__main__":
    main(sys.argv[1:])
