"""The hash of a model is computed aside, and its adapter may be closed meanwhile."""

from __future__ import annotations

import hashlib

from onnx_models import Net, opened, weight


def test_a_model_is_hashed_rightly_while_its_adapter_is_closed_and_others_are_opened() -> None:
    net = Net()
    model = net.model(net.Conv(net.input(1, 64, 8, 8), weight(256, 64, 3, 3)))
    with opened(model, calibrate=False) as adapter:
        expected = hashlib.sha256(adapter.build(None).SerializeToString()).hexdigest()
    started = []
    for _ in range(50):  # descriptors that were closed are taken again at once
        with opened(model, calibrate=False) as adapter:
            started.append(adapter.build(None))
            started[-1].start_hashing()
    assert {one.sha256 for one in started} == {expected}
