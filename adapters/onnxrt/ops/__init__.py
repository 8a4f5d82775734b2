"""Find the ops of a graph that can be quantized, and the choices of each.

`units` holds the rules that make a `Unit` (`unit`) of nodes; `exclusions` says what loses too much in 8 bits,
`passthrough` which ops leave integers as they are, `int4` which weights can be stored in four bits, and
`unquantizable` lists the nodes that remain.
"""
