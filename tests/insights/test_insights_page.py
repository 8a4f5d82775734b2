"""The page in a real browser: every view and click, without errors and without requests to other hosts."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import StrictStrategy
from insights_runs import tune

import quaver
from quaver.insights.page.serve import Page, serve

# Where pictures of the views are kept, if somebody wants them.
PICTURES = os.environ.get("QUAVER_PICTURES")
# The nodes of the graph, and where on the page the first op, or the first module, is drawn.
NODES = "[...document.querySelectorAll('div')].find(one => one._cyreg)._cyreg.cy.nodes().toArray()"
WHERE = f"""op => {{
    const node = {NODES}.find(one => op === (one.data('place') >= 0));
    const box = node.cy().container().getBoundingClientRect(), at = node.renderedPosition();
    return [box.x + at.x, box.y + at.y];
}}"""


@pytest.fixture(scope="module")
def served(demo: quaver.TuneResult) -> Iterator[Page]:
    with serve([demo.workspace.parent], port=0) as page:
        yield page


@pytest.mark.parametrize("name", ["demo", "resnet", "keras"])
def test_every_view_of_a_run_is_shown(name: str, watched: Any, request: pytest.FixtureRequest) -> None:
    with serve([request.getfixturevalue(name).workspace.parent], port=0) as served:
        _look_at_every_view(watched, served, name)
        watched.page.goto("about:blank")  # it asks no more


def _look_at_every_view(watched: Any, served: Page, name: str) -> None:
    page = watched.page
    page.goto(served.url)
    page.wait_for_selector(".view.verdict .headline")
    assert "riterion" in page.inner_text(".headline") and "Ended" in page.inner_text("#state")
    for view, drawn in (
        ("verdict", ".js-plotly-plot"), ("trials", ".ag-row"), ("tradeoff", ".js-plotly-plot"),
        ("culprits", ".js-plotly-plot"), ("ops", ".ag-row"), ("op", ".js-plotly-plot"), ("graph", "canvas"),
        ("profile", ".ag-row"), ("compare", "table"),
    ):  # fmt: skip
        watched.view(view).wait_for_selector(drawn)
        if PICTURES:
            page.wait_for_timeout(500)
            page.screenshot(path=Path(PICTURES) / f"{name}_{view}.png", full_page=True)


def test_clicks_in_the_tables_open_details(watched: Any, served: Page) -> None:
    page = watched.page
    page.goto(served.url)
    page.wait_for_selector(".view.verdict .headline")
    watched.view("trials").wait_for_selector(".ag-row")
    boxes = page.locator(".ag-row .ag-checkbox-input")
    assert "float model" in page.inner_text(".ag-row[row-index='0']")  # the first row; trials follow
    boxes.nth(1).click()
    page.wait_for_selector("h3:has-text('Trial 1: not met')")
    boxes.nth(2).click()
    page.wait_for_selector("h3:has-text('Trial 1 and trial 2')")
    watched.view("ops").wait_for_selector(".ag-row")
    name = page.locator(".ag-row[row-index='4'] [col-id=name]")
    wanted = name.inner_text()
    name.click()
    page.wait_for_selector(".view.op")
    assert page.inner_text(".view.op h3 >> nth=0") == wanted
    page.wait_for_selector(".view.op .js-plotly-plot")


def test_clicks_in_the_graph_open_modules_and_ops(watched: Any, served: Page) -> None:
    page = watched.page
    page.goto(served.url)
    page.wait_for_selector(".view.verdict .headline")
    watched.view("graph").wait_for_selector("canvas")
    page.wait_for_function(f"{NODES}.length > 0")
    for _ in range(4):  # modules open, one in another, until there is an op
        folded = page.evaluate(f"{NODES}.every(node => node.data('place') < 0)")
        x, y = page.evaluate(WHERE, not folded)
        before = page.evaluate(f"{NODES}.length")
        page.mouse.click(x, y)
        if not folded:
            break
        page.wait_for_function(f"{NODES}.length != {before}")
    opened = page.locator(".view.graph button:has-text('open this op')")
    opened.wait_for()
    wanted = page.inner_text(".view.graph h3")
    assert "in fp32" in page.inner_text(".view.graph dl")
    opened.click()
    page.wait_for_selector(".view.op .js-plotly-plot")
    assert page.inner_text(".view.op h3 >> nth=0") == wanted


def test_a_graph_is_shown_whole_or_at_its_actual_size(watched: Any, served: Page) -> None:
    page = watched.page
    page.goto(served.url)
    page.wait_for_selector(".view.verdict .headline")
    watched.view("graph").wait_for_selector("canvas")
    zoom = f"{NODES}[0].cy().zoom()"
    page.wait_for_function(f"{NODES}.length > 0")
    page.click("button:has-text('actual size')")
    page.wait_for_function(f"() => Math.abs({zoom} - 1) < 0.01")
    page.click("button:has-text('zoom to fit')")
    inside = "node => node.renderedBoundingBox().x1 > -9 && node.renderedBoundingBox().x2 < node.cy().width() + 9"
    page.wait_for_function(f"() => {NODES}.every({inside})")


def test_the_page_is_dark_where_the_system_is(browser: Any, served: Page) -> None:
    colours = {}
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme)
        page = context.new_page()
        page.goto(served.url)
        page.wait_for_selector(".view.verdict .js-plotly-plot .xtick text")
        colours[scheme] = [
            page.evaluate(f"getComputedStyle(document.querySelector({element!r})).{what}")
            for element, what in (
                ("body", "backgroundColor"),
                (".js-plotly-plot .xtick text", "fill"),
                (".card", "color"),
            )
        ]
        context.close()
    assert colours["light"][0] == "rgb(255, 255, 255)"
    assert all(light != dark for light, dark in zip(*colours.values(), strict=True))


def test_a_narrow_screen_needs_no_scrolling_to_the_side(browser: Any, served: Page) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page = context.new_page()
    page.goto(served.url)
    page.wait_for_selector(".view.verdict .headline")
    for place in range(9):
        page.locator(".tab").nth(place).click()
        page.wait_for_timeout(300)
        # Figures are drawn at their usual width first.
        page.wait_for_function("document.documentElement.scrollWidth <= 390", timeout=10_000)
    context.close()


def test_a_point_of_the_trade_off_gives_the_command_that_rebuilds_its_model(watched: Any, served: Page) -> None:
    page = watched.page
    page.goto(served.url)
    page.wait_for_selector(".view.verdict .headline")
    watched.view("tradeoff").wait_for_selector(".scatterlayer .point")
    page.wait_for_selector("#state.ended")
    command = page.locator(".view.tradeoff .command code")
    for _ in range(20):  # a figure that is redrawn at its final size misses a click
        mark = page.locator(".scatterlayer .point").first.bounding_box()
        x, y = mark["x"] + mark["width"] / 2, mark["y"] + mark["height"] / 2
        page.mouse.move(x - 3, y)
        page.mouse.move(x, y)
        page.wait_for_timeout(300)
        page.mouse.click(x, y)
        page.wait_for_timeout(500)
        if command.count():
            break
    assert "quaver recover" in command.inner_text()


def test_a_button_copies_its_command(browser: Any, served: Page) -> None:
    one = StrictStrategy(browser, permissions=["clipboard-read", "clipboard-write"])
    page = one.page
    page.goto(served.url)
    page.wait_for_selector(".view.verdict .clip")
    page.locator(".view.verdict .clip").first.click()
    copied = ""
    for _ in range(100):  # it is written a little later
        if copied := page.evaluate("navigator.clipboard.readText()"):
            break
        page.wait_for_timeout(100)
    assert copied == page.inner_text(".view.verdict .command code >> nth=0")
    one.context.close()
    assert not one.errors and not one.foreign


def test_fit_opens_the_page_of_its_run(tmp_path: Path, watched: Any) -> None:
    seen: list[str] = []

    def observer(event: quaver.events.Event) -> None:
        if isinstance(event, quaver.events.PageOpened):
            assert _status(event.url) == 200
            seen.append(event.url)

    tune(tmp_path / "run", insights=True, observer=observer, max_trials=1)
    assert len(seen) == 1 and seen[0].startswith("http://127.0.0.1:")
    with pytest.raises(urllib.error.URLError):  # it goes with the run
        urllib.request.urlopen(seen[0], timeout=5)


def test_ops_are_filtered_and_the_graph_is_folded(watched: Any, served: Page, demo: quaver.TuneResult) -> None:
    page = watched.page
    page.goto(served.url)
    page.wait_for_selector(".view.verdict .headline")
    watched.view("ops").wait_for_selector(".ag-row")
    page.get_by_text("fp32 only").click()
    assert demo.best is not None
    count = len(demo.best.config.fp32_ops)
    rows = page.locator(".ag-center-cols-container .ag-row")
    rows.nth(count).wait_for(state="detached")
    assert rows.count() == count
    watched.view("graph").wait_for_selector("canvas")
    page.get_by_text("error", exact=True).click()
    page.wait_for_timeout(300)


def test_a_foreign_host_and_a_foreign_origin_are_refused(served: Page) -> None:
    assert _status(served.url) == 200
    assert _status(served.url, Host="evil.example") == 403
    assert _status(served.url, Host="evil.example:8765") == 403
    assert _status(served.url, Origin="http://evil.example") == 403
    assert _status(f"{served.url}_dash-layout", Host="evil.example") == 403
    assert _status(served.url, Host="localhost") == 200


def test_another_address_is_served_only_with_a_token(demo: quaver.TuneResult) -> None:
    with pytest.raises(quaver.SettingsError, match="set a token"):
        serve([demo.workspace], host="0.0.0.0", port=0)
    with serve([demo.workspace], port=0, token="auto") as page:
        bare, token = page.url.split("?token=")
        assert len(token) > 20
        assert _status(bare) == 403 and _status(f"{bare}?token=wrong") == 403 and _status(f"{bare}_dash-layout") == 403
        assert _status(page.url) == 200  # and the cookie does the rest
        assert _status(bare, Cookie=f"quaver_token={token}") == 200


def test_the_page_can_only_be_read(served: Page) -> None:
    for method in ("PUT", "DELETE", "PATCH"):
        assert _status(served.url, method) == 405
    for path in ("../../etc/passwd", "assets/../../../etc/passwd", "_dash-component-suites/dash/../../setup.py"):
        assert _status(served.url + path) in (200, 400, 403, 404)
        assert b"root:" not in _body(served.url + path)


def _status(url: str, method: str = "GET", **headers: str) -> int:
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    try:
        with opener.open(urllib.request.Request(url, method=method, headers=headers), timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def _body(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError:
        return b""


def test_the_report_opens_from_disk_with_no_network(browser: Any, demo: quaver.TuneResult) -> None:
    one = StrictStrategy(browser, offline=True)
    one.page.goto((demo.workspace / "report.html").as_uri())
    one.page.wait_for_selector(".figure .main-svg")
    one.page.locator("details summary").first.click()
    one.page.wait_for_selector("details[open] .figure .main-svg")
    assert not one.errors and not one.foreign
    one.context.close()


def test_the_tables_of_the_report_need_no_javascript(browser: Any, demo: quaver.TuneResult) -> None:
    one = StrictStrategy(browser, offline=True, java_script_enabled=False)
    one.page.goto((demo.workspace / "report.html").as_uri())
    assert one.page.locator("section#trials tbody tr").count() == len(demo.trials)
    assert one.page.locator("section#ops tbody tr").count() >= len(quaver.read_snapshot(demo.workspace).header.ops)
    one.context.close()
