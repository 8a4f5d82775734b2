"""User-defined strategies, with Neural Compressor's names."""

from quaver.neural_compressor.strategy.strategy import TuneStrategy, strategy_registry

__all__ = ["TuneStrategy", "strategy_registry"]
