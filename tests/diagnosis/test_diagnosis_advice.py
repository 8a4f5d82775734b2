"""Advice never contradicts the user's rules, and names the remedies that they forbid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import diagnosis_models as models
import onnx
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import quaver
from quaver.adapters import AdapterOptions, load_model
from quaver.api.config.resolve import make_config
from quaver.diagnosis.causes.advice import AllowedChoices, Remedy, calibrate_by, per_channel, to_fp32
from quaver.ops import CALIBRATIONS, FLOAT, GRANULARITIES, MODES, SCHEMES, Op
from quaver.rules import apply_rules
from quaver.space import TuningSpace

ONE_SCALE = {"weight": {"granularity": ["per_tensor"]}}
STAY = {"dtype": ["int8"]}


def diagnosed(model: onnx.ModelProto, data: Any = None, quantized: Any = None, **rules: Any) -> quaver.Diagnosis:
    data = models.images() if data is None else data
    return quaver.diagnose(model, quantized, data, timing=False, threads=1, **rules)


def test_scales_for_each_channel_are_not_advised_where_one_was_demanded() -> None:
    model, rules = models.outlying_output_channel(), {"Conv": ONE_SCALE}
    found = diagnosed(model, op_type_dict=rules)
    (cause,) = found.causes
    assert cause.kind == "one_weight_scale" and cause.rules == {"second": "fp32"}
    assert cause.advice == "Your rules do not allow to give each channel a scale of its own. Keep it in fp32"
    assert not diagnosed(model, op_type_dict=rules, op_name_dict=cause.rules).causes


def test_fp32_is_not_advised_where_int8_was_demanded() -> None:
    found = diagnosed(models.outlying_output_channel(), op_type_dict={"Conv": {**ONE_SCALE, "activation": STAY}})
    (cause,) = found.causes
    assert cause.kind == "one_weight_scale" and not cause.rules and not found.rules and not found.fallback
    assert cause.advice == (
        "Change your rules: they do not allow to give each channel a scale of its own, nor to keep it in fp32"
    )
    assert str(cause).endswith(cause.advice)


def test_a_scale_for_each_channel_is_advised_where_int8_was_demanded_and_the_pasted_rule_keeps_demanding_it() -> None:
    model = models.outlying_output_channel()
    config = TuningSpace(apply_rules(ops(model), {}, {"Conv": ONE_SCALE})).default_config()
    found = diagnosed(model, quantized=config, op_type_dict={"Conv": {"activation": {**STAY, "scheme": ["sym"]}}})
    (cause,) = found.causes
    assert cause.advice == "Give each channel a scale of its own" and cause.rules == {
        "second": {"activation": {"dtype": ["int8"], "scheme": ["sym"]}, "weight": {"granularity": ["per_channel"]}}
    }


@pytest.mark.parametrize(
    ("methods", "rule", "said"),
    [
        (["minmax", "percentile"], {"activation": {"algorithm": ["percentile"]}}, "or calibrate by percentile"),
        (["minmax"], "fp32", "Your rules do not allow to calibrate by percentile, which"),
    ],
)
def test_a_calibration_method_is_advised_only_if_the_rules_leave_it(methods: list[str], rule: Any, said: str) -> None:
    data = models.images()
    data[20, 0, 0, 0] = 2000.0
    others = {"second": "fp32", "third": "fp32"}
    found = diagnosed(models.chain(), data, op_name_dict={"first": {"activation": {"algorithm": methods}}, **others})
    cause = next(cause for cause in found.causes if cause.kind == "few_samples")
    assert cause.op == "first" and said in cause.advice, cause
    assert "Leave it out of calibration if it is not typical, or " in cause.advice
    assert cause.rules == {"first": rule}


def test_without_an_allowed_remedy_the_advice_names_the_forbidden_ones() -> None:
    data = models.images()
    data[20, 0, 0, 0] = 2000.0
    rule = {"activation": {"algorithm": ["minmax"], **STAY}}
    found = diagnosed(models.chain(), data, op_name_dict={"first": rule, "second": "fp32", "third": "fp32"})
    cause = next(cause for cause in found.causes if cause.kind == "few_samples")
    start = "Leave it out of calibration if it is not typical; your rules do not allow to calibrate by percentile"
    assert not cause.rules and cause.advice.startswith(start)
    assert cause.advice.endswith("nor to keep all that write or read this tensor in fp32")


def test_minmax_is_not_advised_where_another_method_was_demanded() -> None:
    found = diagnosed(
        models.chain(), models.spiked(), op_type_dict={"Conv": {"activation": {"algorithm": ["entropy"]}}}
    )
    (cause,) = found.causes
    assert (cause.kind, cause.rules) == ("clipped", {"first": "fp32"})
    assert cause.advice.startswith("Your rules do not allow to calibrate by minmax. Keep all")


def test_a_remedy_for_several_ops_is_not_advised_if_one_of_them_must_stay() -> None:
    bound = {"second": {"weight": {"dtype": ["int8"]}, "activation": {"dtype": ["int8"]}, "repairs": []}}
    found = diagnosed(models.outlying_activation(), op_name_dict=bound)
    assert {cause.kind for cause in found.causes} == {"outlier_channel"} and not found.rules
    assert all("in fp32 (those for second)" in cause.advice for cause in found.causes)


def test_milder_calibration_is_mentioned_only_within_the_rules() -> None:
    free = diagnosed(models.outlying_activation())
    bound = diagnosed(models.outlying_activation(), op_type_dict={"Conv": {"activation": {"algorithm": ["minmax"]}}})
    assert any("Calibration by" in cause.sentence for cause in free.causes)
    assert bound.causes and not any("Calibration by" in cause.sentence for cause in bound.causes)


def test_a_run_is_advised_by_its_own_rules(tmp_path: Path) -> None:
    model, data = models.outlying_output_channel(), models.images()
    result = quaver.fit(
        model, calib_dataloader=data, eval_func=lambda model: 1.0, op_type_dict={"Conv": ONE_SCALE}, max_trials=1,
        strategy="basic", diagnosis=True, threads=1, workspace=tmp_path / "run",
    )  # fmt: skip
    assert result.diagnosis is not None and result.diagnosis.rules["second"] == "fp32"
    for quantized in (1, result, None):  # as the run, though no rule is given again
        found = diagnosed(model, data, quantized, history=result.workspace)
        assert [(cause.kind, cause.rules) for cause in found.causes] == [("one_weight_scale", {"second": "fp32"})]
    free = diagnosed(model, data, 1, history=result.workspace, op_type_dict={})
    assert free.rules == {"second": {"weight": {"granularity": ["per_channel"]}}}


def test_the_rules_file_repeats_the_rules_that_were_given(tmp_path: Path) -> None:
    rules = {"Conv": {**ONE_SCALE, "activation": {"scheme": ["sym"]}}}
    found = diagnosed(models.outlying_output_channel(), op_type_dict=rules)
    files = found.save(tmp_path)
    assert yaml.safe_load(files["rules.yaml"].read_text())["quantization"]["op_name_dict"] == {
        "first": {"activation": {"scheme": ["sym"]}, "weight": {"granularity": ["per_tensor"]}},
        "second": "fp32",
    }
    left = {op.name: op for op in apply_rules(found.ops, make_config(files["rules.yaml"]).op_name_dict)}
    assert left["first"].choices == found.space["first"].choices and left["second"].choices == (FLOAT,)
    assert json.loads(files["diagnosis.json"].read_text())["rules"] == {"second": "fp32"}


def ops(model: onnx.ModelProto) -> tuple[Op, ...]:
    adapter = load_model(model, AdapterOptions(threads=1))
    found = adapter.ops()
    adapter.close()
    return found


OPS = ops(models.joined(1.0))


def some(values: tuple[str, ...]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(values), min_size=1, unique=True)


RULES = st.one_of(
    st.sampled_from(["fp32", "int8"]),
    st.fixed_dictionaries(
        {},
        optional={
            "activation": st.fixed_dictionaries(
                {},
                optional={
                    "dtype": some(("fp32", "int8")),
                    "algorithm": some(CALIBRATIONS),
                    "scheme": some(SCHEMES),
                    "mode": some(MODES),
                },
            ),
            "weight": st.fixed_dictionaries({}, optional={"granularity": some(GRANULARITIES)}),
        },
    ),
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from([op.name for op in OPS]), RULES))
def test_a_pasted_rule_keeps_what_other_rules_demand(rules: dict[str, Any]) -> None:
    try:
        space = TuningSpace(apply_rules(OPS, rules))
    except quaver.SettingsError:  # they leave an op nothing
        return
    leeway = AllowedChoices(OPS, space)
    for op in OPS:
        left = set(space[op.name].choices)
        standing = leeway.rule_in_force(op.name)
        assert set(pasted(op, rules, standing)) == left
        remedies = [to_fp32([op.name]), per_channel(op.name)]
        remedies += [calibrate_by([op.name], method, "do so") for method in CALIBRATIONS]
        for remedy in remedies:
            check(op, rules, remedy, leeway, left)


def check(op: Op, rules: dict[str, Any], remedy: Remedy, leeway: AllowedChoices, left: set[Any]) -> None:
    wish = remedy.constraints[op.name]
    fits = {choice for choice in left if all(getattr(choice, field) == value for field, value in wish.items())}
    _, advised = leeway.advise([remedy])
    assert bool(advised) is bool(fits)
    if advised:
        after = set(pasted(op, rules, advised[op.name]))
        assert after <= left and fits <= after
        # What says nothing about the field, as a weight alone in 8 bits about calibration, is as the rules left it.
        assert after - fits == {choice for choice in left if not any(getattr(choice, field) for field in wish)}


def pasted(op: Op, rules: dict[str, Any], rule: Any) -> tuple[Any, ...]:
    """What an op is left when a rule is given behind all others."""
    changed = {name: value for name, value in rules.items() if name != op.name}
    left = apply_rules(OPS, changed | ({} if rule is None else {op.name: rule}))
    return next(one.choices for one in left if one.name == op.name)
