"""Look inside models: the values, weights and scales that diagnosis compares with the float model.

`config_view` shows a model that quaver built, `file_view` a quantized file of any tool. `quantized_file` reads such a
file and `matching` finds the tensors that both models have. `local_runs` and `replay` run single ops in int8 on float
inputs; `other_nodes` covers nodes that are no op, and `channel_axes` says where channels lie.
"""
