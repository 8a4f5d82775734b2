"""`recover` and the names of precisions, in the modules where Neural Compressor has them."""

from quaver.neural_compressor.utils import constant, utility

__all__ = ["constant", "utility"]
