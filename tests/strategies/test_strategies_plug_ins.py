"""Strategies of other packages, installed for real: a working one beside all sorts of broken ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1] / "support"

WORKING = '''
import quaver


class Working(quaver.Strategy):
    """All int8, once."""

    name = "working"

    def propose(self, space, probe):
        yield space.default_config()

    def worst_case(self, space):
        return 1


@quaver.register_strategy
class Needy(Working):
    """Cannot be made without an option."""

    name = "needy"

    def __init__(self, depth):
        self.depth = depth


class Muddled(Working):
    """Does not know what it costs."""

    def first_success(self, space):
        raise RuntimeError("no idea")
'''

TUNE = """
import json, sys
import quaver
from networks import Closeness, chain, inputs

model, told = chain(2), {}
for name in sys.argv[1:]:
    try:
        result = quaver.fit(
            model, calib_dataloader=inputs(), eval_func=Closeness(model), strategy=name, objective="size", relative=0.4
        )
        told[name] = result.met
    except quaver.QuaverError as error:
        told[name] = f"{type(error).__name__}: {error}"
told["imported"] = [name for name in sys.modules if name.startswith("acme")]
print(json.dumps(told))
"""

LIST = """
import json, warnings
import quaver.strategies

with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    listed = quaver.strategies.list_strategies()
    usable = list(quaver.strategies.strategies())
broken = {item.name: item.error for item in listed if item.strategy is None}
warned = [[warning.category.__name__, str(warning.message)] for warning in seen]
print(json.dumps({"usable": usable, "broken": broken, "warned": warned}))
"""


@dataclass
class Packages:
    """A folder on the path of Python, as a place to install to."""

    site: Path
    cwd: Path

    def install(self, name: str, version: str, points: str, source: str | None) -> None:
        if source is not None:
            (self.site / f"{name}.py").write_text(source)
        info = self.site / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[quaver.strategies]\n{points}\n")

    def python(self, code: str, *args: str) -> subprocess.CompletedProcess[str]:
        return self._run("-c", code, *args)

    def quaver(self, *args: str) -> subprocess.CompletedProcess[str]:
        return self._run("-m", "quaver.command.main", *args)

    def _run(self, *args: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(self.site), str(SUPPORT)])
        return subprocess.run(
            [sys.executable, *args],
            cwd=self.cwd,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    made = Packages(tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("cwd"))
    made.install("acme_working", "1.2", "working = acme_working:Working\nneedy = acme_working:Needy", WORKING)
    made.install("acme_muddled", "0.2", "muddled = acme_working:Muddled", None)
    made.install("acme_broken", "0.3", "broken = acme_broken:Broken", "import a_module_that_is_not_there\n")
    made.install("acme_gone", "0.4", "gone = acme_gone:Gone", None)
    made.install("acme_nameless", "0.5", "nameless = acme_nameless:Nothing", "")
    made.install("acme_other", "0.6", "other = acme_other:Other", "Other = dict\n")
    made.install("acme_exits", "0.7", "exits = acme_exits:Exits", "raise SystemExit('bye')\n")
    made.install("acme_malformed", "0.8", "malformed = not a place", None)
    made.install("acme_thief", "0.9", "auto = acme_thief:Thief", "raise RuntimeError('auto is ours')\n")
    return made


BROKEN = {
    "broken": ("acme_broken:Broken' of acme_broken 0.3", "ModuleNotFoundError: No module named 'a_module_that_is_not"),
    "gone": ("acme_gone:Gone' of acme_gone 0.4", "ModuleNotFoundError: No module named 'acme_gone'"),
    "nameless": ("acme_nameless:Nothing' of acme_nameless 0.5", "AttributeError: module 'acme_nameless' has no"),
    "other": ("acme_other:Other' of acme_other 0.6", "TypeError: <class 'dict'> is not a subclass of quaver.Strategy"),
    "exits": ("acme_exits:Exits' of acme_exits 0.7", "SystemExit: bye"),
    "malformed": ("not a place' of acme_malformed 0.8", "cannot be loaded: "),
}


@pytest.mark.parametrize(("strategy", "imported"), [("auto", []), ("working", ["acme_working"])])
def test_a_run_imports_the_strategy_that_it_names_and_no_other(
    packages: Packages, strategy: str, imported: list[str]
) -> None:
    done = packages.python(TUNE, strategy)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {strategy: True, "imported": imported}


def test_who_names_a_broken_one_hears_what_is_wrong_and_whose_it_is(packages: Packages) -> None:
    done = packages.python(TUNE, *BROKEN, "working", "auto", "workin")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    for name, parts in BROKEN.items():
        assert told[name].startswith(f"StrategyError: strategy {name!r}, entry point '")
        assert all(part in told[name] for part in parts)
        assert told[name].endswith("; fix or uninstall that package, or choose another strategy")
    assert told["working"] is True and told["auto"] is True
    assert told["workin"].startswith("SettingsError: unknown strategy 'workin'; did you mean 'working'")
    assert "acme_thief" not in told["imported"]


def test_a_list_warns_of_the_broken_ones_and_holds_the_others(packages: Packages) -> None:
    done = packages.python(LIST)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {"auto", "random", "working", "needy", "muddled"} <= set(told["usable"])
    assert set(told["broken"]) == set(BROKEN)
    assert {kind for kind, _ in told["warned"]} == {"RuntimeWarning"}
    for name, parts in BROKEN.items():
        assert any(f"strategy {name!r}" in text and all(part in text for part in parts) for _, text in told["warned"])


def words_of(text: str) -> set[str]:
    return set(text.split())


def test_the_command_shows_where_each_comes_from_and_what_is_broken(packages: Packages) -> None:
    done = packages.quaver("strategies")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    rows: list[list[str]] = []
    for line in done.stdout.splitlines()[2:-2]:  # a cell that does not fit continues in the next line
        rows = [*rows[:-1], rows[-1] + line.split()] if line.startswith(" ") else [*rows, line.split()]
    words = {row[0]: set(row[1:]) for row in rows}
    assert "quaver" in words["auto"]
    assert words["working"] == words_of("acme_working 1.2 1 1 All int8, once.")
    assert words["needy"] == words_of("acme_working 1.2 needs options - Cannot be made without an option.")
    assert words["muddled"] >= words_of("RuntimeError: no idea - Does not know what it costs.")
    assert words["broken"] >= words_of("acme_broken 0.3 - broken: No module named")
    assert words["other"] >= words_of("acme_other 0.6 - broken:")
    told = done.stderr.splitlines()
    assert len(told) == len(BROKEN) and all(line.startswith("quaver: strategy '") for line in told)


def test_the_command_line_names_a_broken_one_in_a_sentence(packages: Packages) -> None:
    (packages.cwd / "mine.py").write_text("def score(model):\n    return 1.0\n\ndef data():\n    return []\n")
    done = packages.quaver(
        "tune", "--model", "m.onnx", "--calib", "mine.py:data", "--eval", "mine.py:score", "--strategy", "broken"
    )
    assert done.returncode == 2
    assert done.stderr.startswith(
        "quaver: strategy 'broken', entry point 'acme_broken:Broken' of acme_broken 0.3, cannot"
    )
