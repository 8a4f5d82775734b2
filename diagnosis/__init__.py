"""Who explains: tables, statistics, profiles, causes. It is handed arrays and records, and knows no framework."""

if __name__ == "diagnosis":
    raise ImportError("this folder is the package quaver.diagnosis: write `import quaver.diagnosis`")

from quaver.diagnosis.causes.base import Cause
from quaver.diagnosis.diagnosis import Diagnosis, conclude
from quaver.diagnosis.histogram_file import Bars, Histograms, read_histograms
from quaver.diagnosis.profile import Profile, make_profile
from quaver.diagnosis.quantized_only import QuantizedStatistics
from quaver.diagnosis.recorder import Recorder

__all__ = [
    "Bars", "Cause", "Diagnosis", "Histograms", "Profile", "QuantizedStatistics", "Recorder", "conclude",
    "make_profile", "read_histograms",
]  # fmt: skip
