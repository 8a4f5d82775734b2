"""Hostile names and notes: the page and the report escape all of them."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from browsing import StrictStrategy

from quaver.history import Header, History
from quaver.insights import write_report
from quaver.insights.page.serve import serve
from quaver.ops import FLOAT, INT8, Op, OpConfig, QuantConfig
from quaver.trial import Trial, TrialState

NAMES = [
    "<script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "<a href=\"javascript:document.title='owned'\">x</a>",
    "../../etc/passwd",
    "[bold red]x[/bold red] \x1b[31m",
    "'); document.title='owned'; ('",
    "{{7*7}} ${document.title='owned'} %{x}",
    "</script><script>document.title='owned'</script>",
    "x" * 10_000,
    "[link](javascript:document.title='owned') **x**",
]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose every text is hostile."""
    folder = tmp_path_factory.mktemp("hostile") / "<b>run"
    folder.mkdir()
    choice = OpConfig(INT8)
    ops = tuple(Op(name, NAMES[0], (name,), (choice, FLOAT)) for name in NAMES)
    default_config = QuantConfig((name, choice) for name in NAMES)
    with History.create(folder / "history.snapshot") as history:
        history.begin(Header("f" * 64, NAMES[1], ops, {}, NAMES[0]))
        history.start_run({"relative": 0.01, "strategy": NAMES[1], "objective": "latency"}, {NAMES[0]: NAMES[1]})
        history.append(Trial(0, default_config.fallback(*NAMES), TrialState.COMPLETE, 0.9, model_size=9))
        history.append(Trial(1, default_config, TrialState.FAILED, error=NAMES[1]))
        for number, name in enumerate(NAMES[:5], 2):
            history.append(
                Trial(number, default_config.fallback(name), TrialState.COMPLETE, 0.8 + number / 60, model_size=9)
            )
        history.note("probe.sensitivity", {f"{name} {choice}": 0.1 for name in NAMES})
        history.note("probe.latency", {name: [2e-3, 1e-3] for name in NAMES})
        histogram = {"low": -1.0, "high": 1.0, "counts": bytes(range(128)) * 4, "channels": bytes(64), "scale": 0.1}
        inside = {"error": 0.1, "low": 0.0, "high": 1.0, "weight": histogram, "activation": histogram}
        chain = zip(NAMES, [[], *([name] for name in NAMES)], strict=False)
        history.note("inside.ops", {name: {**inside, "before": before, "module": NAMES[0]} for name, before in chain})
        history.note("inside.about", {"trial": 6, "samples": 8})
        cause = {"kind": NAMES[1], "sentence": NAMES[0], "advice": NAMES[2], "paste": NAMES[7]}
        history.note("inside.causes", [{"op": name, **cause} for name in NAMES])
        rows = [[name, False, NAMES[0], 1e-3, NAMES[1], 1e-3] for name in NAMES]
        history.note("inside.profile", {"trial": 6, "rows": rows, "how": NAMES[0]})
        history.note("unquantizable", [[NAMES[0], 3, 0.5]])
        history.note("conversions", [NAMES[1]])
        stages = {NAMES[0]: 3.0}
        history.note("run.ended", {"run": 1, "reason": NAMES[0], "stages": stages, "model": NAMES[1]})
    return folder


def test_the_page_escapes_hostile_texts(watched: Any, hostile: Path) -> None:
    page = watched.page
    with serve([hostile], port=0) as served:
        page.goto(served.url)
        page.wait_for_selector(".view.verdict .headline")
        for view in ("verdict", "trials", "tradeoff", "culprits", "ops", "op", "graph", "profile", "compare"):
            watched.view(view)
            page.wait_for_timeout(400)
            assert page.title() == "quaver insights", view
            assert (
                page.locator("main script, main img[src=x], main a[href^=javascript], main b:text-is('run')").count()
                == 0
            )
        watched.view("trials").locator(".ag-row .ag-checkbox-input").nth(1).click()
        page.wait_for_selector("h3:has-text('Trial 1: failed')")
        assert page.title() == "quaver insights"
        page.goto("about:blank")  # it would ask a server that is gone


def test_the_report_escapes_hostile_texts(browser: Any, hostile: Path, tmp_path: Path) -> None:
    one = StrictStrategy(browser, offline=True)
    one.page.goto(write_report(hostile, tmp_path / "report.html").as_uri())
    one.page.wait_for_selector(".figure .main-svg")
    for part in one.page.locator("details summary").all():
        part.click()
    one.page.wait_for_timeout(500)
    assert one.page.title().startswith("quaver: ")
    assert one.page.locator("main img, main a[href^=javascript]").count() == 0
    assert not one.errors and not one.foreign
    one.context.close()


class Tags(HTMLParser):
    """Collects the start tags of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_report_of_hostile_texts_has_only_the_tags_of_its_template(hostile: Path, tmp_path: Path) -> None:
    parser = Tags()
    parser.feed(write_report(hostile, tmp_path / "report.html").read_text())
    assert not {"img", "iframe", "b", "i"} & {tag for tag, _ in parser.tags}
    links = [attributes.get("href") or "" for tag, attributes in parser.tags if tag == "a"]
    assert links and all(link.startswith("#") for link in links)
    assert not any(name.startswith("on") for _, attributes in parser.tags for name in attributes)
    scripts = [attributes.get("type") for tag, attributes in parser.tags if tag == "script"]
    assert scripts.count(None) <= 1 and set(scripts) <= {None, "application/json", "text/plain"}
