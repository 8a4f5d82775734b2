"""The page answers invalid requests with 4xx, never with 500: real HTTP requests to every route and callback."""

from __future__ import annotations

import http.client
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from quaver.history import Header, History
from quaver.insights.page.callback_requests import UPDATE
from quaver.insights.page.runs import Runs
from quaver.insights.page.serve import serve
from quaver.ops import FLOAT, INT8, Op, OpConfig, QuantConfig
from quaver.trial import Trial, TrialState

METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "FOO")
SUITES = "/_dash-component-suites"
PATHS = (
    "/", "/_dash-layout", "/_dash-dependencies", UPDATE, "/_reload-hash", "/_favicon.ico", "/assets/x", "/assets/../x",
    f"{SUITES}/x/y", f"{SUITES}/dash/x.js", f"{SUITES}/dash/dcc/%00", f"{SUITES}/dash/../../etc/passwd",
    f"{SUITES}/quaver/x", f"{SUITES}/dash_ag_grid/..%2f..%2fx", "/%ff", "/?" + "a" * 5000, "/?token=%ff",
    "/_dash-config", "/x/" + "y" * 300,
)  # fmt: skip
BODIES = (
    b"", b"{", b"[]", b"3", b"null", b'"x"', b"{}", b'{"output":3}', b'{"output":"x"}', b"\xff\xfe", b"[" * 100_000,
    b'{"output": "..begun.data.."}', b'{"output":"content.children","inputs":null}',
)  # fmt: skip
ODD: list[Any] = [
    None, True, -1, 0, 1.5, 1e308, float("nan"), "", "x", "\0", "a" * 1000, "\u00b2", "9" * 5000, [], [1], [None],
    [[1]],
    ["x", 1], [[], 1], {}, {"run": 3}, {"run": []}, {"run": {}}, {"points": 3}, {"points": [{}]}, [{"live": []}],
    {"points": [{"x": "y"}]}, {"points": [{"x": float("inf")}]}, {"points": [{"customdata": [True]}]}, {"live": "x"},
    {"rowId": "\u00b2"}, {"rowId": "9" * 5000}, [{"number": True}], [{"number": 10**30}], {"place": True},
    {"place": 10**20}, {"id": {}},
]  # fmt: skip
REQUESTS = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run that has ended."""
    folder = tmp_path_factory.mktemp("odd")
    choice = OpConfig(INT8)
    ops = tuple(Op(name, "Gemm", (name,), (choice, FLOAT)) for name in ("block/a", "block/b", "c"))
    config = QuantConfig((op.name, choice) for op in ops)
    with History.create(folder / "history.snapshot") as history:
        history.begin(Header("f" * 64, "onnxrt", ops, {}, "now"))
        history.start_run({"relative": 0.05, "objective": "latency"}, {})
        history.append(Trial(0, config.fallback(*config), TrialState.COMPLETE, 0.9, model_size=9))
        for number in (1, 2):
            measured = {"latency": 0.5, "latency_ms": 1.0}
            fallen = config.fallback(*list(config)[: number - 1])
            history.append(Trial(number, fallen, TrialState.COMPLETE, 0.89, model_size=5, measured=measured))
        history.note("run.ended", {"run": 1, "reason": "criterion met"})
    return folder


class Browser:
    """Asks a page over HTTP."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url)

    def ask(
        self, method: str, path: str, body: bytes | None = None, kind: str = "application/json"
    ) -> tuple[int, bytes]:
        """Return the status and what came back."""
        connection = http.client.HTTPConnection(self._address.hostname or "", self._address.port or 0, timeout=60)
        try:
            connection.request(method, path, body, {"Content-Type": kind} if kind else {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def call(self, body: Any) -> int:
        """Ask a callback; the status."""
        return self.ask("POST", UPDATE, json.dumps(body).encode())[0]


@pytest.fixture(scope="module")
def page(folder: Path) -> Iterator[Browser]:
    with serve([folder], port=0) as served:
        yield Browser(served.url)


@pytest.fixture(scope="module")
def callbacks(page: Browser) -> list[dict[str, Any]]:
    """All callbacks, as the page tells its own script."""
    listed: list[dict[str, Any]] = json.loads(page.ask("GET", "/_dash-dependencies")[1])
    assert len(listed) > 8
    return listed


def identity(name: str) -> tuple[Any, bool]:
    """Return the id of a component, a wildcard filled in, and whether it had one."""
    if not name.startswith("{"):
        return name, False
    parts: dict[str, Any] = json.loads(name)
    return {key: "x" if isinstance(value, list) else value for key, value in parts.items()}, any(
        isinstance(value, list) for value in parts.values()
    )


def component(name: str, prop: str, **value: Any) -> Any:
    """Return a component as Dash's script sends it."""
    identifier, wildcard = identity(name)
    part = {"id": identifier, "property": prop.partition("@")[0], **value}
    return [part] if wildcard else part


def request(callback: dict[str, Any], value: Any) -> dict[str, Any]:
    """Return a request of the right form. `value` gives the value of an input or a state by its name."""
    output = callback["output"]
    names = output[2:-2].split("...") if output.startswith("..") else [output]
    outputs = [component(*(part for part in name.rpartition(".")[::2])) for name in names]
    parts = {
        kind: [component(spec["id"], spec["property"], value=value(spec["id"])) for spec in callback[kind]]
        for kind in ("inputs", "state")
    }
    first = callback["inputs"][0]
    changed = [f"{first['id']}.{first['property']}"]
    return {
        "output": output,
        "outputs": outputs if output.startswith("..") else outputs[0],
        **parts,
        "changedPropIds": changed,
    }


@pytest.mark.parametrize("method", METHODS)
def test_every_route_answers_every_method(page: Browser, method: str) -> None:
    statuses = {path: page.ask(method, path, b"{}" if method in ("POST", "PUT") else None)[0] for path in PATHS}
    assert {path[:60]: status for path, status in statuses.items() if status >= 500} == {}
    if method == "GET":
        assert statuses["/"] == statuses["/_dash-layout"] == 200 and statuses[f"{SUITES}/x/y"] == 404


@pytest.mark.parametrize("kind", ["application/json", "text/plain", ""])
def test_an_invalid_body_is_refused(page: Browser, kind: str) -> None:
    for body in BODIES:
        status, answer = page.ask("POST", UPDATE, body, kind)
        assert status == 400 and b"Invalid request" in answer, body[:40]


def test_valid_requests_are_answered(page: Browser, folder: Path, callbacks: list[dict[str, Any]]) -> None:
    (key,) = Runs([folder]).scan()
    right = {"begun": {"run": key, "ready": True, "over": True}, "seen": [key, 1], "run": key, "view": "verdict"}
    statuses = [page.call(request(callback, right.get)) for callback in callbacks]
    assert set(statuses) <= {200, 204} and statuses.count(200) > 3


def test_invalid_values_never_break_a_callback(page: Browser, folder: Path, callbacks: list[dict[str, Any]]) -> None:
    (key,) = Runs([folder]).scan()
    rng = random.Random(0)
    right = {"begun": {"run": key, "ready": True, "over": True}, "seen": [key, 1], "run": key, "view": "verdict"}
    statuses: Counter[int] = Counter()
    for callback in callbacks:
        for _ in range(REQUESTS):
            body = request(
                callback, lambda name: right[name] if name in right and rng.random() < 0.5 else rng.choice(ODD)
            )
            break_form(body, rng)
            status = page.call(body)
            assert status < 500, body
            statuses[status] += 1
    assert set(statuses) <= {200, 204, 400} and min(statuses[200], statuses[400]) > 50, statuses


def break_form(body: dict[str, Any], rng: random.Random) -> None:
    """Make a request odd in its form, in every third case."""
    match rng.randrange(15):
        case 0:
            body[rng.choice(list(body))] = rng.choice(ODD)
        case 1:
            del body[rng.choice(list(body))]
        case 2:
            body["inputs"][0] = rng.choice(ODD)
        case 3:
            body["inputs"] = body["inputs"][1:]
        case 4:
            body["changedPropIds"] = rng.choice([["x"], ["{}.x"], ['{"a":.b'], [""], ["."], 3, [3], ["[].x"]])
