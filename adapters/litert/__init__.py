"""TensorFlow and LiteRT: intake of every form a model comes in, ops, calibration, trials, interpreters."""

from quaver.adapters.litert.load.sources import FrozenGraph, Signature

__all__ = ["FrozenGraph", "Signature"]
