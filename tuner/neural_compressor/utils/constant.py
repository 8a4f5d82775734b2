"""Rules as constants, for `op_name_dict` and `op_type_dict`."""

FP32 = {"weight": {"dtype": ["fp32"]}, "activation": {"dtype": ["fp32"]}}
INT8 = {"weight": {"dtype": ["int8"]}, "activation": {"dtype": ["int8"]}}

__all__ = ["FP32", "INT8"]
