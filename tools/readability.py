"""Count what makes the source hard to read, and fail when a count is above its limit.

    python tools/readability.py                       # the counts of the whole source; exit code 1 above a limit
    python tools/readability.py --list tuner/engine   # every place in one folder

`make lint` runs it. The limits come from optuna, NNCF and vizier, whose modules have a median of 135 to 147 lines.
"""

from __future__ import annotations

import argparse
import ast
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "tuner": "quaver",
    "strategies": "quaver.strategies",
    "adapters": "quaver.adapters",
    "history": "quaver.history",
    "diagnosis": "quaver.diagnosis",
    "insights": "quaver.insights",
}
# Variable names that point at something instead of naming it.
DEICTIC = frozenset("found one ones said given told taken known seen kept those such others rest".split())  # noqa: SIM905
BAD_DOCSTRING = re.compile(r"(What|Whether|The same|So many|Who|How many|How far)\b")
BRANCHES = (
    ast.If, ast.For, ast.While, ast.AsyncFor, ast.ExceptHandler, ast.IfExp, ast.comprehension, ast.match_case,
)  # fmt: skip

# Files of 80 lines or fewer with one importer that stand alone for a reason.
SMALL_ON_PURPOSE: dict[str, str] = {
    "quaver.adapters.onnxrt.optimize.denormals": "each rewrite of the float graph has a module of its own",
    "quaver.insights.page.views.profile": "one view of the page",
    "quaver.insights.page.views.summary": "one view of the page",
    "quaver.insights.plot": "an entry point of setup.cfg",
    "quaver.insights.trackers.mlflow": "one tracker: a new one is a file of its own",
    "quaver.insights.trackers.tensorboard": "one tracker: a new one is a file of its own",
    "quaver.insights.trackers.wandb": "one tracker: a new one is a file of its own",
    "quaver.demo.data": "the evaluation script that the demo writes imports it",
    "quaver.adapters.litert.run.model": "each adapter has its model object in run/model",
    "quaver.command.op_table": "loaded only when a table is printed, so that `quaver --help` starts fast",
    "quaver.engine.executors.in_process": "an executor is one file",
    "quaver.api.display.console": "a display is one file",
    "quaver.engine.executors.dask": "a backend is one file; its package is an extra",
    "quaver.strategies.exhaustive": "a strategy is one file",
    "quaver.strategies.mse_v2": "a strategy is one file",
    "quaver.strategies.random": "a strategy is one file",
    "quaver.metrics.named": "the table of all metrics, above their families",
    "quaver.neural_compressor.benchmark": "named after the module of Neural Compressor that it stands for",
    "quaver.neural_compressor.data": "named after the module of Neural Compressor that it stands for",
    "quaver.neural_compressor.experimental": "named after the module of Neural Compressor that it stands for",
    "quaver.neural_compressor.utils.constant": "named after the module of Neural Compressor that it stands for",
    "quaver.neural_compressor.utils.utility": "named after the module of Neural Compressor that it stands for",
}


@dataclass(frozen=True)
class Limit:
    """The largest (or smallest) value that a count may have."""

    value: float
    is_minimum: bool = False

    def allows(self, count: float) -> bool:
        """Return True if the count is within the limit."""
        return count >= self.value if self.is_minimum else count <= self.value


LIMITS = {
    "modules": Limit(450),
    "median lines of a module": Limit(115, is_minimum=True),
    "modules over 400 lines": Limit(0),
    "small files with one importer": Limit(20),
    "deictic variables, % of bindings": Limit(2.0),
    "docstrings that begin with What, Whether, ...": Limit(0),
    "uses of Any": Limit(682),
    "functions over 25 branches": Limit(0),
    "functions with more than 6 parameters": Limit(8),
}


def modules() -> dict[str, Path]:
    """Return the path of each module of the package, by its import name."""
    paths = {}
    for folder, name in PACKAGES.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = [part for part in path.relative_to(ROOT / folder).with_suffix("").parts if part != "__init__"]
            paths[".".join([name, *parts])] = path
    return paths


