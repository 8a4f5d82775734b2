"""`recover` and the names of precisions, where Neural Compressor has them."""

from quaver.neural_compressor.utils import constant, utility

__all__ = ["constant", "utility"]
