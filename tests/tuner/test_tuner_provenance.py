"""What a file says of where its model comes from, as text by name."""

from __future__ import annotations

import pytest

from quaver import ModelError, Provenance
from quaver.provenance import own_properties

WHOLE = Provenance(
    quaver="0.3.0",
    float_model="f" * 64,
    config="c" * 64,
    model="a" * 64,
    criterion={"relative": {"top1": 0.01}, "confidence": 0.95},
    baseline={"top1": 0.75, "top5": 1 / 3},
    scores={"top1": 0.7499999999999999, "top5": 1 / 3},
    versions={"onnx": "1.23.2", "numpy": "2.4.6"},
    portable=True,
)


def test_all_of_it_comes_back_from_text() -> None:
    properties = WHOLE.to_properties()
    assert all(isinstance(text, str) and name.startswith("quaver.") for name, text in properties.items())
    assert Provenance.from_properties({**properties, "labels": "cat,dog"}) == WHOLE
    assert Provenance.from_properties(WHOLE.to_properties(), "a" * 64).is_unchanged is True
    assert Provenance.from_properties(WHOLE.to_properties(), "b" * 64).is_unchanged is False


def test_what_is_empty_is_not_written() -> None:
    bare = Provenance("0.3.0", "f", "c", "a")
    assert set(bare.to_properties()) == {"quaver.version", "quaver.float_model", "quaver.config", "quaver.model"}
    assert Provenance.from_properties(bare.to_properties()) == bare
    off = Provenance("0.3.0", "f", "c", "a", portable=False)
    assert off.to_properties()["quaver.portable"] == "false"
    assert Provenance.from_properties(off.to_properties()).portable is False


def test_the_order_of_what_is_given_does_not_change_the_text() -> None:
    turned = Provenance("0.3.0", "f", "c", "a", versions={"numpy": "2", "onnx": "1"})
    assert (
        turned.to_properties()
        == Provenance("0.3.0", "f", "c", "a", versions={"onnx": "1", "numpy": "2"}).to_properties()
    )


def test_the_users_own_properties_are_told_apart() -> None:
    assert own_properties({"labels": "cat", "quaver.version": "1", "quavers": "2"}) == {"quaver.version": "1"}


@pytest.mark.parametrize("text", ["{", "[1]", "12", "[" * 100_000])
def test_a_damaged_property_is_named(text: str) -> None:
    with pytest.raises(ModelError, match=r"the property 'quaver\.scores' of the model file is damaged"):
        Provenance.from_properties({"quaver.scores": text})
