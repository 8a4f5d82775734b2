"""What may be chosen, and what a strategy is told when it chooses something else."""

from __future__ import annotations

import pytest
from fake import ENTROPY, MINMAX, PER_TENSOR

from quaver import Op, OpConfig, QuantConfig, StrategyError, TuningSpace
from quaver.ops import FLOAT, INT8

SPACE = TuningSpace(
    [
        Op("stem", "Conv", ("stem", "relu"), (MINMAX, ENTROPY, FLOAT)),
        Op("body", "Conv", ("body",), (MINMAX, PER_TENSOR, FLOAT)),
        Op("head", "Gemm", ("head",), (MINMAX, ENTROPY)),  # must be int8
        Op("tail", "Add", ("tail",), (FLOAT,)),  # must be fp32
        Op("up", "ConvTranspose", ("up",), (FLOAT, MINMAX)),  # int8 gains nothing
    ]
)


def test_a_space_knows_which_ops_can_be_decided() -> None:
    assert SPACE.quantizable == ("stem", "body", "head", "up")
    assert SPACE.tunable == ("stem", "body", "up")
    assert SPACE.of_kind("Conv") == ("stem", "body")
    assert SPACE.of_kind("Add") == () and SPACE.of_kind("Softmax") == ()


def test_kinds_come_with_the_most_frequent_first_and_without_those_that_stay_fp32() -> None:
    assert SPACE.kinds == ("Conv", "Gemm", "ConvTranspose")


def test_a_space_is_looked_up_by_op_name() -> None:
    assert len(SPACE) == 5 and "stem" in SPACE and "relu" not in SPACE
    assert SPACE["head"].kind == "Gemm"
    assert repr(SPACE) == "TuningSpace(2 Conv, 1 Gemm, 1 Add, 1 ConvTranspose)"
    assert repr(TuningSpace([])) == "TuningSpace(no ops)"


def test_all_int8_takes_the_default_and_leaves_out_what_gains_nothing() -> None:
    config = SPACE.default_config()
    assert config.int8_ops == ("stem", "body", "head") and config.fp32_ops == ("tail", "up")
    assert set(config.values()) == {MINMAX, FLOAT}


def test_a_wish_is_granted_where_it_is_on_offer() -> None:
    config = SPACE.default_config(calibration="entropy", granularity="per_tensor")
    assert (config["stem"], config["body"], config["head"]) == (ENTROPY, PER_TENSOR, ENTROPY)


def test_all_fp32_leaves_in_int8_what_must_be() -> None:
    assert SPACE.all_fp32().int8_ops == ("head",)


def test_only_int8_leaves_all_others_in_fp32_where_that_may_be() -> None:
    assert SPACE.only_int8("body").int8_ops == ("body", "head")


def test_every_configuration_a_space_makes_lies_in_it() -> None:
    for config in (
        SPACE.default_config(),
        SPACE.default_config(scheme="sym"),
        SPACE.all_fp32(),
        SPACE.only_int8("stem", "tail"),
    ):
        assert SPACE.check(config) is config
        assert SPACE.allows(config)


@pytest.mark.parametrize(
    ("proposal", "complaint"),
    [
        ({"stem": FLOAT}, "must yield QuantConfig objects, not dict"),
        (None, "not NoneType"),
        ("int8", "not str: 'int8'"),
        (QuantConfig({"stem": FLOAT}), "op 'body' is missing"),
        (QuantConfig({**SPACE.default_config(), "nose": FLOAT}), "unknown op 'nose'"),
        (SPACE.default_config().fallback("head"), "op 'head' cannot run as 'fp32'; its choices are: int8 minmax"),
        (SPACE.default_config().replace({"tail": MINMAX}), "op 'tail' cannot run as 'int8 minmax per_channel asym'"),
        (SPACE.default_config().replace({"body": OpConfig(INT8, "magic")}), "op 'body' cannot run as 'int8 magic"),
    ],
)
def test_a_proposal_outside_the_space_is_named(proposal: object, complaint: str) -> None:
    with pytest.raises(StrategyError, match=complaint):
        SPACE.check(proposal)
    assert not isinstance(proposal, QuantConfig) or not SPACE.allows(proposal)


def test_a_configuration_of_swapped_names_is_not_taken_for_complete() -> None:
    renamed = QuantConfig(("nose" if name == "tail" else name, pick) for name, pick in SPACE.default_config().items())
    assert len(renamed) == len(SPACE) and not SPACE.allows(renamed)
    with pytest.raises(StrategyError, match="unknown op 'nose'"):
        SPACE.check(renamed)


REPAIRABLE = TuningSpace(
    [
        Op(
            "fc",
            "MatMul",
            ("fc",),
            (MINMAX, ENTROPY, FLOAT),
            ("bias_correction", "smoothing:0.5", "smoothing:0.7"),
            "x",
        ),
        Op("sum", "Add", ("sum",), (MINMAX, FLOAT)),
    ]
)


def test_choices_may_be_given_the_repairs_that_an_op_offers() -> None:
    both = REPAIRABLE.repair(REPAIRABLE.default_config(), "bias_correction", "smoothing:0.7")
    assert both["fc"].repairs == ("smoothing:0.7", "bias_correction") and both["sum"].repairs == ()
    assert REPAIRABLE.allows(both) and REPAIRABLE.check(both) is both
    assert REPAIRABLE.repair(both, "smoothing:0.5")["fc"].repairs == ("smoothing:0.5", "bias_correction")
    assert REPAIRABLE.repairs == ("bias_correction", "smoothing:0.7")


@pytest.mark.parametrize(
    ("op", "repairs"),
    [("fc", ("smoothing:0.6",)), ("fc", ("smoothing:0.5", "smoothing:0.7")), ("sum", ("bias_correction",))],
)
def test_repairs_that_are_not_on_offer_are_refused(op: str, repairs: tuple[str, ...]) -> None:
    config = REPAIRABLE.default_config()
    strange = config.replace({op: OpConfig(INT8, repairs=repairs)})
    assert not REPAIRABLE.allows(strange)
    with pytest.raises(StrategyError, match=f"op '{op}' cannot run as 'int8 .*{repairs[0]}"):
        REPAIRABLE.check(strange)
    assert REPAIRABLE.configure(lambda one: strange[one.name]) == config
