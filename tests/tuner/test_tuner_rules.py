"""What users write in op_name_dict and op_type_dict, and what is left to choose."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from fake import ENTROPY, MINMAX, PER_TENSOR, SYMMETRIC

import quaver
from quaver import Op, OpConfig, SettingsError
from quaver.ops import FLOAT, INT8
from quaver.rules import apply_rules, rules_without_effect

CHOICES = (MINMAX, ENTROPY, PER_TENSOR, SYMMETRIC, FLOAT)
OPS = tuple(
    Op(name, kind, (name,), CHOICES)
    for name, kind in [
        ("/layer.1/MatMul", "MatMul"),
        ("/layer.10/MatMul", "MatMul"),
        ("/layer.1/Add", "Add"),
        ("conv(1)[a]+", "Conv"),
        ("head", "Gemm"),
    ]
)
INT8_CHOICES = CHOICES[:-1]


def left(names: dict[Any, Any] | None = None, types: dict[Any, Any] | None = None) -> dict[str, tuple[OpConfig, ...]]:
    """What the rules leave, for the ops whose choices they change."""
    ops = apply_rules(OPS, names, types)
    assert [op.name for op in ops] == [op.name for op in OPS]
    return {op.name: op.choices for op in ops if op.choices != CHOICES}


def test_without_rules_nothing_changes() -> None:
    assert apply_rules(OPS) == OPS and apply_rules(OPS, {}, {}) == OPS


@pytest.mark.parametrize(
    "value",
    [
        "fp32",
        "FP32",
        "float32",
        quaver.FP32,
        ["fp32"],
        (quaver.FP32,),
        {"fp32"},
        FLOAT,
        {"activation": {"dtype": ["fp32"]}},
        {"activation": {"dtype": "fp32"}},
        {"weight": {"dtype": ["fp32"]}},
        {"activation": {"dtype": ["fp32"]}, "weight": {"dtype": ["fp32"]}},
        {"activation": {"dtype": ["fp32", "uint8"]}, "weight": {"dtype": ["fp32"]}},
    ],
)
def test_fp32_can_be_spelled_in_many_ways(value: Any) -> None:
    assert left({"head": value}) == {"head": (FLOAT,)}


@pytest.mark.parametrize("value", ["int8", "uint8", quaver.INT8, ["int8"], {"weight": {"dtype": ["int8"]}}])
def test_int8_can_be_spelled_in_many_ways(value: Any) -> None:
    assert left({"head": value}) == {"head": INT8_CHOICES}


def test_allowing_both_precisions_changes_nothing() -> None:
    assert left({"head": ["fp32", "int8"]}) == {}


@pytest.mark.parametrize(
    ("value", "choices"),
    [
        ({"activation": {"algorithm": ["kl"]}}, (ENTROPY, SYMMETRIC, FLOAT)),
        ({"activation": {"algorithm": "naive"}}, (MINMAX, PER_TENSOR, FLOAT)),
        ({"activation": {"scheme": ["sym"]}}, (SYMMETRIC, FLOAT)),
        ({"weight": {"granularity": ["per-tensor"]}}, (PER_TENSOR, SYMMETRIC, FLOAT)),
        ({"weight": {"granularity": ["per_channel"], "dtype": ["int8"]}}, (MINMAX, ENTROPY)),
        ({"activation": {"algorithm": ["minmax"], "dtype": ["int8"]}, "weight": {"granularity": ["per_tensor"]}},
         (PER_TENSOR,)),
        (OpConfig(INT8, "entropy"), (ENTROPY,)),
        # What is always so for weights, and per-tensor activations, may be said and changes nothing.
        ({"weight": {"scheme": ["sym"], "algorithm": ["minmax"]}, "activation": {"granularity": ["per_tensor"]}}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_details_limit_the_int8_choices_and_leave_fp32(value: Any, choices: tuple[OpConfig, ...] | None) -> None:
    assert left({"head": value}) == ({"head": choices} if choices is not None else {})


def test_the_rule_of_the_walk_through_matches_every_layer() -> None:
    rule = {"/layer.*MatMul": {"activation": {"dtype": ["fp32"]}}}
    assert left(rule) == {"/layer.1/MatMul": (FLOAT,), "/layer.10/MatMul": (FLOAT,)}


def test_a_regular_expression_must_match_the_whole_name() -> None:
    assert left({"/layer.1/.*": "fp32"}).keys() == {"/layer.1/MatMul", "/layer.1/Add"}
    for part in ("MatMul", "/layer.1/Mat", "lay"):
        with pytest.raises(SettingsError, match=f"'{re.escape(part)}' matches no op and no module of this model"):
            left({part: "fp32"})


def test_a_name_is_compared_literally_first() -> None:
    assert left({"conv(1)[a]+": "fp32"}).keys() == {"conv(1)[a]+"}
    assert left({re.escape("conv(1)[a]+"): "fp32"}).keys() == {"conv(1)[a]+"}


def test_a_literal_match_is_not_matched_as_a_regular_expression_too() -> None:
    ops = [Op(name, "Conv", (name,), CHOICES) for name in ("a.c", "abc")]
    assert [op.choices for op in apply_rules(ops, {"a.c": "fp32"})] == [(FLOAT,), CHOICES]


def test_a_rule_on_a_type_applies_to_all_its_ops() -> None:
    assert left(types={"MatMul": "fp32"}).keys() == {"/layer.1/MatMul", "/layer.10/MatMul"}


def test_a_later_rule_overrides_an_earlier_one_and_names_override_types() -> None:
    names = {"/layer.*": "fp32", "/layer.1/MatMul": "int8"}
    expected = {"/layer.1/MatMul": INT8_CHOICES, "/layer.10/MatMul": (FLOAT,), "/layer.1/Add": (FLOAT,)}
    assert left(names) == expected
    assert left(dict(reversed(names.items()))) == dict.fromkeys(expected, (FLOAT,))
    assert left({"/layer.1/MatMul": "int8"}, {"MatMul": "fp32"})["/layer.1/MatMul"] == INT8_CHOICES


def test_the_error_for_a_rule_that_matches_nothing_suggests_near_names() -> None:
    with pytest.raises(SettingsError, match=r"'/layer.1/Matmul' matches no op .*'/layer.1/MatMul'"):
        left({"/layer.1/Matmul": "fp32"})
    with pytest.raises(SettingsError, match=r"no op of type 'matmul' in this model; did you mean 'MatMul'"):
        left(types={"matmul": "fp32"})
    with pytest.raises(SettingsError, match=r"no op of type 'LSTM' .*known are: 'Add', 'Conv', 'Gemm', 'MatMul'"):
        left(types={"LSTM": "fp32"})


@pytest.mark.parametrize("pattern", ["(", "*", "[a", "(?!head).*", r"(h)\1", 5, None, b"head"])
def test_the_error_for_an_invalid_regular_expression_names_it(pattern: Any) -> None:
    with pytest.raises(SettingsError, match=re.escape(repr(pattern)) + " is neither an op nor a regular expression"):
        left({pattern: "fp32"})


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("int4", r"leaves no int4 choice for op 'head' \(Gemm\); it offers: int8 minmax"),
        ("in8", r"'in8' is not possible; did you mean 'int8'"),
        ({"weight": {"scheme": ["asym"]}}, "weights are always symmetric; leave it out, or write 'sym'"),
        ({"weight": {"algorithm": "kl"}}, "weights are always quantized over their whole range"),
        ({"activation": {"granularity": ["per_channel"]}}, "activations have one scale for the whole tensor"),
        (None, "None is not possible"),
        (32, "32 is not possible"),
        ([], "the list is empty"),
        ({"activations": {"dtype": "fp32"}}, r"unknown part 'activations'; did you mean 'activation'\?"),
        ({"dtype": "fp32"}, "unknown part 'dtype'"),
        ({"activation": "fp32"}, r"\['activation'\] must be a mapping like .* not 'fp32'"),
        ({"activation": {"type": "fp32"}}, r"\['activation'\]: unknown key 'type'; did you mean 'dtype'\?"),
        ({"activation": {"algorithm": ["magic"]}}, "'magic' is not possible; .*'minmax'"),
        ({"weight": {"granularity": ["per_layer"]}}, "'per_layer' is not possible; .*'per_channel'"),
    ],
)
def test_the_error_for_an_impossible_rule_says_what_is_possible(value: Any, complaint: str) -> None:
    with pytest.raises(SettingsError, match=rf"op_name_dict\['head'\].*{complaint}"):
        left({"head": value})
    with pytest.raises(SettingsError, match=rf"op_type_dict\['Gemm'\].*{complaint}"):
        left(types={"Gemm": value})


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ({"activation": {"dtype": ["fp32"]}, "weight": {"dtype": ["int8"]}}, "choice"),
        ({"activation": {"algorithm": ["percentile"]}}, "int8 choice"),
        ({"activation": {"scheme": ["sym"], "algorithm": ["minmax"], "dtype": ["int8"]}}, "int8 choice"),
    ],
)
def test_the_error_for_a_rule_that_leaves_no_choice_names_the_op_and_its_choices(value: Any, what: str) -> None:
    with pytest.raises(SettingsError, match=rf"leaves no {what} for op 'head' \(Gemm\); it offers: int8 minmax"):
        left({"head": value})


DYNAMIC = OpConfig(INT8, mode="dynamic")


def test_ops_of_a_type_that_cannot_follow_its_rule_stay_in_fp32_if_others_can() -> None:
    able, unable = (
        Op(name, "MatMul", (name,), choices) for name, choices in (("weight", (DYNAMIC, *CHOICES)), ("plain", CHOICES))
    )
    rule = {"MatMul": {"activation": {"mode": ["dynamic"]}}}
    assert [op.choices for op in apply_rules((able, unable), None, rule)] == [(DYNAMIC, FLOAT), (FLOAT,)]
    with pytest.raises(SettingsError, match="leaves no int8 choice for op 'plain'"):
        apply_rules((unable,), None, rule)
    with pytest.raises(SettingsError, match="leaves no int8 choice for op 'plain'"):
        apply_rules((able, unable), None, {"MatMul": {"activation": {"mode": ["dynamic"], "dtype": ["int8"]}}})


def test_ops_that_cannot_follow_a_rule_on_all_types_stay_in_fp32() -> None:
    ops = (Op("a", "MatMul", ("a",), (MINMAX, DYNAMIC, FLOAT)), Op("b", "Conv", ("b",), (MINMAX, FLOAT)))
    for word in ("mode", "quant_mode"):
        one, other = apply_rules(ops, {}, {"*": {"activation": {word: ["dynamic"]}}})
        assert one.choices == (DYNAMIC, FLOAT) and other.choices == (FLOAT,)


def test_a_rule_on_a_type_or_name_overrides_the_rule_on_all_types_field_by_field() -> None:
    ops = tuple(Op(name, kind, (name,), (MINMAX, ENTROPY, DYNAMIC, FLOAT)) for name, kind in ("am", "bm", "cn"))
    every = {"*": {"activation": {"mode": "static", "algorithm": "minmax"}}}
    found = apply_rules(
        ops, {"b": {"activation": {"mode": "dynamic"}}}, {**every, "n": {"activation": {"algorithm": "kl"}}}
    )
    assert [op.choices for op in found] == [(MINMAX, FLOAT), (DYNAMIC, FLOAT), (ENTROPY, FLOAT)]


def test_a_rule_on_all_types_that_no_op_can_follow_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"op_type_dict\['\*'\] leaves only fp32 for every op; they offer: int8"):
        apply_rules(OPS, {}, {"*": {"activation": {"mode": "dynamic"}}})


def test_a_rule_on_all_types_sets_the_repairs_unless_another_rule_does() -> None:
    ops = tuple(replace(op, repairs=("smoothing:0.5", "smoothing:0.7")) for op in OPS[:2])
    one, other = apply_rules(ops, {ops[1].name: {"repairs": []}}, {"*": {"repairs": ["smoothing:0.5"]}})
    assert {choice.repairs for choice in one.choices if choice.quantized} == {("smoothing:0.5",)}
    assert {choice.repairs for choice in other.choices} == {()}
    with pytest.raises(SettingsError, match="'bias_correction' is not possible"):
        apply_rules(ops, {}, {"*": {"repairs": "bias_correction"}})


REPAIRS = ("bias_correction", "smoothing:0.5", "smoothing:0.7")
REPAIRABLE = (
    Op("fc1", "MatMul", ("fc1",), CHOICES, REPAIRS, "x"),
    Op("fc2", "MatMul", ("fc2",), CHOICES, REPAIRS[:1], "y"),
    Op("sum", "Add", ("sum",), CHOICES),
)


def given(names: dict[Any, Any] | None = None, types: dict[Any, Any] | None = None) -> dict[str, tuple[str, ...]]:
    """Return the repairs of the quantized choices of each op, and check that all have the same."""
    found = {}
    for op in apply_rules(REPAIRABLE, names, types):
        (found[op.name],) = {choice.repairs for choice in op.choices if choice.quantized}
    return found


def test_a_rule_on_repairs_leaves_only_quantized_choices_with_them() -> None:
    assert given({"fc1": {"repairs": ["bias_correction", "smoothing:0.6"]}}) == {
        "fc1": ("smoothing:0.6", "bias_correction"), "fc2": (), "sum": (),
    }  # fmt: skip
    ops = apply_rules(REPAIRABLE, {"fc1": {"repairs": "smoothing"}})
    assert ops[0].repairs == () and ops[1:] == REPAIRABLE[1:]


def test_an_empty_list_forbids_repairs_by_name_and_by_type() -> None:
    for rules in ({".*": {"repairs": []}}, None), (None, {"MatMul": {"repairs": []}, "Add": {"repairs": []}}):
        assert [op.repairs for op in apply_rules(REPAIRABLE, *rules)] == [(), (), ()]
        assert set(given(*rules).values()) == {()}


def test_a_repair_in_a_rule_on_a_type_applies_where_it_is_offered() -> None:
    assert given(None, {"MatMul": {"repairs": ["smoothing:0.5"]}}) == {"fc1": ("smoothing:0.5",), "fc2": (), "sum": ()}


def test_an_op_config_as_a_rule_keeps_its_repairs() -> None:
    assert given({"fc1": OpConfig(INT8, repairs=("bias_correction",))})["fc1"] == ("bias_correction",)


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        ({"fc1": ["smothing"]}, "'smothing' is not possible; did you mean 'smoothing'"),
        ({"sum": ["smoothing"]}, "none of the rule's ops offers 'smoothing'"),
        ({"fc1": ["smoothing:2"]}, "must be a number from 0 to 1, not '2'"),
        ({"fc1": ["smoothing:"]}, "must be a number from 0 to 1, not ''"),
        ({"fc1": ["smoothing:0.5", "smoothing"]}, "'smoothing' is listed twice, but can be applied only once"),
        ({"fc1": [3]}, "3 is not a repair; write a name like 'bias_correction'"),
    ],
)
def test_the_error_for_an_impossible_repair_names_it(rule: dict[str, Any], complaint: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(complaint)):
        apply_rules(REPAIRABLE, {name: {"repairs": repairs} for name, repairs in rule.items()})
    with pytest.raises(SettingsError, match="this model's ops offer none"):
        apply_rules(OPS, {"head": {"repairs": ["smoothing"]}})


@pytest.mark.parametrize("node", ["conv1/Conv2D", "v0/conv1", "v0/conv1/Conv2D"])
def test_the_path_of_a_node_in_the_source_graph_names_its_op(node: str) -> None:
    ops = [Op(name, "CONV_2D", (name,), (OpConfig(INT8), FLOAT)) for name in ("conv1", "conv2")]
    (first, second) = apply_rules(ops, {node: "fp32"})
    assert first.choices == (FLOAT,) and second == ops[1]


def test_the_name_of_a_fused_node_names_its_op() -> None:
    op = Op("dense/MatMul", "MatMul", ("dense/MatMul", "dense/Add"), (OpConfig(INT8), FLOAT))
    (narrowed,) = apply_rules([op], {"dense/Add": "fp32"})
    assert narrowed.choices == (FLOAT,)


@pytest.mark.parametrize("wrong", ["conv3/Conv2D", "a/b/conv1/Conv2D", "conv1x"])
def test_paths_that_name_no_op_are_refused(wrong: str) -> None:
    ops = [Op("conv1", "CONV_2D", ("conv1",), (OpConfig(INT8), FLOAT))]
    with pytest.raises(SettingsError, match="matches no op"):
        apply_rules(ops, {wrong: "fp32"})


NAMES = (
    "/bert/encoder/layer.1/query/MatMul",
    "/bert/encoder/layer.10/query/MatMul",
    "/layer1/layer1.0/conv/Conv",
    "blocks.0.conv/node_conv2d_1",
    "blocks.1/node_add_4",
    "head",
)
MODULES = {
    "bert.encoder.layer.1": (0,),
    "bert/encoder": (0, 1),
    "/bert/": (0, 1),
    "layer.1": (0,),
    "encoder.layer.*": (0, 1),
    "encoder.layer.(10|11)": (1,),
    "layer1": (2,),
    "layer1.0.conv": (2,),
    "blocks": (3, 4),
    "blocks.0": (3,),
    "blocks.*": (3, 4),
    "conv": (2, 3),
}


@pytest.mark.parametrize("pattern", MODULES)
def test_a_rule_on_a_module_applies_to_all_ops_inside(pattern: str) -> None:
    ops = [Op(name, "Conv", (name,), CHOICES) for name in NAMES]
    limited = apply_rules(ops, {pattern: "fp32"})
    assert tuple(at for at, op in enumerate(limited) if op.choices == (FLOAT,)) == MODULES[pattern]


def test_ops_of_a_module_that_cannot_follow_its_rule_stay_in_fp32_if_others_can() -> None:
    dynamic = OpConfig(INT8, mode="dynamic")
    ops = [Op("m/a", "MatMul", ("m/a",), (*CHOICES[:-1], dynamic, FLOAT)), Op("m/b", "Add", ("m/b",), CHOICES)]
    first, second = apply_rules(ops, {"m": {"activation": {"mode": "dynamic"}}})
    assert first.choices == (dynamic, FLOAT) and second.choices == (FLOAT,)


def test_the_error_for_an_unknown_module_suggests_modules() -> None:
    with pytest.raises(SettingsError, match=r"'/layer\.2' matches no op and no module .*did you mean .*'layer\.1'"):
        left({"/layer.2": "fp32"})


def test_types_that_always_run_in_fp32_are_accepted_if_the_rule_allows_it() -> None:
    types = {"Softmax": "fp32", "LayerNormalization": ["fp32", "int8"]}
    assert apply_rules(OPS, None, types, float_types=types) == OPS
    assert rules_without_effect(OPS, {**types, "Conv": "fp32", "*": "int8"}) == ("Softmax", "LayerNormalization")
    with pytest.raises(SettingsError, match=r"op_type_dict\['Softmax'\] asks for less than fp32, but ops of this type"):
        apply_rules(OPS, None, {"Softmax": "int8"}, float_types=types)
    assert apply_rules(OPS, None, {"Tanh": "fp32"}, float_types=None) == OPS  # of a recorded run
