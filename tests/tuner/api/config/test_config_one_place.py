"""A setting is defined in one place: keywords, YAML files, flags, docs and docstrings derive from it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
PACKAGES = ("adapters", "diagnosis", "history", "insights", "strategies")
NEW_FIELD = """    coffee_breaks: int | None = setting(
        7, "execution", "Number of coffee breaks during a run. None is no break.", yaml="tuning.workers.breaks"
    )

    def __post_init__(self) -> None:
"""
PROGRAM = """
import argparse, json, sys, typing
import quaver
from quaver.api.config.keywords import Settings
from quaver.api.config.resolve import make_config
from quaver.command import flags

parser = argparse.ArgumentParser()
parser.add_argument("config", nargs="?")
flags.add(parser)
try:
    make_config(None, coffee_breaks=-1)
except quaver.SettingsError as error:
    refused = str(error)
print(json.dumps({
    "default": quaver.Config().coffee_breaks,
    "keyword": make_config(None, coffee_breaks=2).coffee_breaks,
    "yaml": make_config({"tuning": {"workers": {"breaks": 3}}}).coffee_breaks,
    "flat": make_config({"coffee_breaks": 4}).coffee_breaks,
    "flag": flags.parse_settings(parser.parse_args(["--coffee-breaks", "5"])).config.coffee_breaks,
    "recorded": quaver.Config(coffee_breaks=6).to_dict()["coffee_breaks"],
    "refused": refused,
    "help": " ".join(parser.format_help().split()),
    "fit": " ".join((quaver.fit.__doc__ or "").split()),
    "typed": str(typing.get_type_hints(Settings)["coffee_breaks"]),
}))
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a copy of the source with one more setting in tuner/api/config/config.py."""
    ignore = shutil.ignore_patterns("__pycache__", "*.md")
    shutil.copytree(ROOT / "tuner", tmp_path / "tuner", ignore=ignore)
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "settings.py", tmp_path / "docs")
    package = tmp_path / "link" / "quaver"
    package.mkdir(parents=True)
    for path in (tmp_path / "tuner").iterdir():
        (package / path.name).symlink_to(path)
    for name in PACKAGES:
        (package / name).symlink_to(ROOT / name)
    config = tmp_path / "tuner" / "api" / "config" / "config.py"
    source = config.read_text(encoding="utf-8")
    assert source.count("    def __post_init__(self) -> None:\n") == 1
    config.write_text(source.replace("    def __post_init__(self) -> None:\n", NEW_FIELD), encoding="utf-8")
    return tmp_path


def test_a_new_setting_needs_one_field(tree: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(tree / "link")}

    def run(*words: str) -> str:
        done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(str(tree / "docs" / "settings.py"))
    result = json.loads(run("-c", PROGRAM))
    numbers = {name: value for name, value in result.items() if isinstance(value, int)}
    assert numbers == {"default": 7, "keyword": 2, "yaml": 3, "flat": 4, "flag": 5, "recorded": 6}
    assert result["refused"] == "`coffee_breaks` must be a whole number of at least 0, not -1"
    assert "--coffee-breaks N number of coffee breaks during a run (default: 7)" in result["help"]
    assert "coffee_breaks: Number of coffee breaks during a run. None is no break." in result["fit"]
    assert result["typed"] == "int | None"
    page = (tree / "docs" / "settings.md").read_text(encoding="utf-8")
    row = (
        "| `coffee_breaks` | `7` | `tuning.workers.breaks` | `--coffee-breaks` | Number of coffee breaks during a run."
    )
    assert row in page and "    breaks: 7\n" in page


def test_generated_files_are_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("docs_settings", ROOT / "docs" / "settings.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    stale = [path.name for path, text in script.files().items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run `python docs/settings.py`"
