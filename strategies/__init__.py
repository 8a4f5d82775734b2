"""Who proposes the next configuration; one file a strategy."""

if __name__ == "strategies":
    raise ImportError("this folder is the package quaver.strategies: write `import quaver.strategies`")

from quaver.strategies.base import Proposals, Strategy
from quaver.strategies.basic import Basic
from quaver.strategies.registry import make_strategy, register_strategy, strategies

__all__ = ["Basic", "Proposals", "Strategy", "make_strategy", "register_strategy", "strategies"]
