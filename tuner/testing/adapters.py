"""Check that an adapter keeps its contract, for authors of adapters."""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from quaver.adapters import Adapter, AdapterOptions, Model, abilities
from quaver.errors import BuildError
from quaver.testing.adapter_case import (
    Case,
    Outputs,
    as_list,
    content,
    difference,
    equal_feeds,
    not_builtin,
    scratch_folder,
)
from quaver.types import CalibrationData, ModelLike

# Largest difference between the float model and one with every op in fp32, as a share of the largest output. Judgement:
# far above rounding, far below an int8 error.
FLOAT_TOLERANCE = 1e-4
# Largest difference between two runs of the same bytes. Judgement: rounding of threads.
SAME = 1e-6


def check_adapter(
    load_adapter: Callable[[AdapterOptions], Adapter], calibration_data: CalibrationData, *, model: ModelLike = None
) -> None:
    """Check an adapter on one model: everything that quaver asks of it.

    Args:
        load_adapter: loads the model again each time: `lambda options: MyAdapter.load("model.xyz", options)`.
        calibration_data: as for `calib_dataloader`; iterated several times.
        model: the model that `load_adapter` loads, to check that it is accepted and never changed.

    Raises:
        AssertionError: with a sentence that says which promise of `quaver.adapters.Adapter` is broken.
    """
    before = content(model)
    for with_folder in (False, True):
        with scratch_folder() as scratch:
            folder = scratch / "given" if with_folder else None
            case = Case.prepare(load_adapter, calibration_data, model, scratch, folder)
            for check in CHECKS if not with_folder else ():
                check(case)
            _check_close(case)
    assert content(model) == before, "the user's model was changed"


def _check_identity(case: Case) -> None:
    kind, adapter = type(case.adapter), case.adapter
    assert kind.name and isinstance(kind.name, str), "the adapter's class needs a `name`"
    assert kind.suffix.startswith("."), f"`suffix` must be like '.onnx', not {kind.suffix!r}"
    frameworks = getattr(kind, "frameworks", ())
    assert isinstance(frameworks, tuple) and frameworks, "`frameworks` must be a tuple of the names that users know"
    _check_formats(kind)
    for stranger in (object(), None, 3, "no such model"):
        assert not kind.accepts(stranger), f"accepts says yes to {stranger!r}"
    if case.model is not None:
        assert kind.accepts(case.model), f"accepts says no to the model that load takes, {case.model!r:.80}"
    assert adapter.versions, "versions is empty; which packages do the bytes of a model depend on?"
    for package, version in adapter.versions.items():
        assert type(package) is str and type(version) is str, f"versions must map str to str: {package!r}, {version!r}"
    other = case.another()
    try:
        assert adapter.fingerprint and isinstance(adapter.fingerprint, str), "fingerprint must be a string"
        assert other.fingerprint == adapter.fingerprint, "the fingerprint of the same model differs when opened again"
        assert other.ops() == adapter.ops(), "ops gives other ops when the same model is opened again"
    finally:
        other.close()


def _check_formats(kind: type[Adapter]) -> None:
    """Check that the adapter declares its values of `quant_format` consistently."""
    assert isinstance(kind.quant_formats, tuple), (
        f"`quant_formats` must be a tuple of names, not {kind.quant_formats!r:.80}"
    )
    for name in kind.quant_formats:
        assert name == name.lower(), (
            f"quant_format {name!r} is among `quant_formats`, but cannot be chosen: it must be in lower case"
        )
    for name, implied in kind.implied_formats.items():
        known = name in kind.frameworks and implied in kind.quant_formats
        assert known, (
            f"implied_formats says {implied!r} for {name!r}, and `quant_formats` or `frameworks` does not know it"
        )


def _check_calibration(case: Case) -> None:
    strange = not_builtin(case.calibration)
    assert strange is None, f"calibrate must return builtins only, but there is {strange}"
    names = [spec.name for spec in case.adapter.inputs]
    assert names, "inputs is empty"
    assert case.adapter.probe_samples, "calibrate keeps no samples, so nothing can be measured without labels"
    for feed in case.adapter.probe_samples:
        assert sorted(feed) == sorted(names), f"a kept sample has the inputs {sorted(feed)}, the model {sorted(names)}"
    other = case.another()
    try:
        other.keep_probe_samples(case.data)
        assert equal_feeds(other.probe_samples, case.adapter.probe_samples), (
            "keep_probe_samples takes other samples than calibrate does"
        )
    finally:
        other.close()


