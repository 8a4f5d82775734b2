"""Who explains: tables, statistics, profiles, causes. It is handed arrays and records, and knows no framework."""

if __name__ == "diagnosis":
    raise ImportError("this folder is the package quaver.diagnosis: write `import quaver.diagnosis`")

from quaver.diagnosis.alone import QuantizedStatistics
from quaver.diagnosis.cause import Cause
from quaver.diagnosis.conclude import conclude
from quaver.diagnosis.pictures import Bars, Histograms, read_histograms
from quaver.diagnosis.profile import Profile, make_profile
from quaver.diagnosis.recorder import Recorder
from quaver.diagnosis.report import Diagnosis

__all__ = [
    "Bars", "Cause", "Diagnosis", "Histograms", "Profile", "QuantizedStatistics", "Recorder", "conclude",
    "make_profile", "read_histograms",
]  # fmt: skip
