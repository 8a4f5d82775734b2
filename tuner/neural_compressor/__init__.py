"""Neural Compressor's names on quaver's engine, so that its scripts run with their import lines changed.

    from quaver.neural_compressor import PostTrainingQuantConfig, quantization

A bridge and nothing more: words become settings of `quaver.fit`, results get the attributes that scripts read. What has
no counterpart is refused, all of it at once, with what to use instead. `docs/from-neural-compressor.md` has both sides.
"""

from quaver.neural_compressor import benchmark, data, experimental, quantization, strategy, utils
from quaver.neural_compressor.config import AccuracyCriterion, BenchmarkConfig, PostTrainingQuantConfig, TuningCriterion

__all__ = [
    "AccuracyCriterion", "BenchmarkConfig", "PostTrainingQuantConfig", "TuningCriterion", "benchmark", "data",
    "experimental", "quantization", "strategy", "utils",
]  # fmt: skip
