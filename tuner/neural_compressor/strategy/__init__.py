"""Strategies of one's own, as Neural Compressor has them."""

from quaver.neural_compressor.strategy.strategy import TuneStrategy, strategy_registry

__all__ = ["TuneStrategy", "strategy_registry"]
