"""The time of mixed-precision configs, and the fastest one."""

from __future__ import annotations

import itertools
import random

import pytest

from quaver import INT8, OpConfig, QuantConfig
from quaver.time_model import COST_FACTORS, USUAL_COSTS, Edge, TimeModel

NAMES = "abcdefg"
START = QuantConfig(dict.fromkeys(NAMES, OpConfig(INT8)))


def a_model(seed: int, edges: int = 6) -> TimeModel:
    rng = random.Random(seed)
    fp32 = {name: rng.uniform(1, 10) for name in NAMES}
    quantized = {name: fp32[name] * rng.choice([0.3, 0.9, 1.0, 1.3]) for name in NAMES}
    found = []
    for _ in range(edges):
        producer = rng.randrange(len(NAMES) - 1)
        readers = rng.sample(NAMES[producer + 1 :], rng.randint(1, min(3, len(NAMES) - 1 - producer)))
        apart = tuple(2.0 * index for index in range(len(readers))) if seed % 2 else ()
        found.append(Edge(NAMES[producer], tuple(readers), rng.randrange(1, 100), apart))
    return TimeModel(fp32, quantized, 5.0, tuple(found), (0.01, 0.02, 0.2, 0.1))


def every_mixture(free: str) -> list[QuantConfig]:
    subsets = itertools.chain.from_iterable(itertools.combinations(free, size) for size in range(len(free) + 1))
    return [START.fallback(*names) for names in subsets]


@pytest.mark.parametrize("seed", range(25))
def test_the_cut_is_the_fastest_of_all_mixtures(seed: int) -> None:
    model = a_model(seed)
    rng = random.Random(seed)
    sensitivity = {name: rng.uniform(0, 3) for name in NAMES}
    free = "".join(name for name in NAMES if rng.random() < 0.8)
    for price in (0.0, 1.0, 10.0):

        def cost(config: QuantConfig, price: float = price) -> float:
            return model.predict(config) + price * sum(sensitivity[name] for name in config.quantized_ops)

        found = model.fastest(START, free, sensitivity, price)
        assert cost(found) == pytest.approx(min(map(cost, every_mixture(free))), rel=1e-6)
        assert set(found.fp32_ops) <= set(free)


def test_a_tie_is_one_for_the_reduced_choice() -> None:
    same = dict.fromkeys(NAMES, 1.0)
    assert not TimeModel(same, same).fastest(START, NAMES).fp32_ops


def test_an_op_in_doubt_stays_reduced() -> None:
    fp32, quantized = dict.fromkeys(NAMES, 1.0), dict.fromkeys(NAMES, 1.1)
    model = TimeModel(fp32, quantized)
    assert len(model.fastest(START, NAMES).fp32_ops) == len(NAMES)
    assert model.fastest(START, NAMES, doubt=dict.fromkeys(NAMES[:3], 0.2)).quantized_ops == tuple(NAMES[:3])


def test_a_rising_price_of_harm_sends_more_ops_back_until_none_is_left() -> None:
    model, sensitivity = a_model(3), dict.fromkeys(NAMES, 1.0)
    counts = [len(model.fastest(START, NAMES, sensitivity, price).fp32_ops) for price in (0.0, 0.5, 2.0, 8.0, 1e3)]
    assert counts == sorted(counts) and counts[-1] == len(NAMES)


def test_an_op_that_is_fp32_from_the_start_stays_so_and_its_borders_count() -> None:
    start = START.fallback("b")
    edges = Edge("a", ("b",), 100), Edge("b", ("c",), 100)
    costs = (0.01, 0.01, 0.0, 0.0)
    model = TimeModel(dict.fromkeys(NAMES, 1.0), dict.fromkeys(NAMES, 0.9), edges=edges, costs=costs)
    assert model.fastest(start, [name for name in NAMES if name != "b"]).fp32_ops == ("a", "b", "c")


@pytest.mark.parametrize("factor", COST_FACTORS)
def test_what_conversions_cost_is_learnt_from_whole_configurations(factor: float) -> None:
    # In seconds: ops of tenths of milliseconds, tensors of tens of thousands of elements.
    given = a_model(11, edges=8)
    blank = TimeModel(
        {name: seconds * 1e-5 for name, seconds in given.fp32.items()},
        {name: seconds * 1e-5 for name, seconds in given.quantized.items()},
        edges=tuple(replaced._replace(elements=replaced.elements * 1000) for replaced in given.edges),
        costs=USUAL_COSTS,
    )
    truth = blank.with_costs(factor)
    rng = random.Random(4)
    configs = [START.fallback(*rng.sample(NAMES, rng.randrange(7))) for _ in range(16)]
    noisy = [(config, truth.predict(config) * rng.uniform(0.99, 1.01)) for config in configs]
    fitted = blank.fitted(noisy)
    assert fitted.costs == truth.costs
    assert fitted.fit is not None and fitted.fit[0] > 0.9 and fitted.fit[1] < 0.02
