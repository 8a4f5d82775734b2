"""Optional abilities of an adapter."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake import FakeAdapter, FakeFloat

from quaver.adapters import abilities, load_unmodified
from quaver.adapters.abilities import (
    SupportsBoardKit,
    SupportsEmulation,
    SupportsInspection,
    SupportsMaskReport,
    SupportsProfiling,
    SupportsStandaloneInspection,
    require,
    supports,
)
from quaver.adapters.litert.adapter import LiteRTAdapter
from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.errors import SettingsError

ALL = [SupportsBoardKit, SupportsEmulation, SupportsInspection, SupportsProfiling, SupportsStandaloneInspection]


@pytest.fixture
def fake() -> FakeAdapter:
    return FakeAdapter(FakeFloat({"a": 0.1, "b": 0.0}))


@pytest.mark.parametrize("ability", ALL)
def test_the_onnx_adapter_has_every_ability(ability: type[Any]) -> None:
    assert supports(OnnxAdapter, ability) and require(OnnxAdapter, ability) is OnnxAdapter


def test_the_litert_adapter_has_no_board_kit() -> None:
    assert [ability for ability in ALL if not supports(LiteRTAdapter, ability)] == [SupportsBoardKit]


@pytest.mark.parametrize("ability", ALL)
def test_a_missing_ability_is_an_error_that_names_the_adapter(ability: type[Any], fake: FakeAdapter) -> None:
    for adapter in (fake, FakeAdapter):
        assert not supports(adapter, ability)
        with pytest.raises(SettingsError, match=r"\bfake\b"):
            require(adapter, ability)


def test_an_ability_of_a_plug_in_is_named_by_its_protocol(fake: FakeAdapter) -> None:
    with pytest.raises(SettingsError, match="adapter fake lacks an ability that this call needs: SupportsMaskReport"):
        require(fake, SupportsMaskReport)


def test_asking_for_an_ability_computes_none_of_its_properties() -> None:
    class Costly(FakeAdapter):
        @property
        def ops_with_mask_values(self) -> tuple[str, ...]:
            raise RuntimeError("computed")

    assert supports(Costly(FakeFloat({"a": 0.0})), SupportsMaskReport)


def test_an_adapter_without_abilities_has_defaults(fake: FakeAdapter, tmp_path: Path) -> None:
    config = {op.name: op.choices[0] for op in fake.ops()}
    fake.keep_probe_samples(np.zeros((4, 2), np.float32))
    assert abilities.rewrites(fake) == abilities.conversions(fake) == abilities.ops_with_mask_values(fake) == ()
    assert list(abilities.unquantizable(fake, timed=True)) == [] and abilities.int8_edges(fake) == {}
    assert abilities.read_provenance(FakeAdapter, tmp_path) == ({}, "")
    assert abilities.build_unmodified(fake).sha256 == fake.build(None).sha256
    assert abilities.compare_with_unmodified(fake, fake.probe_samples).difference == 0.0
    assert abilities.portability_of(fake, None).promise == "float"
    assert list(abilities.local_errors(fake, fake_config(fake))) == list(config)
    assert abilities.weight_errors(fake, fake_config(fake)) == {}
    assert abilities.inspect_quantized(fake, fake_config(fake)).precisions == dict.fromkeys(config, "int8")


def test_a_model_is_loaded_unmodified_by_an_adapter_without_the_ability(monkeypatch: pytest.MonkeyPatch) -> None:
    from quaver.adapters import registry

    monkeypatch.setitem(registry._registered, "fake", FakeAdapter)
    model = FakeFloat({"a": 0.1})
    assert load_unmodified(model).sha256 == FakeAdapter(model).build(None).sha256


def fake_config(adapter: FakeAdapter) -> Any:
    from quaver.space import TuningSpace

    return TuningSpace(adapter.ops()).default_config()
