"""The page itself: its frame, and what happens when something is clicked or a run has grown."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update

from quaver.engine.timing.objective import axes
from quaver.insights.data import text as wording
from quaver.insights.data.culprits import ranking, steps
from quaver.insights.data.run_reader import RunState
from quaver.insights.data.summary import costs, state_phrase
from quaver.insights.figures.distributions import weights_figure
from quaver.insights.figures.ops import ops_figure, ranking_figure, steps_figure
from quaver.insights.figures.profile import costs_figure
from quaver.insights.figures.tradeoff import tradeoff_figure
from quaver.insights.figures.trials import matrix_figure, trials_figure
from quaver.insights.page.auth import guard
from quaver.insights.page.callback_requests import refuse_odd_requests
from quaver.insights.page.looks import INDEX
from quaver.insights.page.runs import Runs, ViewContext
from quaver.insights.page.views import compare, culprits, graph, op, ops, profile, tradeoff, trials
from quaver.insights.page.views import summary as verdict

# Milliseconds between two looks at a run that may go on.
EVERY = 1000

VIEWS: dict[str, tuple[str, Callable[[ViewContext], list[Any]]]] = {
    "verdict": ("Verdict", verdict.layout),
    "trials": ("Trials", trials.layout),
    "tradeoff": ("Trade-off", tradeoff.layout),
    "culprits": ("Culprits", culprits.layout),
    "ops": ("Ops", ops.layout),
    "op": ("Op", op.layout),
    "graph": ("Graph", graph.layout),
    "profile": ("Profile", profile.layout),
    "compare": ("Compare", compare.layout),
}


def _tradeoff_drawer(objective: str) -> Callable[[ViewContext], Any]:
    return lambda shown: tradeoff_figure(shown.data, objective)


# Figures that are drawn again when a run has grown.
LIVE: dict[str, Callable[[ViewContext], Any]] = {
    "trials": lambda shown: trials_figure(shown.data),
    "matrix": lambda shown: matrix_figure(shown.data),
    "costs": lambda shown: costs_figure(costs(shown.data)),
    **{objective: _tradeoff_drawer(objective) for objective in axes()},
    "steps": lambda shown: steps_figure(shown.data, steps(shown.data)),
    "ranking": lambda shown: ranking_figure(ranking(shown.ops())),
    "ops": lambda shown: ops_figure(shown.ops()),
    "weights": lambda shown: weights_figure(shown.ops()),
}


def make_app(folders: Sequence[str | os.PathLike[str]], host: str, token: str) -> Dash:
    """The page of all runs in these folders."""
    app = Dash(
        __name__,
        title="quaver insights",
        update_title="",
        serve_locally=True,
        suppress_callback_exceptions=True,
        index_string=INDEX,
        assets_folder="no assets",
    )
    runs = Runs(folders)
    app.layout = lambda: _frame(runs)
    _add_callbacks(app, runs)
    guard(app.server, host, token, app.csp_hashes())
    refuse_odd_requests(app)
    return app


def _frame(runs: Runs) -> html.Div:
    with runs.lock:
        keys = runs.scan()
        options = _options(runs, keys)
    tabs = [
        dcc.Tab(label=title, value=name, className="tab", selected_className="chosen")
        for name, (title, _) in VIEWS.items()
    ]
    return html.Div(
        [
            html.Header(
                [
                    html.H1("quaver insights"),
                    dcc.Dropdown(options, keys[0] if keys else None, id="run", clearable=False, className="run"),
                    html.Div(id="state", className="state"),
                ]
            ),
            html.Div(id="damage", className="warn"),
            dcc.Tabs(tabs, value="verdict", id="view", className="tabs", parent_className="tabs-frame"),
            html.Main(id="content"),
            dcc.Interval(id="tick", interval=EVERY),
            dcc.Store(id="begun"),
            dcc.Store(id="seen"),
            dcc.Store(id="op"),
            dcc.Store(id="opened", data=[]),
        ]
    )


def _options(runs: Runs, keys: Sequence[str]) -> list[dict[str, str]]:
    return [{"label": wording.name(runs.label(key)), "value": key} for key in keys]


class _Answers:
    """What the page answers. All of it reads; nothing can be changed from a browser."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    def _shown(self, key: str | None, place: int | None = None) -> ViewContext | None:
        data = self._runs.poll(key)
        if data is None or key is None:
            return None
        others = {one: self._runs.label(one) for one in self._runs.scan()}
        return ViewContext(data, lambda: self._runs.ops(key, data), others, place)

    def look(self, ticks: Any, key: str | None, begun: Any, seen: Any, options: Any) -> tuple[Any, ...]:
        """Whether there is something new. The answer to most questions is no."""
        with self._runs.lock:
            keys = self._runs.scan()
            key = key if key in keys else keys[0] if keys else None
            offered = _options(self._runs, keys)
            data = self._runs.poll(key)
            now_seen = None if data is None else [key, data.version]
            over = data is not None and data.state is RunState.ENDED
            now_begun = {"run": key, "ready": data is not None, "over": over}
            changed = offered if offered != options else no_update
            if now_seen == seen and now_begun == begun:
                return no_update, no_update, no_update, no_update, no_update, changed, no_update
            if data is None:
                return now_begun, now_seen, self._runs.problem(key), "state", "", changed, key
            damage = data.snapshot.damage
            said = f"The file is damaged: {damage}. Shown is what is whole." if damage else ""
            return (
                now_begun if now_begun != begun else no_update,
                now_seen,
                state_phrase(data),
                f"state {data.state}",
                wording.name(said, 600),
                changed,
                key,
            )

    def show(self, view: str, place: Any, begun: Any) -> Any:
        """A view of a run."""
        if ctx.triggered_id == "op" and view != "op":
            return no_update
        with self._runs.lock:
            key = _run_of(begun)
            shown = self._shown(key, place if isinstance(place, int) else None)
            if shown is None:
                return [html.P(wording.name(self._runs.problem(key), 600))]
            if not isinstance(view, str) or view not in VIEWS:
                return no_update
            return html.Div(VIEWS[view][1](shown), className=f"view {view}")

    def update(self, seen: Any, figures: Any, grids: Any, texts: Any) -> tuple[list[Any], list[Any], list[Any]]:
        """What is on the screen, as it is now."""
        with self._runs.lock:
            key = seen[0] if isinstance(seen, list) and seen else None
            shown = self._shown(key if isinstance(key, str) else None)
            if shown is None:
                return [no_update] * len(figures), [no_update] * len(grids), [no_update] * len(texts)
            draw = [LIVE.get(_named(one, "live")) for one in figures]
            drawn = [no_update if make is None else make(shown) for make in draw]
            tables = [trials.rows(shown.data) if _named(one, "grid") == "trials" else no_update for one in grids]
            said = [verdict.headline(shown) if _named(one, "text") == "headline" else no_update for one in texts]
            return drawn, tables, said

    def trial(self, ticked: Any, begun: Any) -> Any:
        """The trial that was ticked, or the difference of two."""
        with self._runs.lock:
            shown = self._shown(_run_of(begun))
            rows = [row for row in ticked if isinstance(row, dict)] if isinstance(ticked, list) else []
            numbers = [row["number"] for row in rows if isinstance(row.get("number"), int)]
            return [] if shown is None else trials.detail(shown.data, numbers)

    def point(self, clicked: list[Any], begun: Any) -> Any:
        """How to have the model of the point that was clicked."""
        with self._runs.lock:
            shown = self._shown(_run_of(begun))
            chosen = (
                next((one for one in clicked if one), None) if len(ctx.triggered) != 1 else ctx.triggered[0]["value"]
            )
            number = _number(chosen)
            return no_update if shown is None or number is None else tradeoff.point(shown.data, number)

    def ops(self, wanted: str, kind: str | None, text: str | None, begun: Any) -> Any:
        """The ops that were asked for."""
        with self._runs.lock:
            shown = self._shown(_run_of(begun))
            searched = text if isinstance(text, str) else ""
            return no_update if shown is None else ops.rows(shown.ops(), wanted, kind, searched)

    def graph(self, depth: str, colour: str, opened: Any, begun: Any) -> Any:
        """The graph, folded and coloured as wanted."""
        with self._runs.lock:
            shown = self._shown(_run_of(begun))
            level = int(depth) if isinstance(depth, str) and depth.isdecimal() and len(depth) < 10 else None
            keys = [key for key in opened if isinstance(key, str)] if isinstance(opened, list) else []
            return no_update if shown is None else graph.elements(shown.ops(), level, keys, colour)

    def tapped(self, node: Any, opened: Any) -> tuple[Any, Any, Any]:
        """A module is opened; an op is looked into."""
        if not isinstance(node, dict):
            return no_update, no_update, no_update
        if isinstance(node.get("place"), int) and node["place"] >= 0:
            return node["place"], "op", no_update
        before = opened if isinstance(opened, list) else []
        return no_update, no_update, [*before, str(node.get("id"))]

    def compared(self, keys: Any) -> Any:
        """The runs that were chosen, side by side."""
        with self._runs.lock:
            chosen = [key for key in keys if isinstance(key, str)] if isinstance(keys, list) else []
            found = [self._runs.poll(key) for key in chosen]
            return compare.comparison([data for data in found if data is not None])


