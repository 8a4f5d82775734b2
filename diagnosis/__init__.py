"""Explain quantization errors: tables, statistics, profiles and causes.

Works on arrays and records of any framework.
"""

if __name__ == "diagnosis":
    raise ImportError("this folder is the package quaver.diagnosis: write `import quaver.diagnosis`")

from quaver.diagnosis.causes.base import Cause
from quaver.diagnosis.diagnosis import DiagnosedModel, Diagnosis, Measurements, make_diagnosis
from quaver.diagnosis.histogram_file import Histograms, OpHistogram, read_histograms
from quaver.diagnosis.profile import Profile, make_profile
from quaver.diagnosis.quantized_only import QuantizedStatistics
from quaver.diagnosis.recorder import Recorder

__all__ = [
    "Cause", "DiagnosedModel", "Diagnosis", "Histograms", "Measurements", "OpHistogram", "Profile",
    "QuantizedStatistics", "Recorder", "make_diagnosis",
    "make_profile", "read_histograms",
]  # fmt: skip