def importers(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    """Return the modules that import each module."""
    users: dict[str, set[str]] = defaultdict(set)
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    name = f"{node.module}.{alias.name}"
                    users[name if name in trees else node.module].add(module)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    users[alias.name].add(module)
    return users


def bindings(tree: ast.Module) -> Iterator[ast.Name | ast.arg]:
    """Yield every variable and parameter that is bound."""
    for node in ast.walk(tree):
        if (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)) or isinstance(node, ast.arg):
            yield node


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield every function and method."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def branch_count(function: ast.AST) -> int:
    """Return the number of decisions in a function, those of nested functions included."""
    return sum(
        len(node.values) - 1 if isinstance(node, ast.BoolOp) else isinstance(node, BRANCHES)
        for node in ast.walk(function)
    )


def parameter_count(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of named parameters without self and cls; keyword arguments of a TypedDict count once."""
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return sum(argument.arg not in ("self", "cls") for argument in arguments)


def places() -> dict[str, list[str]]:
    """Return every place that counts, by the name of the count."""
    paths = modules()
    texts = {name: path.read_text(encoding="utf-8") for name, path in paths.items()}
    trees = {name: ast.parse(text) for name, text in texts.items()}
    users = importers(trees)
    result: dict[str, list[str]] = {name: [] for name in LIMITS}
    for name, path in paths.items():
        where, tree, lines = path.relative_to(ROOT), trees[name], texts[name].count("\n")
        if path.name != "__init__.py":
            if lines > 400:
                result["modules over 400 lines"].append(f"{where}: {lines}")
            if lines <= 80 and len(users[name]) == 1 and name not in SMALL_ON_PURPOSE:
                result["small files with one importer"].append(f"{where}: {lines} lines, for {min(users[name])}")
        for node in bindings(tree):
            word = node.id if isinstance(node, ast.Name) else node.arg
            if word in DEICTIC:
                result["deictic variables, % of bindings"].append(f"{where}:{node.lineno}: {word}")
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node) or ""
                if BAD_DOCSTRING.match(text):
                    line = node.lineno if not isinstance(node, ast.Module) else 1
                    result["docstrings that begin with What, Whether, ..."].append(f"{where}:{line}: {text[:70]}")
            if isinstance(node, ast.Name) and node.id == "Any":
                result["uses of Any"].append(f"{where}:{node.lineno}")
        for function in functions(tree):
            at = f"{where}:{function.lineno}: {function.name}"
            if (count := branch_count(function)) > 25:
                result["functions over 25 branches"].append(f"{at} ({count})")
            if (count := parameter_count(function)) > 6:
                result["functions with more than 6 parameters"].append(f"{at} ({count})")
    return result


def counts(found_places: dict[str, list[str]]) -> dict[str, float]:
    """Return the value of each count."""
    paths = [path for path in modules().values() if path.name != "__init__.py"]
    lines = [path.read_text(encoding="utf-8").count("\n") for path in paths]
    total = sum(1 for path in modules().values() for _ in bindings(ast.parse(path.read_text(encoding="utf-8"))))
    values = {name: float(len(entries)) for name, entries in found_places.items()}
    values["modules"] = len(paths)
    values["median lines of a module"] = statistics.median(lines)
    values["deictic variables, % of bindings"] = 100 * values["deictic variables, % of bindings"] / total
    return values


def main() -> int:
    """Print the counts; return 1 if one is beyond its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", metavar="FOLDER", help="list every place in a folder, such as tuner/engine or .")
    options = parser.parse_args()
    listed = places()
    if options.list is not None:
        for name, entries in listed.items():
            chosen = [entry for entry in entries if options.list == "." or entry.startswith(options.list)]
            print(f"{name}: {len(chosen)}", *chosen, sep="\n    ")
        return 0
    values = counts(listed)
    for name, limit in LIMITS.items():
        verdict = "" if limit.allows(values[name]) else "   <- beyond the limit"
        bound = "at least" if limit.is_minimum else "at most"
        print(f"{name:48} {values[name]:8.1f}   {bound} {limit.value:g}{verdict}")
    for name, reason in SMALL_ON_PURPOSE.items():
        if name not in modules():
            print(f"{name} is listed as small on purpose ({reason}) and does not exist")
            return 1
    return int(not all(limit.allows(values[name]) for name, limit in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main())