def _run_of(begun: Any) -> str | None:
    """Return the key of the run that the page shows; None if the browser names none."""
    key = begun.get("run") if isinstance(begun, dict) else None
    return key if isinstance(key, str) else None


def _named(identity: Any, kind: str) -> str:
    """Return the name of a component with a pattern id; empty if it has none."""
    name = identity.get(kind) if isinstance(identity, dict) else None
    return name if isinstance(name, str) else ""


def _number(clicked: Any) -> int | None:
    """The trial of a point that was clicked."""
    try:
        found = clicked["points"][0]["customdata"][0]
    except (TypeError, KeyError, IndexError):
        return None
    return found if isinstance(found, int) else None


def _row(cell: Any) -> tuple[Any, Any]:
    """The op whose row was clicked."""
    key = cell.get("rowId") if isinstance(cell, dict) else None
    if not isinstance(key, str) or not key.isdecimal() or len(key) > 9:
        return no_update, no_update
    return int(key), "op"


def _bar(clicked: Any) -> tuple[Any, Any]:
    """The op whose mark was clicked: figures count ops from 1."""
    try:
        place = int(clicked["points"][0]["x"]) - 1
    except (TypeError, KeyError, IndexError, ValueError, OverflowError):
        return no_update, no_update
    return place, "op"


