"""Neural Compressor's names, implemented by quaver, so that its scripts run once their import lines are changed.

    from quaver.neural_compressor import PostTrainingQuantConfig, quantization

This is only a bridge: its options become settings of `quaver.fit`, and results get the attributes that scripts read.
Options without a counterpart are refused, all at once, with what to use instead. See `docs/from-neural-compressor.md`.
"""

from quaver.neural_compressor import benchmark, data, experimental, metric, model, quantization, strategy, utils
from quaver.neural_compressor.absent import absent_names, refuse_absent_modules
from quaver.neural_compressor.config import AccuracyCriterion, BenchmarkConfig, PostTrainingQuantConfig, TuningCriterion

__all__ = [
    "AccuracyCriterion", "BenchmarkConfig", "PostTrainingQuantConfig", "TuningCriterion", "benchmark", "data",
    "experimental", "metric", "model", "quantization", "strategy", "utils",
]  # fmt: skip

refuse_absent_modules()
__getattr__ = absent_names(__name__)
