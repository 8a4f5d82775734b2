"""Where Neural Compressor keeps `recover` and the names of precisions."""

from quaver.neural_compressor.utils import constant, utility

__all__ = ["constant", "utility"]
