"""Time models and their ops: `benchmark` times any file, `op_profile` the ops of a built model, `kernels` tells which
kernels run, and `board_script` times models on machines without quaver.
"""
