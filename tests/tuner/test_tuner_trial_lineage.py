from __future__ import annotations

from quaver import INT8, OpConfig, QuantConfig, Trial, TrialState
from quaver.ops import FLOAT
from quaver.trial_lineage import LOOK_BACK, Change, difference, origin_text, origins

INT = OpConfig(INT8)
WIDE = OpConfig(INT8, granularity="per_tensor")
ALL = QuantConfig(dict.fromkeys("abcd", INT))


def trial(number: int, config: QuantConfig) -> Trial:
    return Trial(number, config, TrialState.COMPLETE, 1.0)


def test_a_difference_names_the_ops_that_run_in_another_way() -> None:
    now = ALL.replace({"b": FLOAT, "d": WIDE})
    assert difference(ALL, now) == (Change("b", INT, FLOAT), Change("d", INT, WIDE))
    assert difference(ALL, ALL) == ()
    assert difference(QuantConfig({"a": INT}), QuantConfig({"z": INT})) == (
        Change("a", INT, None),
        Change("z", None, INT),
    )


def test_a_trial_came_from_the_nearest_earlier_one_and_of_several_from_the_latest() -> None:
    configs = [ALL, ALL.fallback("a", "b"), ALL.fallback("a", "b", "c"), ALL.fallback("d"), ALL.fallback("a")]
    found = origins(trial(number, config) for number, config in enumerate(configs, 1))
    assert {number: origin.parent for number, origin in found.items()} == {1: None, 2: 1, 3: 2, 4: 1, 5: 2}
    assert found[5].changes == (Change("b", FLOAT, INT),)


def test_the_baseline_is_nobodys_parent_and_the_order_of_the_trials_does_not_matter() -> None:
    fp32 = ALL.fallback(*"abcd")
    given = [trial(2, fp32), trial(0, fp32), trial(1, ALL)]
    assert origins(given)[2].parent == 1 and 0 not in origins(given)
    assert origins([]) == {}


def test_trials_that_know_other_ops_are_compared_all_the_same() -> None:
    other = QuantConfig({"a": INT, "b": INT, "c": INT, "e": INT})
    assert origins([trial(1, ALL), trial(2, other)])[2].changes == (Change("d", INT, None), Change("e", None, INT))


def test_no_trial_is_looked_for_too_far_back() -> None:
    many = [trial(1, ALL), *(trial(number, ALL.fallback("a", "b")) for number in range(2, LOOK_BACK + 2))]
    last = trial(LOOK_BACK + 2, ALL.fallback("c"))
    assert origins([*many, last])[last.number].parent == LOOK_BACK + 1


def test_an_origin_is_told_in_a_few_words() -> None:
    configs = [ALL, ALL.fallback("a"), ALL.replace({"a": FLOAT, "b": WIDE}), ALL.fallback("a", "c", "d"), ALL, ALL]
    found = origins(trial(number, config) for number, config in enumerate(configs, 1))
    assert [origin_text(found[number]) for number in (1, 2, 3, 4)] == [
        "the first", "1: 1 to fp32", "2: 1 to per_tensor", "2: 2 to fp32",
    ]  # fmt: skip
    assert origin_text(found[2], names=2) == "1: a to fp32" and origin_text(found[6]) == "5: the same"
