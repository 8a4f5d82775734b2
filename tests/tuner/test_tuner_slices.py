"""Named parts of the samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from quaver.errors import SettingsError
from quaver.slices import Slices

NAMES = ["cat", "dog", None, "cat", "emu"]


@pytest.mark.parametrize(
    "given",
    [
        NAMES,
        {"cat": [0, 3], "dog": [1], "emu": [4]},
        {name: [one == name for one in NAMES] for name in ("cat", "dog", "emu")},
        np.array(NAMES, object),
    ],
    ids=["names", "indices", "masks", "array"],
)
def test_slices_are_given_by_names_indices_or_masks(given: Any) -> None:
    slices = Slices.of(given)
    assert slices.names == ("cat", "dog", "emu") and slices.sizes == (2, 1, 1)
    assert {name: list(members) for name, members in slices.each().items()} == {"cat": [0, 3], "dog": [1], "emu": [4]}
    assert list(slices.sums(np.array([1.0, 2.0, 4.0, 8.0, 16.0]))) == [9.0, 2.0, 16.0]
    assert Slices.of(slices.to_dict()) == slices and Slices.of(slices) is slices


def test_a_sample_may_be_in_several() -> None:
    slices = Slices.of({"pets": [0, 1, 2], "cats": [0, 2]})
    assert list(slices.sums(np.array([1.0, 2.0, 4.0]))) == [7.0, 5.0]


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("cat", "must be a name for each sample"),
        (7, "must be a name for each sample"),
        ([None, None], "names no slice"),
        ({}, "names no slice"),
        ({"cat": []}, "the slice 'cat' must be the indices"),
        ({"cat": [-1]}, "has the index -1"),
        ({"cat": [0.5]}, "must be the indices"),
        ({"cat": [False, False]}, "the slice 'cat' has no samples"),
        ({"cat": [True, False], "dog": [True]}, "the slice 'dog' is of 1 samples, and others of 2"),
        ({"cat": [True, False], "dog": [5]}, "has the index 5, and there are 2 samples"),
        ({"count": 5, "names": ["a"], "sizes": [1], "members": "?"}, "pass `slices` again"),
        ({"count": 5, "names": ["a"], "sizes": [2], "members": "AAAAAA=="}, "pass `slices` again"),
    ],
)
def test_what_makes_no_slices_is_named(given: Any, complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        Slices.of(given)


def test_other_samples_than_those_that_are_scored_are_named() -> None:
    Slices.of(NAMES).check(5, "top1")
    with pytest.raises(SettingsError, match="is about 5 samples, and eval_func gave the scores of 4 for 'top1'"):
        Slices.of(NAMES).check(4, "top1")
    with pytest.raises(SettingsError, match="is about at least 4 samples"):
        Slices.of({"cat": [3]}).check(3, "top1")
