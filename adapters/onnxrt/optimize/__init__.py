"""Optimize the float graph before it is quantized, and prove that it still computes the same.

`pipeline` runs all rewrites in their order. `verify` compares the result with the user's model and finds a rewrite that
changes it. Each other module holds rewrites, except `graph_edit`, `layers` and `node_names`, which help them.
"""
