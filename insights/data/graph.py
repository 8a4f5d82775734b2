"""The ops of a model as a graph, whole or with its modules folded."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from quaver.insights.data.op_rows import OpRow

# More nodes than this are folded, until somebody wants to see them.
AT_ONCE = 150
# How much wider than high it is drawn.
ASPECT = 1.6


@dataclass(slots=True)
class Node:
    """An op, or a folded module.

    Attributes:
        key: unique; of an op its place, of a module its path.
        label: what to call it.
        rows: the ops in it.
        column, lane: how deep in the graph it lies, and beside what.
        x, y: where it is drawn: long graphs go to and fro.
    """

    key: str
    label: str
    rows: list[OpRow] = field(default_factory=list)
    column: int = 0
    lane: int = 0
    x: float = 0.0
    y: float = 0.0

    @property
    def folded(self) -> bool:
        """Whether it stands for several ops."""
        return self.key.startswith("module:")

    @property
    def precision(self) -> str:
        """What it runs in: int8, fp32, or mixed for a module of both."""
        quantized = {row.pick.quantized for row in self.rows}
        return "mixed" if len(quantized) > 1 else "int8" if True in quantized else "fp32"

    @property
    def error(self) -> float:
        """The worst in it."""
        return max((row.shown_error for row in self.rows if not math.isnan(row.shown_error)), default=math.nan)

    @property
    def seconds(self) -> float:
        """What it takes as it runs."""
        taken = [row.quantized if row.pick.quantized else row.fp32 for row in self.rows]
        known = [one for one in taken if not math.isnan(one)]
        return sum(known) if known else math.nan


@dataclass(frozen=True, slots=True)
class Edge:
    """Values that go from one node to another.

    Attributes:
        source, target: keys of the nodes.
        border: whether they are converted on the way.
        skips: whether other nodes lie between.
    """

    source: str
    target: str
    border: bool
    skips: bool = False


@dataclass(frozen=True, slots=True)
class Graph:
    """What is drawn."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def path_of(row: OpRow) -> tuple[str, ...]:
    """The modules that an op lies in, the outermost first: by its metadata, else by its name."""
    if row.inside.module:
        return tuple(part for part in row.inside.module.split(".") if part)
    parts = [part for part in row.op.name.split("/") if part]
    if len(parts) > 1:
        return tuple(parts[:-1])
    parts = [part for part in row.op.name.split(".") if part]
    return tuple(parts[:-1])


def depths(rows: Sequence[OpRow]) -> int:
    """How many levels of modules there are."""
    return max((len(path_of(row)) for row in rows), default=0)


def usual_depth(rows: Sequence[OpRow]) -> int | None:
    """The level at which to fold at first; None shows every op."""
    if len(rows) <= AT_ONCE:
        return None
    fits = [depth for depth in range(1, depths(rows) + 1) if len(_groups(rows, depth)) <= AT_ONCE]
    return max(fits, default=0)


def make_graph(rows: Sequence[OpRow], depth: int | None = None, opened: Collection[str] = ()) -> Graph:
    """The graph with modules folded at a depth, save those that were opened; depth 0 folds stretches of ops."""
    groups = {row.op.name: f"op:{place}" for place, row in enumerate(rows)}
    if depth is not None:
        for key, members in _groups(rows, depth).items():
            if len(members) > 1 and key not in opened:
                groups |= dict.fromkeys((row.op.name for row in members), key)
    nodes: dict[str, Node] = {}
    for row in rows:
        key = groups[row.op.name]
        label = key.removeprefix("module:") if key.startswith("module:") else _short(row.op.name)
        nodes.setdefault(key, Node(key, label)).rows.append(row)
    quantized = {row.op.name: row.pick.quantized for row in rows}
    borders: dict[tuple[str, str], bool] = {}
    for row in rows:
        for before in row.inside.before:
            if before in groups and groups[before] != groups[row.op.name]:
                pair = groups[before], groups[row.op.name]
                borders[pair] = borders.get(pair, False) or quantized[before] != row.pick.quantized
    edges = tuple(Edge(source, target, border) for (source, target), border in borders.items())
    _place(nodes, edges)
    _wind(nodes)
    edges = tuple(replace(edge, skips=_skips(nodes[edge.source], nodes[edge.target])) for edge in edges)
    return Graph(tuple(nodes.values()), edges)


def _groups(rows: Sequence[OpRow], depth: int) -> dict[str, list[OpRow]]:
    """Ops by the module they lie in, no deeper than `depth`; without modules by stretches of the graph."""
    found: dict[str, list[OpRow]] = {}
    stretch = max(2, -(-len(rows) // AT_ONCE))
    for place, row in enumerate(rows):
        path = path_of(row)[:depth]
        first = place - place % stretch
        name = "/".join(path) if path else f"ops {first + 1} to {min(first + stretch, len(rows))}"
        found.setdefault(f"module:{name}", []).append(row)
    return found


def _short(name: str) -> str:
    """The last parts of a name."""
    parts = [part for part in name.split("/") if part]
    return "/".join(parts[-2:]) if parts else name


def _place(nodes: dict[str, Node], edges: Iterable[Edge]) -> None:
    """Each node one column behind what it reads, in the lane of its first source if that is free."""
    sources: dict[str, list[str]] = {}
    for edge in edges:
        sources.setdefault(edge.target, []).append(edge.source)
    order = {key: place for place, key in enumerate(nodes)}
    taken: dict[int, set[int]] = {}
    for key, node in nodes.items():
        before = [nodes[one] for one in sources.get(key, ()) if order[one] < order[key]]
        node.column = 1 + max((one.column for one in before), default=-1)
        wanted = before[0].lane if before else 0
        busy = taken.setdefault(node.column, set())
        node.lane = next(lane for lane in _around(wanted) if lane not in busy)
        busy.add(node.lane)


def _wind(nodes: dict[str, Node]) -> None:
    """Bands of columns, to the right and back again, so that a long graph fits a screen."""
    if not nodes:
        return
    length = 1 + max(node.column for node in nodes.values())
    lowest = min(node.lane for node in nodes.values())
    height = 1 + max(node.lane for node in nodes.values()) - lowest
    width = min(length, max(8, math.ceil(math.sqrt(ASPECT * length * (height + 1)))))
    for node in nodes.values():
        band, place = divmod(node.column, width)
        node.x = float(width - 1 - place if band % 2 else place)
        node.y = band * (height + 1.0) + node.lane - lowest


def _skips(source: Node, target: Node) -> bool:
    return source.lane == target.lane and source.y == target.y and target.column - source.column > 1


def _around(lane: int) -> Iterable[int]:
    """A lane and its neighbours, the nearest first."""
    yield lane
    step = 1
    while True:
        yield lane + step
        yield lane - step
        step += 1
