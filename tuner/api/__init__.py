"""The public functions: fit, recover, check, diagnose and profile, with their settings and results."""

from quaver.api.check import check
from quaver.api.check_result import CheckResult, Verdict
from quaver.api.config.config import Config
from quaver.api.cost_model import save_board_kit, save_cost_model
from quaver.api.diagnose import diagnose, diagnose_quantized
from quaver.api.fit import fit
from quaver.api.profile import profile
from quaver.api.provenance import read_provenance
from quaver.api.recover import recover
from quaver.api.result import TuneResult
from quaver.api.session import TuningRun, open_run

__all__ = [
    "CheckResult", "Config", "TuneResult", "TuningRun", "Verdict", "check", "diagnose", "diagnose_quantized", "fit",
    "open_run", "profile", "read_provenance", "recover", "save_board_kit", "save_cost_model",
]  # fmt: skip
