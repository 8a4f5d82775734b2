"""The YAML layout: where each setting stands in a file."""

from __future__ import annotations

# Where each setting stands in a YAML file.
YAML_LAYOUT = {
    "version": None,
    "model.name": None,
    "model.framework": "framework",
    "quantization.calibration.sampling_size": "calibration_sampling_size",
    "quantization.op_name_dict": "op_name_dict",
    "quantization.op_type_dict": "op_type_dict",
    "quantization.quant_format": "quant_format",
    "quantization.optimise_float": "optimise_float",
    "quantization.portable": "portable",
    "tuning.strategy.name": "strategy",
    "tuning.strategy.options": "strategy_options",
    "tuning.accuracy_criterion.relative": "relative",
    "tuning.accuracy_criterion.absolute": "absolute",
    "tuning.accuracy_criterion.higher_is_better": "higher_is_better",
    "tuning.accuracy_criterion.allow_any_loss": "allow_any_loss",
    "tuning.accuracy_criterion.slices": "slices",
    "tuning.accuracy_criterion.slice_limit": "slice_limit",
    "tuning.accuracy_criterion.confidence": "confidence",
    "tuning.accuracy_criterion.early_stop": "early_stop",
    "tuning.accuracy_criterion.early_stop_delta": "early_stop_delta",
    "tuning.accuracy_criterion.confirm_tries": "confirm_tries",
    "tuning.exit_policy.timeout": "timeout",
    "tuning.exit_policy.max_trials": "max_trials",
    "tuning.objective": "objective",
    "tuning.max_latency": "max_latency",
    "tuning.max_size": "max_size",
    "tuning.cost_model": "cost_model",
    "tuning.random_seed": "seed",
    "tuning.threads": "threads",
    "tuning.batch": "batch",
    "tuning.timing_cache": "timing_cache",
    "tuning.diagnosis": "diagnosis",
    "tuning.workers.n_jobs": "n_jobs",
    "tuning.workers.backend": "backend",
    "tuning.workers.scheduler": "scheduler",
    "tuning.workers.isolate": "isolate",
    "tuning.workers.trial_timeout": "trial_timeout",
    "tuning.workers.width": "width",
    "tuning.report": "report",
    "tuning.insights": "insights",
    "tuning.provenance": "provenance",
    "tuning.workspace": "workspace",
    "tuning.resume": "resume",
    "tuning.start_from": "start_from",
}
NAMES = tuple(name for name in YAML_LAYOUT.values() if name is not None)
SECTIONS = frozenset(path.split(".")[0] for path in YAML_LAYOUT)
# These hold the user's own keys, so their content is checked elsewhere.
_BY_METRIC = ("relative", "absolute", "higher_is_better", "slices", "slice_limit")
OPEN = {
    "quantization.op_name_dict",
    "quantization.op_type_dict",
    "tuning.strategy.options",
    *(f"tuning.accuracy_criterion.{name}" for name in _BY_METRIC),
}


def is_own(place: str) -> bool:
    """Whether a setting stands at this place, or is called so."""
    return place in YAML_LAYOUT or place in NAMES