def _check_restore(case: Case) -> None:
    other = case.another()
    try:
        other.restore(copy.deepcopy(case.calibration))
        for words, config in case.configs():
            here, there = case.adapter.assemble(config), other.assemble(config)
            same = here.SerializeToString() == there.SerializeToString()
            assert same, f"{words} has other bytes after `restore` in a newly opened adapter"
    finally:
        other.close()


def _check_builds(case: Case) -> None:
    float_model = case.adapter.build(None)
    assert isinstance(float_model, Model), f"build must return a quaver.Model, not a {type(float_model).__name__}"
    expected = case.outputs(float_model)
    _check_calls(case, float_model, expected)
    for words, config in case.configs():
        model = case.adapter.build(config)
        shapes = [[array.shape for array in outputs] for outputs in case.outputs(model)]
        expected_shapes = [[array.shape for array in outputs] for outputs in expected]
        assert shapes == expected_shapes, (
            f"{words} gives outputs of the shapes {shapes}, the float model {expected_shapes}"
        )
        model.close()
    model = case.adapter.build(case.space.all_fp32())
    distance = difference(expected, case.outputs(model))
    assert distance <= FLOAT_TOLERANCE, (
        f"a configuration with every op in fp32 differs from the float model by {distance:.1e} of the largest output"
    )
    for built in (model, float_model):
        built.close()


def _check_calls(case: Case, model: Model, expected: list[Outputs]) -> None:
    feed = case.adapter.probe_samples[0]
    ways: dict[str, Callable[[], Any]] = {
        "by position": lambda: model(*(feed[spec.name] for spec in case.adapter.inputs)),
        "by input name": lambda: model(**feed),
    }
    for way, call in ways.items():
        distance = difference(expected[:1], [as_list(call())])
        assert distance <= SAME, f"a model called with arrays {way} gives something else than `run` with the same feed"


def _check_repairs(case: Case) -> None:
    """Check that an unknown repair is refused, not skipped silently."""
    name, pick = next(iter(case.default_config.items()))
    config = case.default_config.replace({name: replace(pick, repairs=("no such repair",))})
    try:
        case.adapter.assemble(config)
    except BuildError as error:
        assert "no such repair" in str(error), f"the error for a repair that cannot be done does not name it: {error}"
    else:
        raise AssertionError("an op with an unknown repair is built without an error; raise a BuildError")


def _check_names(case: Case) -> None:
    """Check that a file does not get a name that belongs to another framework."""
    other = ".tflite" if case.adapter.suffix != ".tflite" else ".onnx"
    model = case.adapter.assemble(None)
    assert model.suffix == case.adapter.suffix, (
        f"models are written as {model.suffix!r}, and the adapter's suffix is {case.adapter.suffix!r}"
    )
    try:
        model.save(case.scratch / f"model{other}")
    except BuildError:
        return
    raise AssertionError(f"a model is saved as {other}, which belongs to another framework; raise a BuildError")


def _check_bytes(case: Case) -> None:
    for number, (words, config) in enumerate(case.configs()):
        model = case.adapter.build(config)
        data = model.SerializeToString()
        assert model.sha256 == hashlib.sha256(data).hexdigest(), f"sha256 of {words} is not the hash of its bytes"
        assert model.size == len(data), f"size of {words} is {model.size}, but it has {len(data)} bytes"
        assert case.adapter.assemble(config).SerializeToString() == data, f"`assemble` of {words} gives other bytes"
        path = case.scratch / f"saved{number}{case.adapter.suffix}"
        assert Path(model.save(path)) == path, f"save of {words} must return the path it was given"
        assert path.read_bytes() == data, f"the saved file of {words} holds other bytes than sha256 is taken of"
        loaded = case.adapter.load_saved(path)
        distance = difference(case.outputs(model), case.outputs(loaded))
        assert distance <= SAME, f"{words} gives other outputs after it was saved and loaded"
        assert loaded.sha256 == model.sha256, f"{words} has another sha256 after it was saved and loaded"
        for opened in (model, loaded):
            opened.close()
        path.unlink()


