"""The ops of a model as a graph, whole or with its modules folded."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from quaver.insights.data.op_rows import OpRow

# Judgement: a graph of more nodes is folded at first, because it cannot be read on a screen.
MAX_NODES = 150
# Judgement: the width of the drawing divided by its height.
ASPECT = 1.6


@dataclass(slots=True)
class Node:
    """An op, or a folded module.

    Attributes:
        key: a unique key: the place of an op, or the path of a module.
        label: the name that is shown.
        rows: the ops in it.
        column, lane: its depth in the graph, and its position among nodes of that depth.
        x, y: where it is drawn; long graphs are folded into bands.
    """

    key: str
    label: str
    rows: list[OpRow] = field(default_factory=list)
    column: int = 0
    lane: int = 0
    x: float = 0.0
    y: float = 0.0

    @property
    def is_folded(self) -> bool:
        """True if it stands for several ops."""
        return self.key.startswith("module:")

    @property
    def precision(self) -> str:
        """The precision: int8, fp32, or mixed for a module with both."""
        quantized = {row.choice.quantized for row in self.rows}
        return "mixed" if len(quantized) > 1 else "int8" if True in quantized else "fp32"

    @property
    def error(self) -> float:
        """The largest error of its ops."""
        return max((row.known_error for row in self.rows if not math.isnan(row.known_error)), default=math.nan)

    @property
    def seconds(self) -> float:
        """The time of its ops in the precisions that they run in."""
        seconds = [row.int8_seconds if row.choice.quantized else row.fp32_seconds for row in self.rows]
        measured = [value for value in seconds if not math.isnan(value)]
        return sum(measured) if measured else math.nan


@dataclass(frozen=True, slots=True)
class Edge:
    """Values that flow from one node to another.

    Attributes:
        source, target: the keys of the nodes.
        converts: True if they are converted between precisions.
        skips: True if other nodes lie between.
    """

    source: str
    target: str
    converts: bool
    skips: bool = False


@dataclass(frozen=True, slots=True)
class Graph:
    """The nodes and edges that are drawn."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def path_of(row: OpRow) -> tuple[str, ...]:
    """Return the modules that contain an op, the outermost first, from its metadata or else its name."""
    if row.details.module:
        return tuple(part for part in row.details.module.split(".") if part)
    parts = [part for part in row.op.name.split("/") if part]
    if len(parts) > 1:
        return tuple(parts[:-1])
    parts = [part for part in row.op.name.split(".") if part]
    return tuple(parts[:-1])


def max_depth(rows: Sequence[OpRow]) -> int:
    """Return how many levels of modules there are."""
    return max((len(path_of(row)) for row in rows), default=0)


def default_depth(rows: Sequence[OpRow]) -> int | None:
    """Return the level at which to fold at first; None shows every op."""
    if len(rows) <= MAX_NODES:
        return None
    fits = [depth for depth in range(1, max_depth(rows) + 1) if len(_groups(rows, depth)) <= MAX_NODES]
    return max(fits, default=0)


def make_graph(rows: Sequence[OpRow], depth: int | None = None, opened: Collection[str] = ()) -> Graph:
    """Return the graph with modules folded at a depth, except the opened ones. Depth 0 folds stretches of ops."""
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
    quantized = {row.op.name: row.choice.quantized for row in rows}
    converts: dict[tuple[str, str], bool] = {}
    for row in rows:
        for before in row.details.before:
            if before in groups and groups[before] != groups[row.op.name]:
                pair = groups[before], groups[row.op.name]
                converts[pair] = converts.get(pair, False) or quantized[before] != row.choice.quantized
    edges = tuple(Edge(source, target, is_conversion) for (source, target), is_conversion in converts.items())
    _set_columns(nodes, edges)
    _set_positions(nodes)
    edges = tuple(replace(edge, skips=_skips(nodes[edge.source], nodes[edge.target])) for edge in edges)
    return Graph(tuple(nodes.values()), edges)


def _groups(rows: Sequence[OpRow], depth: int) -> dict[str, list[OpRow]]:
    """Group ops by module, no deeper than `depth`; ops without a module by stretches of the graph."""
    groups: dict[str, list[OpRow]] = {}
    stretch = max(2, -(-len(rows) // MAX_NODES))
    for place, row in enumerate(rows):
        path = path_of(row)[:depth]
        first = place - place % stretch
        name = "/".join(path) if path else f"ops {first + 1} to {min(first + stretch, len(rows))}"
        groups.setdefault(f"module:{name}", []).append(row)
    return groups


def _short(name: str) -> str:
    """Return the last two parts of a name."""
    parts = [part for part in name.split("/") if part]
    return "/".join(parts[-2:]) if parts else name


def _set_columns(nodes: dict[str, Node], edges: Iterable[Edge]) -> None:
    """Put each node one column behind its sources, in the lane of its first source if that is free."""
    sources: dict[str, list[str]] = {}
    for edge in edges:
        sources.setdefault(edge.target, []).append(edge.source)
    order = {key: place for place, key in enumerate(nodes)}
    occupied: dict[int, set[int]] = {}
    for key, node in nodes.items():
        before = [nodes[source] for source in sources.get(key, ()) if order[source] < order[key]]
        node.column = 1 + max((source.column for source in before), default=-1)
        lane = before[0].lane if before else 0
        lanes = occupied.setdefault(node.column, set())
        node.lane = next(lane for lane in _around(lane) if lane not in lanes)
        lanes.add(node.lane)


def _set_positions(nodes: dict[str, Node]) -> None:
    """Fold the columns into bands, to the right and back, so that a long graph fits a screen."""
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
    """Yield a lane and its neighbours, the nearest first."""
    yield lane
    step = 1
    while True:
        yield lane + step
        yield lane - step
        step += 1
