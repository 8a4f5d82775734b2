"""`quaver strategies`: list the strategies and their numbers of evaluations."""

from __future__ import annotations

import argparse
import contextlib
import inspect
import math
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quaver.space import TuningSpace
    from quaver.strategies import Listed

DESCRIPTION = """\
List the strategies: where each comes from, what it does, and how many evaluations it needs at most, to the first
success and in total. The counts are for a typical model of 50 ops, for --ops N, or for --model.

  quaver strategies
  quaver strategies --ops 200
  quaver strategies --model model.onnx
"""

# The size of a typical model; ResNet50 has about as many ops.
DEFAULT_OPS = 50
# Counts from here on are printed as a power of ten.
MIN_POWER_OF_TEN = 10**9


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Describe the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "strategies", help="list the strategies", description=DESCRIPTION
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--ops", metavar="N", type=int, default=DEFAULT_OPS, help=f"number of ops to count for (default: {DEFAULT_OPS})"
    )
    size.add_argument("--model", metavar="MODEL", help="a float model to count for")
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    from quaver.api.display import tables
    from quaver.errors import SettingsError
    from quaver.strategies import list_strategies

    if args.ops < 1:
        raise SettingsError(f"--ops must be at least 1, not {args.ops}")
    space = _space(args)
    with _plain_warnings():
        listed = list_strategies()
    rows = [(item.name, item.source, *_counts(item, space), _description(item)) for item in listed]
    tables.write(
        ("strategy", "from", "first success", "at most", "what it does"),
        rows,
        ("first success", "at most"),
        tables.PIPE_WIDTH,
    )
    print(
        f"evaluations for {len(space.quantizable)} ops; each run evaluates the fp32 model, too,\n"
        "and without a timeout it ends at the first success"
    )
    return 0


def _space(args: argparse.Namespace) -> TuningSpace:
    if args.model is None:
        from quaver.testing import SimulatedModel

        return SimulatedModel(ops=args.ops, culprits=0).space

    from quaver.adapters import AdapterOptions, load_model
    from quaver.space import TuningSpace

    with contextlib.closing(load_model(args.model, AdapterOptions())) as adapter:
        return TuningSpace(adapter.ops())


def _counts(item: Listed, space: TuningSpace) -> tuple[str, str]:
    """Return the counts to the first success and in total; a broken plug-in gets its error instead."""
    from quaver.errors import SettingsError
    from quaver.strategies import make_strategy

    if item.strategy is None:
        return "-", "-"
    try:
        strategy = make_strategy(item.strategy)
        return _count(strategy.first_success(space), "unknown"), _count(strategy.worst_case(space), "unlimited")
    except SettingsError:
        return "needs options", "-"
    except Exception as error:
        return f"{type(error).__name__}: {error}", "-"


def _count(number: int | None, otherwise: str) -> str:
    if number is None:
        return otherwise
    return f"{number:,}" if number < MIN_POWER_OF_TEN else f"10^{math.floor(math.log10(number))}"


def _description(item: Listed) -> str:
    if item.strategy is None:
        return f"broken: {item.error}"
    return (inspect.getdoc(item.strategy) or "").partition("\n")[0]


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Print warnings within the block as plain lines on stderr."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        print(f"quaver: {warning.message}", file=sys.stderr, flush=True)
