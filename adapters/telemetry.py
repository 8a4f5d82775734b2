"""What runtimes report to their makers is off in quaver's processes, unless the user has switched it on."""

from __future__ import annotations

import os
import sys

# ONNX Runtime reads it when it is loaded. Without it 1.31 keeps a device id in the home folder and reports sessions.
SWITCH = "ORT_DISABLE_TELEMETRY"


def turn_off() -> None:
    """Switch it off, also in a runtime that was loaded before; a switch that the user has set stays as it is."""
    if os.environ.setdefault(SWITCH, "1") != "1":
        return
    loaded = sys.modules.get("onnxruntime")
    if hasattr(loaded, "disable_telemetry_events"):
        loaded.disable_telemetry_events()  # type: ignore[union-attr]
