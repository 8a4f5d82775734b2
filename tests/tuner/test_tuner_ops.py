"""How one op runs, what an op is, and one configuration of all of them."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaver import FP32, INT8, Op, OpConfig, Precision, QuantConfig
from quaver.ops import CALIBRATIONS, FLOAT, GRANULARITIES, SCHEMES

PICKS = st.one_of(
    st.just(FLOAT),
    st.builds(
        OpConfig,
        st.just(INT8),
        st.sampled_from(CALIBRATIONS),
        st.sampled_from(GRANULARITIES),
        st.sampled_from(SCHEMES),
    ),
)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
CONFIGS = st.dictionaries(NAMES, PICKS, max_size=8)

FINGERPRINT = """
from quaver import INT8, OpConfig, QuantConfig
print(QuantConfig({"b": OpConfig(INT8), "a": OpConfig(INT8, "entropy", "per_tensor", "sym")}).fingerprint)
"""


def test_precisions_are_the_words_users_write() -> None:
    assert FP32 == "fp32" and INT8 == "int8"
    assert OpConfig("int8") == OpConfig(INT8)  # type: ignore[arg-type]
    assert OpConfig("fp32") == FLOAT  # type: ignore[arg-type]
    assert OpConfig("int8").precision is INT8  # type: ignore[arg-type]
    for wrong in ("octal", "int", "INT8", "int8 ", ""):
        with pytest.raises(ValueError, match="is not a precision"):
            OpConfig(Precision(wrong))


def test_precisions_are_open_and_ordered_by_width() -> None:
    names = ["fp32", "int4", "bf16", "int8", "fp16"]
    assert sorted(map(Precision, names)) == ["int4", "int8", "bf16", "fp16", "fp32"]
    assert Precision("int4") < INT8 <= "int8" < FP32 and FP32 > "bf16" >= Precision("bf16")
    assert [Precision(name).quantized for name in names] == [False, True, False, True, False]
    assert pickle.loads(pickle.dumps(INT8)) is INT8


def test_what_a_mode_does_not_need_is_empty() -> None:
    dynamic = OpConfig(INT8, "entropy", mode="dynamic")
    assert dynamic == OpConfig(INT8, "minmax", mode="dynamic") and dynamic.calibration == ""
    assert str(dynamic) == "int8 dynamic per_channel asym"
    weights = OpConfig(Precision("int4"), "entropy", scheme="sym", mode="weight_only", repairs=("rounding",))
    assert str(weights) == "int4 weight_only per_channel rounding"
    assert str(OpConfig(INT8)) == "int8 minmax per_channel asym"


def test_a_configuration_tells_which_ops_run_in_what() -> None:
    config = QuantConfig({"a": OpConfig(INT8), "b": OpConfig(Precision("int4"), mode="weight_only"), "c": FLOAT})
    assert config.ops_in("int4") == ("b",) and config.ops_in(INT8) == config.int8_ops == ("a",)
    assert config.quantized_ops == ("a", "b") and config.fp32_ops == ("c",)
    assert config.counts == {"int4": 1, "int8": 1, "fp32": 1}
    assert repr(config).startswith("QuantConfig(1 int4, 1 int8, 1 fp32, ")


def test_an_fp32_op_has_no_details_so_that_equal_things_compare_equal() -> None:
    assert OpConfig(FP32, "entropy", "per_tensor", "sym") == FLOAT
    assert hash(OpConfig(FP32, "entropy")) == hash(FLOAT)
    assert str(FLOAT) == "fp32"
    assert str(OpConfig(INT8, "entropy")) == "int8 entropy per_channel asym"


def test_an_op_is_quantizable_or_tunable_by_its_choices() -> None:
    both, only_int8, only_fp32 = (
        Op("a", "Conv", ("a",), choices) for choices in ((OpConfig(INT8), FLOAT), (OpConfig(INT8),), (FLOAT,))
    )
    assert (both.quantizable, both.tunable) == (True, True)
    assert (only_int8.quantizable, only_int8.tunable) == (True, False)
    assert (only_fp32.quantizable, only_fp32.tunable) == (False, False)


def test_a_configuration_cannot_be_changed() -> None:
    given = {"a": OpConfig(INT8)}
    config = QuantConfig(given)
    given["a"] = FLOAT
    assert config["a"] == OpConfig(INT8)
    with pytest.raises(TypeError):
        config["a"] = FLOAT  # type: ignore[index]
    with pytest.raises(TypeError):
        config._ops["a"] = FLOAT  # type: ignore[index]
    with pytest.raises(AttributeError):
        config.note = "mine"  # type: ignore[attr-defined]
    with pytest.raises(FrozenInstanceError):
        config["a"].precision = FP32  # type: ignore[misc]


def test_a_fallback_is_a_new_configuration() -> None:
    config = QuantConfig({"a": OpConfig(INT8), "b": OpConfig(INT8), "c": FLOAT})
    fallen = config.fallback("b")
    assert config.int8_ops == ("a", "b") and config.fp32_ops == ("c",)
    assert fallen.int8_ops == ("a",) and fallen.fp32_ops == ("b", "c")
    assert fallen != config and fallen.fallback("b") == fallen and config.fallback() == config


def test_a_fallback_of_an_op_that_is_not_there_names_it() -> None:
    with pytest.raises(KeyError, match="no op called 'z'"):
        QuantConfig({"a": FLOAT}).fallback("a", "z")


@given(CONFIGS)
def test_order_and_pickling_leave_the_fingerprint_alone(ops: dict[str, OpConfig]) -> None:
    config = QuantConfig(ops)
    backwards = QuantConfig(reversed(list(ops.items())))
    copy = pickle.loads(pickle.dumps(config))
    assert config == backwards == copy
    assert config.fingerprint == backwards.fingerprint == copy.fingerprint
    assert len({config, backwards, copy}) == 1
    assert list(copy.items()) == list(config.items())


@given(CONFIGS, CONFIGS)
def test_fingerprints_are_equal_only_for_equal_content(one: dict[str, OpConfig], other: dict[str, OpConfig]) -> None:
    assert (QuantConfig(one) == QuantConfig(other)) == (one == other)


def test_a_configuration_is_not_equal_to_a_dict() -> None:
    assert QuantConfig({"a": FLOAT}) != {"a": FLOAT}


def test_the_fingerprint_is_the_same_in_every_process() -> None:
    expected = QuantConfig({"a": OpConfig(INT8, "entropy", "per_tensor", "sym"), "b": OpConfig(INT8)}).fingerprint
    for seed in ("0", "7"):
        printed = subprocess.run(
            [sys.executable, "-c", FINGERPRINT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert printed.stdout.strip() == expected


def test_the_fingerprint_is_what_it_was_when_the_first_snapshots_were_written() -> None:
    config = QuantConfig({"a": OpConfig(INT8), "b": FLOAT})
    assert config.fingerprint == "ee8dffeed532a10b8b0abc86129f18671c2dad26671c955d4b3e361aa8d46180"