def _check_provenance(case: Case) -> None:
    """Check that provenance changes nothing but the file."""
    properties = {"quaver.version": "1.2.3", "quaver.scores": '{"top1": 0.5}'}
    for words, config in case.configs():
        model = case.adapter.assemble(config)
        scored = model.sha256
        model.add_provenance(properties)
        data = model.SerializeToString()
        assert model.sha256 == scored, f"{words} has another sha256 with provenance; it must be of the model alone"
        assert model.size == len(data), f"size of {words} is {model.size}, but with provenance it has {len(data)} bytes"
        path = case.scratch / f"provenance{case.adapter.suffix}"
        model.save(path)
        assert path.read_bytes() == data, f"the saved file of {words} with provenance holds other bytes than it gives"
        loaded = case.adapter.load_saved(path)
        assert loaded.sha256 == scored, f"{words} has another sha256 after it was saved with provenance and loaded"
        distance = difference(case.outputs(model), case.outputs(loaded))
        assert distance <= SAME, f"{words} gives other outputs after it was saved with provenance and loaded"
        stored, digest = abilities.read_provenance(type(case.adapter), path)
        if stored:
            missing = next((name for name, text in properties.items() if stored.get(name) != text), None)
            assert missing is None, f"read_provenance does not give {missing!r} as it was written into {words}"
            assert digest in ("", scored), f"read_provenance gives another hash of {words} than its sha256"
            assert loaded.SerializeToString() == data, f"{words} loses provenance when it is loaded and saved again"
        for opened in (model, loaded):
            opened.close()
        path.unlink()


def _check_record_outputs(case: Case) -> None:
    names = [op.name for op in case.space.ops]
    feed = case.adapter.probe_samples[0]
    fp32, int8 = (
        case.adapter.record_outputs(None, names)(feed),
        case.adapter.record_outputs(case.default_config, names)(feed),
    )
    for outputs, words in ((fp32, "the float model"), (int8, "the all-int8 model")):
        missing = [name for name in names if name not in outputs]
        assert not missing, f"record_outputs of {words} gives no output of op {missing[0]!r}"
        for name in names:
            assert np.asarray(outputs[name]).dtype.kind == "f", (
                f"record_outputs of {words} gives op {name!r} not as float"
            )
    for name in names:
        assert fp32[name].shape == int8[name].shape, (
            f"record_outputs gives op {name!r} in another shape when it is int8"
        )
    last = case.adapter.record_outputs(None, names[-1:])(feed)
    assert list(last) == names[-1:], "record_outputs gives other ops than it was asked for"
    precisions = abilities.inspect_quantized(case.adapter, case.default_config).precisions
    assert sorted(precisions) == sorted(names), "inspect_quantized tells the precision of other ops than ops() lists"


def _check_local_errors(case: Case) -> None:
    half = case.default_config.fallback(*(op.name for op in case.space.ops[::2]))
    modes = dict.fromkeys(choice.mode for op in case.space.ops for choice in op.quantized_choices)
    for config in (case.default_config, half, *map(case.in_mode, modes)):
        errors = abilities.local_errors(case.adapter, config)
        assert sorted(errors) == sorted(config.quantized_ops), (
            "local_errors must cover the int8 ops, all of them and no other"
        )
        for name, pair in errors.items():
            fine = len(pair) == 2 and all(math.isfinite(figure) and figure >= 0 for figure in pair)
            assert fine, f"local_errors of op {name!r} must be two numbers of at least 0, not {pair!r}"


def _check_op_seconds(case: Case) -> None:
    for config in (None, case.default_config):
        seconds = case.adapter.op_seconds(config)
        missing = [op.name for op in case.space.ops if op.name not in seconds]
        assert not missing, f"op_seconds has no time for op {missing[0]!r}"
        assert "" in seconds, "op_seconds does not tell the rest of the time, under the empty name"
        for name, op_time in seconds.items():
            assert math.isfinite(op_time) and op_time >= 0, f"op_seconds of {name!r} is {op_time!r}"
        assert sum(seconds.values()) > 0, "op_seconds are all 0"


CHECKS: tuple[Callable[[Case], None], ...] = (
    _check_identity,
    _check_calibration,
    _check_builds,
    _check_restore,
    _check_repairs,
    _check_names,
    _check_bytes,
    _check_provenance,
    _check_record_outputs,
    _check_local_errors,
    _check_op_seconds,
)


def _check_close(case: Case) -> None:
    """Check that temporary files are removed, and that a saved model stays usable."""
    path = case.scratch / f"saved{case.adapter.suffix}"
    model = case.adapter.assemble(case.default_config)
    expected, feed = as_list(model.run(case.adapter.probe_samples[0])), case.adapter.probe_samples[0]
    loaded = case.adapter.load_saved(model.save(path))
    model.close()
    case.adapter.close()
    del model
    distance = difference([expected], [as_list(loaded.run(feed))])
    assert distance <= SAME, "a saved and loaded model gives other outputs once the adapter is closed"
    loaded.close()
    path.unlink()
    leftovers = (path for path in case.scratch.rglob("*") if path != case.folder)
    left = sorted(str(path.relative_to(case.scratch)) for path in leftovers)
    where = "the folder it was given" if case.folder else "the folder for temporary files"
    assert not left, f"close leaves files in {where}: {', '.join(left[:5])}"
