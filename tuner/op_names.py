"""Names of ops: the module that an op belongs to as far as its name tells, and patterns that name ops or modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from quaver.errors import SettingsError
from quaver.ops import Op
from quaver.patterns import MatchBudget, Pattern, PatternError
from quaver.suggestions import hint
from quaver.types import PlainValue


def module_path(name: str) -> str:
    """Return the module path in the name of an op, dotted: "/encoder/layer.0/query/MatMul" gives encoder.layer.0.query.

    PyTorch's older exporter repeats the name of a container: "/layer1/layer1.0/conv1/Conv" gives layer1.0.conv1.
    """
    steps: list[str] = []
    for step in name.strip("/").split("/")[:-1]:
        if steps and step.startswith(f"{steps[-1]}."):
            steps[-1] = step
        elif step:
            steps.append(step)
    return ".".join(steps)


def modules_of(path: str) -> Iterator[str]:
    """Yield a module path and those of all modules around it, the outermost first."""
    steps = path.split(".") if path else []
    for end in range(1, len(steps) + 1):
        yield ".".join(steps[:end])


def ops_in_module(pattern: str, names: Iterable[str], budget: MatchBudget) -> list[str]:
    """Return the ops inside the modules that a pattern names.

    A pattern is a module path such as "encoder.layer.0", or a regular expression that matches the whole path of a
    module, such as "encoder.layer.*". It begins at the root of the model; if no module there matches, at any module, so
    that "layer.0" finds encoder.layer.0.

    Raises:
        PatternError: the pattern is no regular expression.
    """
    paths = {name: module_path(name) for name in names}
    wanted = pattern.strip("/").replace("/", ".")
    expression = Pattern(pattern, budget)
    for beginnings in (_at_root, _anywhere):
        literal = [name for name, path in paths.items() if any(wanted == module for module in beginnings(path))]
        if literal:
            return literal
        matching = [name for name, path in paths.items() if any(map(expression.matches, beginnings(path)))]
        if matching:
            return matching
    return []


def _at_root(path: str) -> Iterator[str]:
    return modules_of(path)


def _anywhere(path: str) -> Iterator[str]:
    steps = path.split(".") if path else []
    for start in range(1, len(steps)):
        yield from modules_of(".".join(steps[start:]))


def matching_ops(pattern: PlainValue, ops: Sequence[Op], budget: MatchBudget) -> list[str]:
    """Return the names of the ops that a pattern matches."""
    try:
        expression = Pattern(pattern, budget)
        matches = [op.name for op in ops if expression.matches(op.name)]
        if not matches:  # it may name a node of the framework's own graph
            matches = [op.name for op in ops if pattern in op.nodes]
            matches = matches or [op.name for op in ops if any(expression.matches(node) for node in op.nodes)]
            matches = matches or _named_inside(str(pattern), ops)
    except PatternError as error:
        raise SettingsError(
            f"op_name_dict: {pattern!r:.200} is neither an op nor a regular expression ({error})"
        ) from None
    return matches


def ops_inside(pattern: PlainValue, ops: Sequence[Op], budget: MatchBudget) -> list[Op]:
    """Return the ops inside the modules that a pattern names; refuse one that names nothing."""
    names = frozenset(ops_in_module(str(pattern), [op.name for op in ops], budget))
    if not names:
        modules = dict.fromkeys(path for op in ops for path in modules_of(module_path(op.name)))
        advice = hint(str(pattern), [*(op.name for op in ops), *modules])
        raise SettingsError(
            f"op_name_dict: {pattern!r} matches no op and no module of this model (the whole name must match); {advice}"
        )
    return [op for op in ops if op.name in names]


def _named_inside(path: str, ops: Sequence[Op]) -> list[str]:
    """Return the op whose name is a node's path without the scope before it, the node behind it, or both.

    A converter drops the scope that all nodes share, and calls an op after its layer: v0/conv0/Conv2D is conv0.
    """
    steps = path.split("/")
    inner = {"/".join(part) for part in (steps, steps[1:], steps[:-1], steps[1:-1]) if part}
    names = [op.name for op in ops if op.name in inner]
    return names if len(names) == 1 and len(steps) > 1 else []
