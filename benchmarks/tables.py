"""Tables of the documentation that are written from result files.

    python -m benchmarks.tables   # write all tables again; needs no measurement

A page holds a table between `<!-- table: NAME -->` and `<!-- end of table -->`. A line below each table says with which
version, on which day and machine, and with which command its figures were measured. A test compares the pages with the
result files, so a table can be neither typed nor forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks import result_files

PAGES = Path(__file__).parents[1] / "docs"
MARKED = re.compile(r"<!-- table: (?P<name>[\w-]+) -->\n(?P<text>.*?)<!-- end of table -->", re.DOTALL)

Row = Mapping[str, Any]


def markdown(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table in Markdown, with a line break at its end."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def source(name: str) -> str:
    """Return a line for each measurement of a result file, from version to command."""
    lines = []
    for entry in result_files.read(name)["measurements"]:
        machine = entry["machine"]
        lines.append(
            f"Measured with quaver {machine['quaver']} (commit {entry['commit']}) on {entry['date']}, "
            f"{machine['processor']}: `{entry['command']}`.\n"
        )
    return "\n".join(lines)


def number(value: Any, digits: int = 3) -> str:
    """Return a figure with three significant digits, or nothing if there is none."""
    return "" if value is None else f"{value:.{digits}g}"


def portable() -> str:
    """What `portable` costs and brings on each model."""
    cells = []
    rows = result_files.rows_of("portable")
    for off, on, _ in zip(rows[::3], rows[1::3], rows[2::3], strict=True):
        coarser = on["coarsened"] or {"coarser_channels": 0, "channels": 0, "ops": 0}
        share = coarser["coarser_channels"] / max(coarser["channels"], 1)
        cells.append(
            (
                off["model"],
                f"{off['fp32']} / {off['score']} / {on['score']}",
                f"{number(off['latency'])} / {number(on['latency'])}",
                f"{off['int8_ops']} / {on['int8_ops']}",
                f"{share:.0%}",
                *(f"{number(row['error_native'])} → {number(row['error_haswell'])}" for row in (off, on)),
            )
        )
    head = (
        "model",
        "score: fp32 / False / True",
        "latency / fp32 latency: False / True",
        "int8 ops: False / True",
        "coarser channels",
        "relative output error, native → Haswell: False",
        "True",
    )
    return markdown(head, cells)


def portable_ways() -> str:
    """Relative output error of all ops in int8 by the way that rules overflow out."""
    ways = result_files.read("portable")["ways"]
    names = [key for key in ways[0] if key != "model"]
    head = ("model, all ops int8", *names)
    return markdown(head, [(way["model"], *(number(way[name]) for name in names)) for way in ways])


def sample_counts() -> str:
    """Loss of the default configuration by the number of calibration samples."""
    rows = result_files.rows_of("sample_counts")
    counts = sorted({row["samples"] for row in rows})
    methods = list(rows[0]["loss"])
    lines = []
    for model in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == model]
        draws = len({row["draw"] for row in own})
        for label in (*methods, "chosen"):
            losses = ([_loss(row, label) for row in own if row["samples"] == count] for count in counts)
            first = f"`{model}` ({number(own[0]['fp32'])}, {draws})" if label == methods[0] else ""
            lines.append((first, label, *map(_spread, losses)))
    return markdown(("model (fp32 score, draws)", "method", *map(str, counts)), lines)


def diagnosis() -> str:
    """Cost of a diagnosis in passes of the float model."""
    rows = result_files.rows_of("diagnosis")
    return markdown(
        ("model", "samples", "fp32 passes"),
        [(row["model"], row["samples"], number(row["fp32 passes"], 2)) for row in rows if "fp32 passes" in row],
    )


def _loss(row: Row, method: str) -> float:
    return float(row["loss"][min(row["error"], key=row["error"].get) if method == "chosen" else method])


def _spread(losses: Sequence[float]) -> str:
    return f"{fmean(losses):.3f} ({min(losses):.3f} to {max(losses):.3f})" if losses else ""


# The result file and the function that writes its table, by the name in the page.
TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "portable": ("portable", portable),
    "portable-ways": ("portable", portable_ways),
    "sample-counts": ("sample_counts", sample_counts),
    "diagnosis": ("diagnosis", diagnosis),
}


def written(text: str) -> str:
    """Return a page's text with its tables written again.

    Raises:
        KeyError: The page names a table that nothing writes.
    """

    def table(match: re.Match[str]) -> str:
        file, write = TABLES[match["name"]]
        return f"<!-- table: {match['name']} -->\n{write()}\n{source(file)}<!-- end of table -->"

    return MARKED.sub(table, text)


def pages() -> Iterator[Path]:
    """Yield the pages that hold tables."""
    for path in sorted(PAGES.rglob("*.md")):
        if MARKED.search(path.read_text(encoding="utf-8")):
            yield path


def main() -> None:
    """Write the tables of all pages again."""
    for path in pages():
        path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
        print(path.relative_to(PAGES.parent))


if __name__ == "__main__":
    main()
