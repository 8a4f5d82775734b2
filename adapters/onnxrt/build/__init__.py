"""Build the model of one configuration: plan its tensors, emit its nodes, serialize it.

`builder` holds what all configurations share; `plan` decides about tensors; `emitter` writes nodes and constants, with
help from `integer_ops`, `dynamic_and_weight_only`, `blocks` and `lstm`; `weight_store` and `shared_weights` keep the
constants in one file; `protobuf` and `serialized_model` make bytes. `repairs`, `channel_scaling`, `scale_absorber` and
`saturation` change weights; `affine` has the arithmetic; `provenance` reads and writes the properties in saved files.
"""
