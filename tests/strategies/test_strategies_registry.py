"""A strategy by its name, its class or as it is."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest

import quaver
from quaver import SettingsError, Strategy, StrategyError, register_strategy
from quaver.strategies import (
    Basic,
    Proposals,
    find_strategy,
    list_strategies,
    make_strategy,
    registry,
    strategies,
)


class Mine(Strategy):
    """With options."""

    name = "mine"

    def __init__(self, depth: int = 3, breadth: int = 2) -> None:
        self.depth, self.breadth = depth, breadth

    def propose(self, space: quaver.TuningSpace, probe: quaver.Probe) -> Proposals:
        yield space.default_config()


class Needy(Mine):
    name = "needy"

    def __init__(self, seed_op: str, **rest: Any) -> None:
        self.seed_op, self.rest = seed_op, rest


@pytest.fixture(autouse=True)
def _registry_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))


def test_a_registered_class_is_known_by_its_name() -> None:
    assert "mine" not in strategies()
    assert register_strategy(Mine) is Mine
    assert strategies()["mine"] is Mine
    assert isinstance(make_strategy("mine"), Mine)


def test_basic_is_there_from_the_start() -> None:
    assert strategies()["basic"] is Basic


def test_names_come_in_order() -> None:
    register_strategy(Mine)
    assert list(strategies()) == sorted(strategies())


@pytest.mark.parametrize("wanted", [Mine, Mine(), "mine"])
def test_a_strategy_goes_by_name_class_or_instance(wanted: Any) -> None:
    register_strategy(Mine)
    made = make_strategy(wanted)
    assert type(made) is Mine and made is not wanted and made.depth == 3


def test_options_reach_the_constructor() -> None:
    register_strategy(Mine)
    made = make_strategy("mine", {"depth": 7})
    assert isinstance(made, Mine) and (made.depth, made.breadth) == (7, 2)


def test_a_constructor_that_takes_anything_gets_anything() -> None:
    made = make_strategy(Needy, {"seed_op": "a", "whatever": 1})
    assert isinstance(made, Needy) and made.rest == {"whatever": 1}


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(SettingsError, match=r"strategy 'mine' has no option 'dept'; did you mean 'depth'\?"):
        make_strategy(Mine, {"dept": 7})
    with pytest.raises(SettingsError, match="strategy 'basic' has no option 'depth'; there are none"):
        make_strategy("basic", {"depth": 7})


def test_a_missing_option_is_named() -> None:
    with pytest.raises(SettingsError, match="strategy 'needy': missing a required argument: 'seed_op'"):
        make_strategy(Needy)


def test_an_instance_takes_no_more_options() -> None:
    with pytest.raises(SettingsError, match=r"strategy_options \['depth'\] cannot be set on a strategy instance"):
        make_strategy(Mine(), {"depth": 7})


def test_an_unknown_name_shows_the_nearest_or_all() -> None:
    with pytest.raises(SettingsError, match=r"unknown strategy 'baisc'; did you mean 'basic'"):
        make_strategy("baisc")
    with pytest.raises(SettingsError, match=r"unknown strategy 'zzz'; known are: .*'basic'"):
        make_strategy("zzz")


@pytest.mark.parametrize("wanted", [5, None, object, int, lambda: None])
def test_what_is_no_strategy_is_refused(wanted: Any) -> None:
    with pytest.raises(SettingsError, match="strategy must be a name, a Strategy class or an instance, not"):
        make_strategy(wanted)


def test_a_class_without_propose_is_refused_in_plain_words() -> None:
    class Half(Strategy):
        name = "half"

    with pytest.raises(StrategyError, match="strategy 'half' has no `propose` method"):
        make_strategy(Half)


def test_only_named_strategy_classes_can_be_registered() -> None:
    class Nameless(Mine):
        name = ""

    with pytest.raises(StrategyError, match="strategy class Nameless needs a `name`"):
        register_strategy(Nameless)
    for wrong in (Mine(), int, "mine"):
        with pytest.raises(StrategyError, match=r"register_strategy takes a subclass of quaver\.Strategy, not"):
            register_strategy(wrong)  # type: ignore[type-var]
    assert "mine" not in strategies()


def test_other_packages_bring_theirs_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint(name, f"{__name__}:Mine", registry.GROUP) for name in ("theirs", "basic")]
    monkeypatch.setattr(registry, "entry_points", lambda group: points if group == registry.GROUP else [])
    assert strategies()["theirs"] is Mine
    assert strategies()["basic"] is Basic  # what is built in cannot be taken over


def test_a_list_says_where_each_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    class LimitLoss(Mine):
        name = "lost"

    points = [
        EntryPoint("theirs", f"{__name__}:Mine", registry.GROUP),
        EntryPoint("needy", f"{__name__}:Needy", registry.GROUP),
        EntryPoint("torn", "nowhere:Nothing", registry.GROUP),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    register_strategy(Needy)  # as a plug-in may do when it is imported
    LimitLoss.__module__ = "my_script"
    register_strategy(LimitLoss)
    with pytest.warns(
        RuntimeWarning, match="strategy 'torn', entry point 'nowhere:Nothing' of an unknown package, cannot"
    ):
        listed = {item.name: item for item in list_strategies()}
    assert list(listed) == sorted(listed)
    assert (listed["basic"].source, listed["basic"].strategy) == ("quaver", Basic)
    assert listed["theirs"].source == listed["needy"].source == "an unknown package"
    assert (listed["lost"].source, listed["lost"].strategy) == ("my_script", LimitLoss)
    assert listed["torn"].strategy is None
    assert listed["torn"].error == "ModuleNotFoundError: No module named 'nowhere'"


def test_of_two_packages_with_the_same_name_the_first_on_the_path_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint("theirs", f"{__name__}:{name}", registry.GROUP) for name in ("Mine", "Needy")]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    assert find_strategy("theirs") is Mine
