"""Tables of the documentation that are written from result files.

    python -m benchmarks.tables   # write all tables again; needs no measurement

A page holds a table between `<!-- table: NAME -->` and `<!-- end of table -->`. A line below each table says with which
version, on which day and machine, and with which command its figures were measured. A test compares the pages with the
result files, so a table can be neither typed nor forgotten.

A table of figures without a result file needs a line above it: `<!-- no result file: REASON -->`. A result file is as
old as the version of quaver that measured it. `NOT_REPEATED` lists the ones that are older than this version.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

from benchmarks import result_files, result_tables
from benchmarks.comparison import table as comparison

PAGES = Path(__file__).parents[1] / "docs"
MARKED = re.compile(r"<!-- table: (?P<name>[\w-]+) -->\n(?P<text>.*?)<!-- end of table -->", re.DOTALL)

# A cell with a measured figure: a decimal number, or a number with a unit.
FIGURE = re.compile(r"\d*\.\d+x?(?![\w.])|(?<![\w.])\d[\d,]* ?(?:ms|s|min|h|MB|%)(?!\w)")
# Fewer figures than this are examples or defaults, not measurements (judgement).
MIN_FIGURES = 6
# More measurements of one benchmark than this share a line.
MAX_LINES = 2
WITHOUT_FILE = "<!-- no result file: "

Row = Mapping[str, Any]


def source(name: str) -> str:
    """Return with which version, when, where and with which command a result file was measured.

    Each measurement gets a line; many of one benchmark with one version on one machine share a line.
    """
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for entry in result_files.read(name)["measurements"]:
        machine, program = entry["machine"], " ".join(entry["command"].split()[:3])
        groups.setdefault((machine["quaver"], entry["date"], machine["processor"], program), []).append(entry)
    lines = []
    for (version, date, processor, program), entries in groups.items():
        if len(entries) > MAX_LINES:
            lines.append(
                f"Measured with quaver {version} on {date}, {processor}: {len(entries)} calls of `{program}`; "
                f"`benchmarks/results/{name}.json` holds the commit and the options of each.\n"
            )
            continue
        lines += [
            f"Measured with quaver {version} (commit {entry['commit']}) on {date}, {processor}: `{entry['command']}`.\n"
            for entry in entries
        ]
    if name in NOT_REPEATED:
        lines.append(f"Not measured again with this version: {NOT_REPEATED[name]}.\n")
    return "\n".join(lines)


# The result file and the function that writes its table, by the name in the page.
TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "portable": ("portable", result_tables.portable),
    "portable-ways": ("portable", result_tables.portable_ways),
    "sample-counts": ("sample_counts", result_tables.sample_counts),
    "diagnosis": ("diagnosis", result_tables.diagnosis),
    "remedies": ("remedies", result_tables.remedies),
    "planted": ("planted", result_tables.planted),
    "overhead": ("overhead", result_tables.overhead),
    "mlperf-tiny": ("mlperf_tiny", result_tables.mlperf_tiny),
    "kernel-costs": ("kernel_costs", result_tables.kernel_costs),
    "rewrites": ("rewrites", result_tables.rewrites),
    "early-stop": ("early_stop", result_tables.early_stop),
    "two-versions": ("versions", result_tables.two_versions),
    "planted-branches": ("planted_branches", result_tables.planted_branches),
    "simulated-workers": ("simulated_workers", result_tables.simulated_workers),
    "simulation": ("simulation", result_tables.simulation),
    **{name: ("comparison", partial(comparison.written, name)) for name in comparison.TABLES},
    "learned": ("learned", result_tables.learned),
    "language-model": ("language_model", result_tables.language_model),
    "generation": ("generation", result_tables.generation),
    "rounding": ("rounding", result_tables.rounding),
}
# Result files of earlier versions, and why they were not measured again. A test fails if one of them is not older, and
# if another one is.
NOT_REPEATED: dict[str, str] = {
    "diagnosis": "it waits for a machine without other work",
    "early_stop": "it needs scores of models that take an hour to prepare",
    "kernel_costs": "kernels of ONNX Runtime have not changed",
    "overhead": "it waits for a machine without other work",
    "portable": "it needs models that take an hour to prepare",
    "remedies": "it needs models that take an hour to prepare",
    "rewrites": "it needs models that take an hour to prepare",
    "sample_counts": "it takes hours",
    "simulation": "the sweep takes an hour on a busy machine",
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


def without_result_file(text: str) -> Iterator[str]:
    """Yield the head of each table of figures that is not generated and gives no reason above it."""
    lines = [*re.sub(r"```.*?```", "", MARKED.sub("", text), flags=re.DOTALL).splitlines(), ""]
    above, head, figures = "", "", 0
    for line in lines:
        if line.startswith("|"):
            head = head or line
            figures += sum(bool(FIGURE.search(cell)) for cell in line.strip("|").split("|")[1:])
        else:
            if head and figures >= MIN_FIGURES and not above.startswith(WITHOUT_FILE):
                yield head
            above, head, figures = line.strip() or ("" if head else above), "", 0


def versions(name: str) -> list[tuple[int, ...]]:
    """Return the versions of quaver, without the patch level, that measured a result file.

    A tree that is only on the path has no version: it is this one, as its commit says.
    """
    measured = [entry["machine"]["quaver"] for entry in result_files.read(name)["measurements"]]
    here = installed_version("quaver")
    numbers = [version if version[:1].isdigit() else here for version in measured]
    return [tuple(map(int, version.split(".")[:2])) for version in numbers]


def pages() -> Iterator[Path]:
    """Yield the pages that hold tables."""
    for path in (PAGES.parent / "README.md", *sorted(PAGES.rglob("*.md"))):
        if MARKED.search(path.read_text(encoding="utf-8")):
            yield path


def main() -> None:
    """Write the tables of all pages again."""
    for path in pages():
        path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
        print(path.relative_to(PAGES.parent))


if __name__ == "__main__":
    main()
