"""Result files say where their figures come from, and tables of the documentation are written from them."""

from __future__ import annotations

import json
import math
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import result_files, tables

FILES = sorted(result_files.RESULTS.glob("*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_row_names_a_measurement_with_command_commit_date_and_machine(path):
    content = result_files.read(path)
    assert content["title"] and content["rows"]
    for entry in content["measurements"]:
        assert all(entry[key] for key in ("command", "commit", "date"))
        assert entry["machine"]["processor"] and entry["machine"]["quaver"]
    assert {row["measured"] for row in content["rows"]} == set(range(len(content["measurements"])))


def test_pages_hold_the_tables_that_the_result_files_give():
    for path in tables.pages():
        text = path.read_text(encoding="utf-8")
        assert tables.written(text) == text, f"{path.name}: run `python -m benchmarks.tables`"


def test_each_table_has_a_result_file():
    for name, (file, write) in tables.TABLES.items():
        assert result_files.read(file)["rows"], f"{name}: benchmarks/results/{file}.json is missing"
        assert write().count("\n") > 2


def test_tables_of_figures_without_a_result_file_say_why():
    for path in sorted(tables.PAGES.rglob("*.md")):
        assert not list(tables.without_result_file(path.read_text("utf-8"))), f"{path.name}: see benchmarks/tables.py"


def test_a_typed_table_of_figures_is_found():
    table = "| model | a | b |\n|---|---|---|\n| x | 1.5x | 3 ms |\n| y | .41 | 12 % |\n| z | 0.2 | 1,234 MB |\n"
    assert list(tables.without_result_file(f"Words.\n\n{table}\nMore.")) == ["| model | a | b |"]
    assert not list(tables.without_result_file(f"<!-- no result file: reason -->\n{table}"))
    assert not list(tables.without_result_file(f"```\n{table}```\n"))
    assert not list(tables.without_result_file("| name | default |\n|---|---|\n| a | 0.5 |\n| b | 3 |\n"))


def test_no_table_is_older_than_this_version_unless_it_says_why():
    current = tuple(map(int, version("quaver").split(".")[:2]))
    older = {file for file, _ in tables.TABLES.values() if min(tables.versions(file)) < current}
    assert older == set(tables.NOT_REPEATED), "measure again, or say in NOT_REPEATED why not"


def test_an_older_table_gives_its_reason_below_it(monkeypatch):
    monkeypatch.setitem(tables.NOT_REPEATED, "planted", "it takes a year")
    assert tables.source("planted").endswith("Not measured again with this version: it takes a year.\n")


def test_each_table_stands_in_one_page():
    names = [match["name"] for path in tables.pages() for match in tables.MARKED.finditer(path.read_text("utf-8"))]
    assert sorted(names) == sorted(tables.TABLES)


def test_a_page_that_was_edited_by_hand_differs():
    page = next(tables.pages()).read_text(encoding="utf-8")
    match = tables.MARKED.search(page)
    edited = page.replace(match["text"], match["text"].replace("0.", "1.", 1))
    assert edited != page and tables.written(edited) == page


def test_a_page_with_an_unknown_table_is_refused():
    with pytest.raises(KeyError, match="nowhere"):
        tables.written("<!-- table: nowhere -->\n<!-- end of table -->")


def test_new_rows_replace_those_of_the_same_model_and_leave_the_others_with_their_measurement(tmp_path, monkeypatch):
    path = tmp_path / "figures.json"
    result_files.write(path, "Figures", [{"model": "a", "x": 1}, {"model": "b", "x": 2}], replaces=["model"])
    first = result_files.read(path)["measurements"]
    monkeypatch.setattr(result_files, "commit", lambda: "0123abc")
    result_files.write(path, "Figures", [{"model": "b", "x": 3}], replaces=["model"], unit="ms")
    content = result_files.read(path)
    assert result_files.rows_of(path) == [{"model": "a", "x": 1}, {"model": "b", "x": 3}]
    assert [row["measured"] for row in content["rows"]] == [0, 1] and content["unit"] == "ms"
    assert content["measurements"][0] == first[0] and content["measurements"][1]["commit"] == "0123abc"
    result_files.write(path, "Figures", [{"model": "c"}])
    assert len(result_files.read(path)["measurements"]) == 1


def test_numbers_of_numpy_are_written_and_what_is_not_finite_is_null(tmp_path):
    rows = [{"x": np.float32(0.5), "n": np.int64(3), "lost": math.nan, "in": {"list": [math.inf, np.bool_(True)]}}]
    path = result_files.write(tmp_path / "figures.json", "Figures", rows)
    row = json.loads(path.read_text(encoding="utf-8"))["rows"][0]
    assert row == {"x": 0.5, "n": 3, "lost": None, "in": {"list": [None, True]}, "measured": 0}


def test_a_measurement_names_command_commit_machine_and_versions():
    entry = result_files.measurement(["scikit-learn", "no-such-package"])
    assert entry["command"] and entry["commit"]
    assert entry["machine"]["no-such-package"] == "not installed"
    assert entry["machine"]["scikit-learn"][0].isdigit() and int(entry["machine"]["cores"]) >= 1
