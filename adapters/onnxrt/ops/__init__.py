"""Find the ops of a graph that can be quantized, and the choices of each.

`units` holds the rules that make a `Unit` (`unit`) of nodes; `exclusions` says what loses too much in 8 bits,
`passthrough` which ops leave integers as they are, `blocks` which weights can be stored in blocks of 4
or 8 bits, `decoder` what is on offer in a language model, and `unquantizable` lists the nodes that remain.
"""