def _add_callbacks(app: Dash, runs: Runs) -> None:
    answers, later = _Answers(runs), {"prevent_initial_call": True}
    begun = State("begun", "data")
    app.callback(
        Output("begun", "data"), Output("seen", "data"), Output("state", "children"), Output("state", "className"),
        Output("damage", "children"), Output("run", "options"), Output("run", "value"),
        Input("tick", "n_intervals"), Input("run", "value"), begun, State("seen", "data"), State("run", "options"),
    )(answers.look)  # fmt: skip
    app.callback(
        Output("content", "children"), Input("view", "value"), Input("op", "data"), Input("begun", "data"), **later
    )(answers.show)
    app.callback(
        Output({"live": ALL}, "figure"), Output({"grid": ALL}, "rowData"), Output({"text": ALL}, "children"),
        Input("seen", "data"), State({"live": ALL}, "id"), State({"grid": ALL}, "id"), State({"text": ALL}, "id"),
        **later,
    )(answers.update)  # fmt: skip
    app.callback(Output({"part": "trial"}, "children"), Input({"grid": "trials"}, "selectedRows"), begun, **later)(
        answers.trial
    )
    app.callback(
        Output({"part": "point"}, "children"),
        [Input({"live": "latency"}, "clickData"), Input({"live": "size"}, "clickData")],
        begun,
        **later,
    )(lambda one, two, begun: answers.point([one, two], begun))
    app.callback(
        Output({"grid": "ops"}, "rowData", allow_duplicate=True),
        Input({"part": "op-filter"}, "value"), Input({"part": "op-kind"}, "value"),
        Input({"part": "op-search"}, "value"), begun, **later,
    )(answers.ops)  # fmt: skip
    for source, read in (
        (Input({"grid": "ops"}, "cellClicked"), _row),
        (Input({"live": "weights"}, "clickData"), _bar),
        (Input({"live": "ops"}, "clickData"), _bar),
        (Input({"part": "op-choice"}, "value"), lambda place: (place, no_update)),
    ):
        outputs = Output("op", "data", allow_duplicate=True), Output("view", "value", allow_duplicate=True)
        app.callback(*outputs, source, **later)(read)
    app.callback(
        Output({"part": "graph"}, "elements"),
        Input({"part": "graph-depth"}, "value"), Input({"part": "graph-colour"}, "value"), Input("opened", "data"),
        begun, **later,
    )(answers.graph)  # fmt: skip
    app.callback(
        Output("op", "data", allow_duplicate=True), Output("view", "value", allow_duplicate=True),
        Output("opened", "data"), Input({"part": "graph"}, "tapNodeData"), State("opened", "data"), **later,
    )(answers.tapped)  # fmt: skip
    app.callback(Output({"part": "comparison"}, "children"), Input({"part": "compared"}, "value"))(answers.compared)
