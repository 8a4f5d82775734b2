"""The adapter for TensorFlow, Keras and LiteRT."""

from quaver.adapters.litert.load.sources import FrozenGraph, Signature

__all__ = ["FrozenGraph", "Signature"]
