"""Strategies, which propose the next configuration; one file each."""

if __name__ == "strategies":
    raise ImportError("this folder is the package quaver.strategies: write `import quaver.strategies`")

from quaver.strategies.auto import Auto
from quaver.strategies.base import Proposals, Strategy
from quaver.strategies.basic import Basic
from quaver.strategies.bayesian import Bayesian
from quaver.strategies.conservative import Conservative
from quaver.strategies.exhaustive import Exhaustive
from quaver.strategies.mse import Mse
from quaver.strategies.mse_v2 import MseV2
from quaver.strategies.prepared import StartingFrom, prepared
from quaver.strategies.random import Random
from quaver.strategies.registry import (
    Listed,
    find_strategy,
    list_strategies,
    make_strategy,
    register_strategy,
    strategies,
)
from quaver.strategies.tpe import Tpe

__all__ = [
    "Auto", "Basic", "Bayesian", "Conservative", "Exhaustive", "Listed", "Mse", "MseV2", "Proposals", "Random",
    "StartingFrom", "Strategy", "Tpe", "find_strategy", "list_strategies", "make_strategy", "prepared",
    "register_strategy", "strategies",
]  # fmt: skip
