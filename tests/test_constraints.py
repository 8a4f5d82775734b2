"""The versions that CI installs keep to the bounds that users get."""

from __future__ import annotations

import configparser
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]


def required() -> list[Requirement]:
    """Everything that setup.cfg asks for."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    texts = [config["options"]["install_requires"], *config["options.extras_require"].values()]
    lines = (line.partition("#")[0].strip() for text in texts for line in text.splitlines())
    return [Requirement(line) for line in lines if line]


def constrained() -> dict[str, Requirement]:
    """What constraints.txt says, by name."""
    lines = (line.partition("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines())
    return {found.name.lower(): found for found in map(Requirement, filter(None, lines))}


def test_every_dependency_has_its_lower_bound_and_the_newest_tested_version() -> None:
    known = constrained()
    for wanted in required():
        if wanted.marker:
            continue  # an older version for one environment
        found = known[wanted.name.lower()]
        assert {str(part) for part in wanted.specifier} <= {str(part) for part in found.specifier}, wanted
        assert any(part.operator in ("<", "<=") for part in found.specifier), wanted


def test_what_is_installed_here_is_within_them() -> None:
    for name, found in constrained().items():
        try:
            installed = version(name)
        except PackageNotFoundError:
            continue
        assert found.specifier.contains(installed, prereleases=True), f"{name} {installed}"
