"""A short run of what `make torture` does with twenty thousand models."""

from __future__ import annotations

import pytest
from mutated_models import KINDS, use_mutated


@pytest.mark.parametrize("kind", KINDS)
def test_mutated_models_are_used_or_refused_and_end_no_process(kind: str) -> None:
    told = use_mutated(kind, {"onnx": 400, "litert": 80}[kind], seed=14)
    assert told.wrong == []
    assert told.outcomes["refused"] > 20 and told.outcomes["run"] > 10
