"""`recover` and the names of precisions, in the modules where Neural Compressor has them."""

from quaver.neural_compressor.utils import constant, create_obj_from_config, utility

__all__ = ["constant", "create_obj_from_config", "utility"]
