"""Latencies, conversions and what cannot be quantized, in words."""

from __future__ import annotations

import pytest

from quaver import Unquantizable
from quaver.api.display.format import conversions, converted_phrase, fp32_phrase, latency_phrase
from quaver.formatting import milliseconds
from quaver.unquantizable import from_notes, in_words, to_note

MEASURED = {"latency": 0.4, "latency_ms": 3.8, "latency_spread": 0.004}
WHERE = {"batch": 1.0, "threads": 1.0, "latency_ms": 9.5, "latency_spread": 0.02}


def test_the_latency_stands_beside_that_of_the_float_model() -> None:
    assert latency_phrase(MEASURED, WHERE) == "0.40x fp32 latency (3.8 ms ±1 % vs 9.5 ms, batch 1, 1 thread)"


def test_both_float_models_are_named_where_they_differ_the_faster_one_first() -> None:
    assert latency_phrase(MEASURED, {**WHERE, "as_given_ms": 19.0}) == (
        "0.40x fp32 latency (3.8 ms ±1 % vs 9.5 ms optimised, 19 ms as given, batch 1, 1 thread)"
    )
    assert latency_phrase(MEASURED, {**WHERE, "as_given_ms": 4.75, "threads": 4.0}) == (
        "0.40x fp32 latency (3.8 ms ±1 % vs 9.5 ms as given, 19 ms optimised, batch 1, 4 threads)"
    )


def test_old_histories_have_a_ratio_alone_and_some_have_nothing() -> None:
    assert latency_phrase({"latency": 0.43}, {}) == "0.43x fp32 latency"
    assert latency_phrase(MEASURED, {}) == "0.40x fp32 latency (3.8 ms ±1 % vs 9.5 ms)"
    assert latency_phrase({"my.energy": 3.0}, {}) == ""
    assert fp32_phrase({}) == ""


def test_the_float_model_tells_what_it_takes_itself() -> None:
    assert fp32_phrase(WHERE) == "latency 9.5 ms ±2 % (batch 1, 1 thread)"
    assert fp32_phrase({**WHERE, "latency_ms": 1234.5, "as_given_ms": 2000.0}) == (
        "latency 1234 ms ±2 % (batch 1, 1 thread), optimised; as given 2000 ms"
    )


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([Unquantizable("LSTM", 2, 0.61)], "LSTM (2) cannot be quantized: 61 % of the fp32 time"),
        ([Unquantizable("LSTM", 2, 0.61), Unquantizable("Softmax", 4, 0.03), Unquantizable("Erf", 1, 0.001)],
         "LSTM (2), Softmax (4) cannot be quantized: 64 % (61 + 3) of the fp32 time"),
        ([Unquantizable("LSTM", 1, None), Unquantizable("If", 1, None)], "LSTM (1), If (1) cannot be quantized"),
        ([Unquantizable(f"K{number}", 1, 0.1) for number in range(7)],
         "K0 (1), K1 (1), K2 (1), K3 (1), K4 (1) and 2 more cannot be quantized: 70 % of the fp32 time"),
        ([Unquantizable("Erf", 1, 0.009)], ""),
        ([], ""),
    ],
)  # fmt: skip
def test_what_cannot_be_quantized_is_named_if_it_takes_a_noticeable_time(
    found: list[Unquantizable], words: str
) -> None:
    assert in_words(found) == words
    assert from_notes({"unquantizable": to_note(found)}) == tuple(found)


@pytest.mark.parametrize("noted", [None, 5, "LSTM", [5], [["LSTM"]], [["LSTM", "two", None]], {"LSTM": 1}])
def test_a_note_that_nobody_understands_says_nothing(noted: object) -> None:
    assert from_notes({"unquantizable": noted}) == () and conversions({"conversions": noted}) == ()
    assert from_notes({}) == () and conversions({}) == () and converted_phrase(()) == ""


@pytest.mark.parametrize(
    "given, said",
    [(0.002, "2 µs"), (0.0512, "51.2 µs"), (0.1, "0.1 ms"), (3.8, "3.8 ms"), (1234.5, "1234 ms"), (0.0, "0 ms")],
)
def test_times_that_milliseconds_cannot_tell_are_in_microseconds(given: float, said: str) -> None:
    assert milliseconds(given) == said
