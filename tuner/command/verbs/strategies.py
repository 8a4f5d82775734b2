"""`quaver strategies`: who can propose configurations."""

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
Lists the strategies: where each comes from, how many evaluations it needs at most, to a first success and in all, and
what it does. Counted for a typical model of 50 ops, or of as many as you say, or for a model of yours.

  quaver strategies
  quaver strategies --ops 200
  quaver strategies --model model.onnx
"""

OPS = 50
# From here on a count is told by its order of magnitude.
LARGE = 10**9


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Describe the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "strategies", help="list the strategies", description=DESCRIPTION
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--ops", metavar="N", type=int, default=OPS, help=f"how many ops to count for (default {OPS})")
    size.add_argument("--model", metavar="MODEL", help="a float model, to count the evaluations for")
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    from quaver.api.display import tables
    from quaver.errors import SettingsError
    from quaver.strategies import list_strategies

    if args.ops < 1:
        raise SettingsError(f"--ops must be at least 1, not {args.ops}")
    space = _space(args)
    with _warnings_told():
        listed = list_strategies()
    rows = [(item.name, item.source, *_counts(item, space), _what(item)) for item in listed]
    tables.write(("strategy", "from", "first success", "at most", "what it does"), rows, ("first success", "at most"))
    print(
        f"evaluations for {len(space.quantizable)} ops; each run evaluates the fp32 model once more, and without a "
        "timeout it stops at its first success"
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
    """To the first success, and in all. One plug-in that cannot be made or asked does not cost the table."""
    from quaver.errors import SettingsError
    from quaver.strategies import make_strategy

    if item.strategy is None:
        return "-", "-"
    try:
        strategy = make_strategy(item.strategy)
        return _count(strategy.first_success(space), "unknown"), _count(strategy.worst_case(space), "no end of its own")
    except SettingsError:
        return "needs options", "-"
    except Exception as error:
        return f"{type(error).__name__}: {error}", "-"


def _count(number: int | None, otherwise: str) -> str:
    if number is None:
        return otherwise
    return f"{number:,}" if number < LARGE else f"10^{math.floor(math.log10(number))}"


def _what(item: Listed) -> str:
    if item.strategy is None:
        return f"broken: {item.error}"
    return (inspect.getdoc(item.strategy) or "").partition("\n")[0]


@contextlib.contextmanager
def _warnings_told() -> Iterator[None]:
    """Warnings of a while as lines on stderr, without the place in the library that they come from."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield
    for warning in seen:
        print(f"quaver: {warning.message}", file=sys.stderr, flush=True)
