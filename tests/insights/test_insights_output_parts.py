"""The page says which parts of the outputs an op disturbs, whatever the file holds."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from quaver.insights.data.best_model import MAX_PARTS, OpDetails, _op
from quaver.insights.page.views.op import parts_sentences

PARTS = {"output 0, 0-3 of axis 1": 1e-6, "output 0, 4-83 of axis 1 (scores)": 0.03}


def sentences(record: Any) -> list[str]:
    row: Any = SimpleNamespace(details=_op(record, {}))
    return parts_sentences(row)


def test_the_page_of_an_op_says_what_it_disturbs() -> None:
    assert sentences({"parts": PARTS}) == [
        "Alone in int8 it disturbs output 0, 4-83 of axis 1 (scores), not output 0, 0-3 of axis 1.",
        "Error by part: output 0, 0-3 of axis 1: 1e-06; output 0, 4-83 of axis 1 (scores): 0.03.",
    ]


def test_parts_that_are_disturbed_alike_are_only_listed() -> None:
    assert sentences({"parts": {"a": 0.1, "b": 0.2}}) == ["Error by part: a: 0.1; b: 0.2."]


@pytest.mark.parametrize("parts", [None, 3, [], {}, {"a": "x"}, {"a": math.nan}, {"a": None}])
def test_damaged_records_show_nothing(parts: Any) -> None:
    assert sentences({"parts": parts}) == []
    assert OpDetails().parts == {}


def test_a_record_of_many_parts_is_cut() -> None:
    details = _op({"parts": {f"part {number}": 1.0 for number in range(1000)}}, {})
    assert len(details.parts) == MAX_PARTS
