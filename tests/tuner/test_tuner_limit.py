"""A loss is written in one way everywhere, and a negative loss is called a gain."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import quaver
from quaver import Criterion, QuantConfig, Trial, TrialState, formatting
from quaver.limit import loss_phrase, loss_range, loss_text


@pytest.mark.parametrize(
    ("loss", "relative", "text", "phrase"),
    [
        (0.0087, True, "0.87%", "loss 0.87%"),
        (-0.0087, True, "0.87% better", "gain 0.87%"),
        (0.0, True, "0.00%", "loss 0.00%"),
        (-0.0, True, "0.00%", "loss 0.00%"),
        (-0.00001, True, "0.00%", "loss 0.00%"),  # what rounds to zero is no gain
        (-0.00001, False, "1e-05 better", "gain 1e-05"),
        (0.25, False, "0.25", "loss 0.25"),
        (-2.5, False, "2.5 better", "gain 2.5"),
        (float("inf"), True, "inf%", "loss inf%"),
        (float("nan"), False, "nan", "loss nan"),
    ],
)
def test_a_negative_loss_is_a_gain(loss: float, relative: bool, text: str, phrase: str) -> None:
    assert loss_text(loss, relative) == text and loss_phrase(loss, relative) == phrase


def test_an_interval_says_which_end_is_better() -> None:
    assert loss_range(0.001, 0.0163, True) == "0.10% to 1.63%"
    assert loss_range(-0.0042, 0.0163, True) == "0.42% better to 1.63% worse"
    assert loss_range(-0.012, -0.0042, True) == "1.20% to 0.42% better"
    assert loss_range(-2.0, 0.5, False) == "2 better to 0.5 worse"


def test_command_line_page_and_trials_write_it_alike() -> None:
    criterion, loss = Criterion(), -0.0087
    assert formatting.loss(loss, criterion) == "0.87% better"
    assert formatting.loss_is(loss, criterion) == "the gain is 0.87%"
    assert formatting.loss_is(0.0087, criterion) == "the loss is 0.87%"
    trial = Trial(3, QuantConfig({}), TrialState.COMPLETE, 0.9, loss, True)
    assert "gain 0.0087, met" in str(trial)


def test_no_other_place_formats_a_loss() -> None:
    """The shared functions are in `quaver.limit`; a figure behind `loss` in any other f-string would skip them."""
    sources = [path for package in quaver.__path__ for path in Path(package).rglob("*.py")]
    assert len(sources) > 300
    formatted = re.compile(r"\{[^{}]*\bloss\b[^{}()]*:[^{}]*[%gef]\}")
    others = [path.name for path in sources if path.name != "limit.py" and formatted.search(path.read_text())]
    assert others == []
