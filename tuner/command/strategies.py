"""`quaver strategies`: who can propose configurations."""

from __future__ import annotations

import argparse
import inspect
from typing import Any

DESCRIPTION = """\
Lists the strategies, and for a model how many evaluations each one needs at most.

  quaver strategies
  quaver strategies --model model.onnx
"""


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Describe the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "strategies", help="list the strategies", description=DESCRIPTION
    )
    parser.add_argument("--model", metavar="MODEL", help="a float model, to count the evaluations for")
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    from quaver.command import tables
    from quaver.strategies import make_strategy, strategies

    found = strategies()
    if args.model is None:
        tables.write(("strategy", "what it does"), [(name, _what(kind)) for name, kind in found.items()])
        return 0

    import contextlib

    from quaver.adapters import AdapterOptions, open_model
    from quaver.space import TuningSpace

    with contextlib.closing(open_model(args.model, AdapterOptions())) as adapter:
        space = TuningSpace(adapter.inspect())
    rows = []
    for name, kind in found.items():
        worst = make_strategy(kind).worst_case(space)
        rows.append((name, "no end of its own" if worst is None else str(worst), _what(kind)))
    tables.write(("strategy", "evaluations at most", "what it does"), rows, right=("evaluations at most",))
    print(
        f"for {len(space.quantizable)} ops; each run evaluates the fp32 model once more, and stops when it has a result"
    )
    return 0


def _what(kind: type) -> str:
    lines = (inspect.getdoc(kind) or "").splitlines()
    return lines[0] if lines else ""
