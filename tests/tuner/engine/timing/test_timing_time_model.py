"""Ops are timed interleaved, several times, and a slow period of the machine does not count."""

from __future__ import annotations

from quaver.engine.timing.time_model import MAX_ROUNDS, MIN_ROUNDS, op_times
from quaver.ops import QuantConfig
from tests.support.fake import FakeAdapter, FakeFloat


class Spells(FakeAdapter):
    """Takes longer in every profile but the third one of each kind."""

    asked: list[bool]

    def op_seconds(self, config: QuantConfig | None, threads: int | None = None) -> dict[str, float]:
        self.asked.append(config is None)
        again = self.asked.count(config is None)
        known = super().op_seconds(config, threads)
        return {name: seconds * (1.0 if again == 3 else 1.5) for name, seconds in known.items()}


def test_a_slow_spell_does_not_count() -> None:
    adapter = Spells(FakeFloat({"a": 0.1, "b": 0.0}))
    adapter.asked = []
    config = QuantConfig({op.name: op.choices[0] for op in adapter.ops()})
    calm = FakeAdapter(FakeFloat({"a": 0.1, "b": 0.0}))
    assert op_times(adapter, config) == (calm.op_seconds(None), calm.op_seconds(config))
    assert adapter.asked[:4] == [True, False, True, False]
    assert 2 * MIN_ROUNDS <= len(adapter.asked) <= 2 * MAX_ROUNDS
