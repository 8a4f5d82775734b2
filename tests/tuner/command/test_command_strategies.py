"""`quaver strategies`: what each costs, what it does and where it comes from."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_samples import make_folder, quaver

from quaver.strategies import Auto, Basic, strategies
from quaver.testing import SimulatedModel


def rows(folder: Path, *args: object) -> dict[str, list[str]]:
    done = quaver(folder, "strategies", *args)
    assert done.returncode == 0 and not done.stderr, done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines[:-2])) <= 80
    listed: dict[str, list[str]] = {}
    for line in lines[2:-2]:
        if not line.startswith(" "):
            listed[line.split()[0]] = line.split()[1:]
        else:  # a further line of the description
            listed[list(listed)[-1]] += line.split()
    return listed


@pytest.mark.parametrize("ops", [1, 50, 200])
def test_every_strategy_is_listed_with_what_it_needs_for_so_many_ops(ops: int, tmp_path: Path) -> None:
    listed = rows(tmp_path, *(("--ops", ops) if ops != 50 else ()))
    assert list(listed) == list(strategies())
    space = SimulatedModel(ops=ops).space
    assert listed["auto"][:3] == ["quaver", str(Auto().first_success(space)), str(Auto().worst_case(space))]
    assert listed["basic"][1] == str(Basic().first_success(space))
    assert listed["random"][1:3] == ["unknown", "unlimited"]
    assert " ".join(listed["mse_v2"][3:]).startswith("At each step, move the op to fp32 that lowers the output error")


def test_they_are_counted_for_a_model(tmp_path: Path) -> None:
    make_folder(tmp_path)
    listed = rows(tmp_path, "--model", "model.onnx")
    # Of three ops: 5 by themselves, 1 of all that were taken back, 1 in the other modes that a Gemm has.
    assert listed["mse"][1:3] == ["7", "13"] and listed["mse_v2"][1:3] == ["3", "5"]


def test_a_number_that_nobody_would_read_is_printed_as_a_power_of_ten(tmp_path: Path) -> None:
    assert rows(tmp_path, "--ops", 9000)["exhaustive"][1] == "10^9415"


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["--ops", 0], "--ops must be at least 1, not 0"),
        (["--ops", 3, "--model", "m.onnx"], "not allowed with argument"),
    ],
)
def test_what_cannot_be_counted_is_refused(args: list[object], complaint: str, tmp_path: Path) -> None:
    done = quaver(tmp_path, "strategies", *args)
    assert done.returncode == 2 and complaint in done.stderr
