"""Each rewrite of the float graph off and on, on every model that it touches.

    python -m benchmarks.rewrites [--newest] [NAME...]   # models of benchmarks.models and benchmarks.unseen

For each rewrite that changes a model, the model is built without this rewrite alone: the float model, and the model
with all ops in int8. Both run interleaved with the models that have all rewrites, and with the float model as given.
Latency is processor time on one thread at batch 1, as a part of the unmodified float model's.

Models in `benchmarks.unseen.NEWEST` are held back and must be asked for with `--newest`. A finished model is written to
the result file at once; other rows stay.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Sequence
from typing import Any

from benchmarks import models, result_files, tune_once, unseen
from quaver.adapters import Adapter, AdapterOptions, Model, abilities, load_model
from quaver.engine.timing import latency
from quaver.space import TuningSpace

NAME = "rewrites"
# Calibration samples: scales hardly change the time.
SAMPLES = 4
# Seconds of processor time for the five models that are compared.
SECONDS = 6.0
ALL = "all"


def names(newest: bool = False) -> list[str]:
    """Return the names of all models, without those that are held back."""
    return [*models.NAMES, *(name for name in unseen.NAMES if newest or name not in unseen.NEWEST)]


def measure(name: str) -> list[dict[str, Any]]:
    """Return a row for each rewrite that changes a model, and one for all of them."""
    bench = tune_once.load(name)
    adapter = load_model(bench.model_path, AdapterOptions(threads=1))
    with contextlib.closing(adapter):
        adapter.calibrate(list(bench.calib[:SAMPLES]))
        given = abilities.build_unmodified(adapter)
        on = pair(adapter)
        applied = dict(abilities.rewrites(adapter))
        rows = []
        for rewrite in [*applied, ALL] if applied else []:
            left_out = list(applied) if rewrite == ALL else [rewrite]
            variant = abilities.require(adapter, abilities.SupportsRewriteChoice).without_rewrites(left_out)
            with contextlib.closing(variant):
                figures = compared(adapter, [given, *on, *pair(variant)])
            rows.append({"model": name, "rewrite": rewrite, "places": applied.get(rewrite), **figures})
            print(rows[-1], flush=True)
    return rows


def pair(adapter: Adapter) -> list[Model]:
    """Return the float model, and the model with all ops in int8."""
    return [adapter.assemble(None), adapter.assemble(TuningSpace(adapter.ops()).default_config())]


def compared(adapter: Adapter, variants: Sequence[Model]) -> dict[str, float]:
    """Return the latency of four models as a part of the first one's, and the largest spread."""
    times = latency.measure([latency.as_deployed(model) for model in variants], adapter.timing_feed, SECONDS)
    base = times[0].seconds
    columns = ("fp32_on", "int8_on", "fp32_off", "int8_off")
    figures = {column: round(each.seconds / base, 3) for column, each in zip(columns, times[1:], strict=True)}
    return {**figures, "spread": round(max(each.spread for each in times), 3)}


def main() -> None:
    """Measure the models that are named, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="models (default: all that are not held back)")
    parser.add_argument("--newest", action="store_true", help="also the models that are held back")
    args = parser.parse_args()
    for name in args.names or names(args.newest):
        start = time.process_time()
        try:
            rows = measure(name)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {str(error)[:200]}", flush=True)
            continue
        title = "Each rewrite of the float graph off and on: latency / latency of the unmodified float model"
        result_files.write(NAME, title, rows, replaces=["model"])
        print(f"{name}: {time.process_time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
