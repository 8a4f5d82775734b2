"""Imports go one way, frameworks stay behind the adapters, and `import quaver` is light."""

from __future__ import annotations

import ast
import configparser
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import quaver

FOLDERS = {
    "tuner": "quaver",
    "strategies": "quaver.strategies",
    "adapters": "quaver.adapters",
    "history": "quaver.history",
    "diagnosis": "quaver.diagnosis",
    "insights": "quaver.insights",
}
ROOT = Path(__file__).parents[2]

# The layers from bottom to top. A file in `tuner/` itself is vocabulary, and so are packages that import nothing else.
# A module may import lower layers and its own folder.
LEVELS = (
    ("vocabulary",),
    ("strategies", "adapters", "history", "diagnosis"),
    ("engine", "metrics"),
    ("api",),
    ("insights",),
    ("front door", "command", "demo", "testing", "neural_compressor", "tflite"),
)
VOCABULARY = {"statistics", "files"}
FRAMEWORKS = {"onnx", "mxnet", "onnxruntime", "tensorflow", "keras", "ai_edge_litert", "ai_edge_quantizer", "torch"} | {
    "transformers"
}


def modules() -> Iterator[tuple[str, Path]]:
    """Every source file with the name it is imported by."""
    for folder, name in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            inner = path.relative_to(ROOT / folder).with_suffix("").parts
            yield ".".join((name, *(part for part in inner if part != "__init__"))), path


MODULES = dict(modules())


def imported(path: Path) -> Iterator[str]:
    """What a file imports when it runs; not what it needs for type checks alone."""
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            waiting.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relative to itself"
            assert node.module is not None
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else node.module
        waiting.extend(ast.iter_child_nodes(node))


def place(module: str) -> tuple[int, str]:
    """Return the layer of a module, and its folder."""
    parts = module.split(".")[1:]
    if not parts:
        folder = "front door"
    elif parts[0] in VOCABULARY or (ROOT / "tuner" / f"{parts[0]}.py").exists():
        folder = "vocabulary"
    else:
        folder = parts[0]
    return next(level for level, folders in enumerate(LEVELS) if folder in folders), folder


def test_the_test_sees_the_source() -> None:
    assert {"quaver", "quaver.engine.run.loop", "quaver.history.writer", "quaver.adapters.onnxrt.adapter"} <= set(
        MODULES
    )
    assert "quaver.history" in set(imported(MODULES["quaver.engine.compatibility"]))
    assert {folder for name in MODULES for _, folder in [place(name)]} == {name for level in LEVELS for name in level}


def test_every_folder_with_code_is_installed() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    listed = set(setup["options"]["packages"].split())
    assert listed == {name for name, path in MODULES.items() if path.name == "__init__.py"}


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_one_way(module: str) -> None:
    level, folder = place(module)
    for name in imported(MODULES[module]):
        if name.split(".")[0] != "quaver":
            continue
        assert name in MODULES, f"{module} imports {name}, which is no module of ours"
        other, its_folder = place(name)
        assert other <= level, f"{module} ({folder}) imports {name} ({its_folder})"
        if other == level < len(LEVELS) - 1:
            assert folder == its_folder, f"{module} imports {name}: packages of one layer do not import each other"


@pytest.mark.parametrize("module", [name for name in MODULES if not name.startswith("quaver.adapters")])
def test_frameworks_stay_behind_the_adapters(module: str) -> None:
    found = {name.split(".")[0] for name in imported(MODULES[module])} & FRAMEWORKS
    assert not found, f"{module} imports {', '.join(sorted(found))}"


def test_importing_quaver_is_light() -> None:
    code = "import sys; before = {*sys.modules}; import quaver; print(*{*sys.modules} - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()} - sys.stdlib_module_names
    assert {"numpy", "quaver", "yaml"} <= loaded
    # numpy brings its own compiler's runtime.
    assert {name for name in loaded if "cython" not in name} == {"numpy", "quaver", "yaml"}


def test_importing_quaver_sets_no_handler_but_the_null_one() -> None:
    code = """
import logging, quaver
print([type(handler).__name__ for handler in logging.getLogger("quaver").handlers], logging.getLogger().handlers)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['NullHandler'] []"


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_imported_by_its_own_name_says_what_to_write(folder: str) -> None:
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    done = subprocess.run(
        [sys.executable, "-c", f"import {folder}"], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert f"import {FOLDERS[folder]}" in last


def test_tab_shows_what_is_public() -> None:
    shown = dir(quaver)
    assert set(quaver.__all__) <= set(shown)
    for name in set(shown) - set(quaver.__all__):
        assert getattr(quaver, name).__all__, f"{name} is neither public nor a package with public names"
    assert not {"logging", "version", "api", "engine", "errors"} & set(shown)


def test_every_public_name_is_there_and_says_what_it_is() -> None:
    for name in quaver.__all__:
        assert hasattr(quaver, name), name
        if name not in ("FP32", "INT8", "__version__"):
            assert getattr(quaver, name).__doc__, name
