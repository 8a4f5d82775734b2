"""The ONNX Runtime adapter: from an ONNX file to the model of a trial.

A model passes these folders; `adapter.OnnxAdapter` calls each step.

1. `load/` turns a path, a `ModelProto` or bytes into a `Graph`: nodes, constants as arrays, inferred types.
   Entry: `load.model_file.load_model`.
2. `optimize/` rewrites the float graph so that it is fast before it is quantized, and compares it with the user's
   model. A rewrite that changes the result is left out.
   Entries: `optimize.pipeline.rewrite`, `optimize.verify.EqualityCheck`.
3. `ops/` groups nodes into units, one for each op that can be quantized, and lists the choices of each.
   Entry: `ops.units.find_units`.
4. `run/` calibrates: one pass over the data measures the range of each tensor. Entry: `run.calibrator.Calibrator`.
5. `build/` makes the model of a configuration. `Plan` decides which tensors are quantized and how, `Emitter` writes the
   nodes, and `SerializedModel` joins the bytes; `Builder` keeps what is the same in all trials.
   Entry: `build.builder.Builder.assemble`.
6. `run/` opens a session on these bytes: that is the model which eval_func gets. Entry: `run.model.OnnxModel`.

Off this path, `inspect/` reads tensors of a built model or a quantized file for diagnosis, and `profile/` times models,
ops and kernels.
"""

from __future__ import annotations

import os
import sys

# ONNX Runtime reads this variable when it is loaded. Without it, version 1.31 keeps a device id in the home folder and
# reports each session to its makers.
TELEMETRY_VARIABLE = "ORT_DISABLE_TELEMETRY"


def disable_telemetry() -> None:
    """Switch off ONNX Runtime's telemetry, also where it was loaded before, unless the user set the variable."""
    if os.environ.setdefault(TELEMETRY_VARIABLE, "1") != "1":
        return
    runtime = sys.modules.get("onnxruntime")
    if hasattr(runtime, "disable_telemetry_events"):
        runtime.disable_telemetry_events()  # type: ignore[union-attr]
