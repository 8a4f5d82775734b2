"""The errors that quaver raises. Each is also the builtin error that a caller would expect."""


class QuaverError(Exception):
    """The base class: `except quaver.QuaverError` catches all errors of quaver."""


class SettingsError(QuaverError, ValueError):
    """A setting, a YAML key or an op rule is wrong. Raised before any work is done."""


class ModelError(QuaverError, ValueError):
    """The model cannot be read, has no known framework or nothing to quantize, or there is none to save."""


class CalibrationError(QuaverError, ValueError):
    """The calibration data is empty, does not fit the model's inputs, or drives it to NaN."""


class EvaluationError(QuaverError, RuntimeError):
    """`eval_func` failed on the fp32 model, so there is no baseline to tune against."""


class StrategyError(QuaverError, RuntimeError):
    """A strategy proposed something outside the space, or could not be found."""


class HistoryError(QuaverError, RuntimeError):
    """A history.snapshot cannot be read, written or locked, or belongs to another model."""


class BuildError(QuaverError, RuntimeError):
    """The framework refused a model that quaver built."""


class ExecutorError(QuaverError, RuntimeError):
    """Workers cannot be started or reached, or have another model, calibration or version than the run."""


class MissingPackageError(QuaverError, ImportError):
    """The package of an optional feature is not installed."""
