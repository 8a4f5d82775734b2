"""The page: its frame, and what happens when the user clicks or a run grows."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import plotly.graph_objects as go
from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update
from dash.development.base_component import Component

from quaver.engine.timing.objective import axes
from quaver.insights.assets import read_asset
from quaver.insights.data.op_rows import best_scores, most_sensitive
from quaver.insights.data.run_reader import RunState
from quaver.insights.data.summary import costs, state_phrase
from quaver.insights.data.text import name
from quaver.insights.figures.distributions import weights_figure
from quaver.insights.figures.ops import ops_figure, ranking_figure, steps_figure
from quaver.insights.figures.profile import costs_figure
from quaver.insights.figures.tradeoff import tradeoff_figure
from quaver.insights.figures.trials import matrix_figure, trials_figure
from quaver.insights.page.auth import guard
from quaver.insights.page.callback_requests import refuse_invalid_requests
from quaver.insights.page.runs import Runs, ViewContext
from quaver.insights.page.views import graph, op, ops, profile, summary, tradeoff, trials
from quaver.types import PlainDict

# Judgement: milliseconds between two readings of a run that may be growing.
POLL_MILLISECONDS = 1000

# The views by their key in the page's ids and styles: the label of the tab, and the function that draws it.
VIEWS: dict[str, tuple[str, Callable[[ViewContext], list[Component]]]] = {
    "verdict": ("Summary", summary.layout),
    "trials": ("Trials", trials.layout),
    "tradeoff": ("Trade-off", tradeoff.layout),
    "culprits": ("Sensitivity", ops.sensitivity_layout),
    "ops": ("Ops", ops.layout),
    "op": ("Op", op.layout),
    "graph": ("Graph", graph.layout),
    "profile": ("Profile", profile.layout),
    "compare": ("Compare", tradeoff.compare_layout),
}


def _tradeoff_drawer(objective: str) -> Callable[[ViewContext], go.Figure]:
    return lambda context: tradeoff_figure(context.data, objective)


# Figures that are redrawn when a run has grown.
LIVE: dict[str, Callable[[ViewContext], go.Figure]] = {
    "trials": lambda context: trials_figure(context.data),
    "matrix": lambda context: matrix_figure(context.data),
    "costs": lambda context: costs_figure(costs(context.data)),
    **{objective: _tradeoff_drawer(objective) for objective in axes()},
    "steps": lambda context: steps_figure(context.data, best_scores(context.data)),
    "ranking": lambda context: ranking_figure(most_sensitive(context.ops())),
    "ops": lambda context: ops_figure(context.ops()),
    "weights": lambda context: weights_figure(context.ops()),
}


def make_app(folders: Sequence[str | os.PathLike[str]], host: str, token: str) -> Dash:
    """Return the Dash app that shows all runs in these folders."""
    app = Dash(
        __name__,
        title="quaver insights",
        update_title="",
        serve_locally=True,
        suppress_callback_exceptions=True,
        index_string=_index(),
        assets_folder="no assets",
    )
    runs = Runs(folders)
    app.layout = lambda: _frame(runs)
    _add_callbacks(app, runs)
    guard(app.server, host, token, app.csp_hashes())
    refuse_invalid_requests(app)
    return app


def _index() -> str:
    """Return the HTML around the page, with its styles."""
    styles = read_asset("base.css") + read_asset("page.css")
    return read_asset("page.html").replace("/* styles */", styles)


def _frame(runs: Runs) -> html.Div:
    with runs.lock:
        keys = runs.scan()
        options = _options(runs, keys)
    tabs = [
        dcc.Tab(label=title, value=key, className="tab", selected_className="chosen")
        for key, (title, _) in VIEWS.items()
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
            dcc.Tabs(
                tabs, value="verdict", id="view", className="tabs", parent_className="tabs-frame", mobile_breakpoint=0
            ),
            html.Main(id="content"),
            dcc.Interval(id="tick", interval=POLL_MILLISECONDS),
            dcc.Store(id="begun"),
            dcc.Store(id="seen"),
            dcc.Store(id="op"),
            dcc.Store(id="opened", data=[]),
        ]
    )


def _options(runs: Runs, keys: Sequence[str]) -> list[dict[str, str]]:
    return [{"label": name(runs.description(key), 200), "value": key} for key in keys]


class _Answers:
    """The answers to the browser's requests. They only read; a browser can change nothing."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    def _context(self, key: str | None, place: int | None = None) -> ViewContext | None:
        data = self._runs.poll(key)
        if data is None or key is None:
            return None
        all_runs = {other: self._runs.label(other) for other in self._runs.scan()}
        return ViewContext(data, lambda: self._runs.ops(key, data), all_runs, place)

    def poll(
        self, ticks: object, key: str | None, run_state: object, version: object, options: object
    ) -> tuple[object, ...]:
        """Return what is new about the chosen run; mostly nothing."""
        with self._runs.lock:
            keys = self._runs.scan()
            key = key if key in keys else keys[0] if keys else None
            new_options = _options(self._runs, keys)
            data = self._runs.poll(key)
            new_version = None if data is None else [key, data.version]
            has_ended = data is not None and data.state is RunState.ENDED
            new_state = {"run": key, "ready": data is not None, "over": has_ended}
            changed = new_options if new_options != options else no_update
            if new_version == version and new_state == run_state:
                return no_update, no_update, no_update, no_update, no_update, changed, no_update
            if data is None:
                return new_state, new_version, self._runs.problem(key), "state", "", changed, key
            damage = data.snapshot.damage
            damage_text = f"The file is damaged: {damage}. The page shows the undamaged part." if damage else ""
            return (
                new_state if new_state != run_state else no_update,
                new_version,
                state_phrase(data),
                f"state {data.state}",
                name(damage_text, 600),
                changed,
                key,
            )

    def show(self, view: str, place: object, run_state: object) -> object:
        """Return a view of a run."""
        if ctx.triggered_id == "op" and view != "op":
            return no_update
        with self._runs.lock:
            key = _run_of(run_state)
            context = self._context(key, place if isinstance(place, int) else None)
            if context is None:
                return [html.P(name(self._runs.problem(key), 600))]
            if not isinstance(view, str) or view not in VIEWS:
                return no_update
            return html.Div(VIEWS[view][1](context), className=f"view {view}")

    def update(
        self, version: object, figures: list[object], grids: list[object], texts: list[object]
    ) -> tuple[list[object], list[object], list[object]]:
        """Return the figures, tables and texts on the screen in their current state."""
        with self._runs.lock:
            key = version[0] if isinstance(version, list) and version else None
            context = self._context(key if isinstance(key, str) else None)
            if context is None:
                return [no_update] * len(figures), [no_update] * len(grids), [no_update] * len(texts)
            redrawn: list[object] = []
            for identity in figures:
                draw = LIVE.get(_component_name(identity, "live"))
                redrawn.append(no_update if draw is None else draw(context))
            tables: list[object] = []
            for identity in grids:
                is_trials = _component_name(identity, "grid") == "trials"
                tables.append(trials.rows(context.data) if is_trials else no_update)
            headlines: list[object] = []
            for identity in texts:
                is_headline = _component_name(identity, "text") == "headline"
                headlines.append(summary.headline(context) if is_headline else no_update)
            return redrawn, tables, headlines

    def trial(self, selected: object, run_state: object) -> object:
        """Return the trial that was selected, or the difference of two."""
        with self._runs.lock:
            context = self._context(_run_of(run_state))
            rows = [row for row in selected if isinstance(row, dict)] if isinstance(selected, list) else []
            numbers = [row["number"] for row in rows if isinstance(row.get("number"), int)]
            return [] if context is None else trials.detail(context.data, numbers)

    def point(self, clicked: list[object], run_state: object) -> object:
        """Return how to get the model of the point that was clicked."""
        with self._runs.lock:
            context = self._context(_run_of(run_state))
            if len(ctx.triggered) == 1:
                chosen = ctx.triggered[0]["value"]
            else:
                chosen = next((click for click in clicked if click), None)
            number = None if chosen is None else _number(chosen)
            return no_update if context is None or number is None else tradeoff.point(context.data, number)

    def ops(self, filter_name: str, kind: str | None, text: str | None, run_state: object) -> object:
        """Return the ops that pass the filters."""
        with self._runs.lock:
            context = self._context(_run_of(run_state))
            searched = text if isinstance(text, str) else ""
            return no_update if context is None else ops.rows(context.ops(), filter_name, kind, searched)

    def graph(self, depth: str, colour: str, opened: object, run_state: object) -> object:
        """Return the graph, folded and coloured as chosen."""
        with self._runs.lock:
            context = self._context(_run_of(run_state))
            level = int(depth) if isinstance(depth, str) and depth.isdecimal() and len(depth) < 10 else None
            keys = [key for key in opened if isinstance(key, str)] if isinstance(opened, list) else []
            return no_update if context is None else graph.elements(context.ops(), level, keys, colour)

    def tapped(self, node: object, opened: object, run_state: object) -> tuple[object, object]:
        """Open a module, or show what an op is."""
        place = node.get("place") if isinstance(node, dict) else None
        if not isinstance(node, dict) or not isinstance(place, int):
            return no_update, no_update
        if place < 0:
            before = opened if isinstance(opened, list) else []
            return [], [*before, str(node.get("id"))]
        with self._runs.lock:
            context = self._context(_run_of(run_state))
            rows = [] if context is None else context.ops()
            return (graph.about_node(rows[place], place) if place < len(rows) else []), no_update

    def zoomed(self, fit: object, actual: object) -> tuple[object, object]:
        """Show the whole graph, or a part of it at its actual size."""
        if isinstance(ctx.triggered_id, dict) and ctx.triggered_id.get("part") == "graph-fit":
            return {"name": "preset", "fit": True, "padding": 20, "clicks": fit}, no_update
        return no_update, 1 + 1e-6 * (actual if isinstance(actual, int) else 0)  # the same zoom again would do nothing

    def compared(self, keys: object) -> object:
        """Return the chosen runs in one table and in the same figures."""
        with self._runs.lock:
            chosen = [key for key in keys if isinstance(key, str)] if isinstance(keys, list) else []
            runs = [self._runs.poll(key) for key in chosen]
            return tradeoff.comparison([data for data in runs if data is not None])


# What the browser sends about a click on a figure.
Clicked = PlainDict


def _run_of(run_state: object) -> str | None:
    """Return the key of the run that the page shows; None if the browser names none."""
    key = run_state.get("run") if isinstance(run_state, dict) else None
    return key if isinstance(key, str) else None


def _component_name(identity: object, kind: str) -> str:
    """Return the name of a component with a pattern id; empty if it has none."""
    name = identity.get(kind) if isinstance(identity, dict) else None
    return name if isinstance(name, str) else ""


def _number(clicked: Clicked) -> int | None:
    """Return the number of the trial whose point was clicked."""
    try:
        number = clicked["points"][0]["customdata"][0]
    except (TypeError, KeyError, IndexError):  # the browser may send anything
        return None
    return number if isinstance(number, int) else None


def _row(cell: object) -> tuple[object, object]:
    """Return the op whose row was clicked."""
    key = cell.get("rowId") if isinstance(cell, dict) else None
    if not isinstance(key, str) or not key.isdecimal() or len(key) > 9:
        return no_update, no_update
    return int(key), "op"


def _opened(clicks: list[object]) -> tuple[object, object]:
    """Return the op whose button was clicked."""
    identity = ctx.triggered_id
    place = identity.get("place") if isinstance(identity, dict) and any(clicks) else None
    return (place, "op") if isinstance(place, int) else (no_update, no_update)


def _bar(clicked: Clicked) -> tuple[object, object]:
    """Return the op whose mark was clicked: figures count ops from 1."""
    try:
        place = int(clicked["points"][0]["x"]) - 1
    except (TypeError, KeyError, IndexError, ValueError, OverflowError):
        return no_update, no_update
    return place, "op"


def _add_callbacks(app: Dash, runs: Runs) -> None:
    answers, later = _Answers(runs), {"prevent_initial_call": True}
    run_state = State("begun", "data")
    app.callback(
        Output("begun", "data"), Output("seen", "data"), Output("state", "children"), Output("state", "className"),
        Output("damage", "children"), Output("run", "options"), Output("run", "value"),
        Input("tick", "n_intervals"), Input("run", "value"), run_state, State("seen", "data"), State("run", "options"),
    )(answers.poll)  # fmt: skip
    app.callback(
        Output("content", "children"),
        Input("view", "value"),
        Input("op", "data"),
        Input("begun", "data"),
        **later,
    )(answers.show)
    app.callback(
        Output({"live": ALL}, "figure"), Output({"grid": ALL}, "rowData"), Output({"text": ALL}, "children"),
        Input("seen", "data"), State({"live": ALL}, "id"), State({"grid": ALL}, "id"), State({"text": ALL}, "id"),
        **later,
    )(answers.update)  # fmt: skip
    app.callback(Output({"part": "trial"}, "children"), Input({"grid": "trials"}, "selectedRows"), run_state, **later)(
        answers.trial
    )
    app.callback(
        Output({"part": "point"}, "children"),
        [Input({"live": objective}, "clickData") for objective in axes()],
        run_state,
        **later,
    )(lambda *clicks_and_state: answers.point(list(clicks_and_state[:-1]), clicks_and_state[-1]))
    app.callback(
        Output({"grid": "ops"}, "rowData", allow_duplicate=True),
        Input({"part": "op-filter"}, "value"), Input({"part": "op-kind"}, "value"),
        Input({"part": "op-search"}, "value"), run_state, **later,
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
        run_state, **later,
    )(answers.graph)  # fmt: skip
    app.callback(
        Output({"part": "graph-node"}, "children"), Output("opened", "data"),
        Input({"part": "graph"}, "tapNodeData"), State("opened", "data"), run_state, **later,
    )(answers.tapped)  # fmt: skip
    app.callback(
        Output({"part": "graph"}, "layout"), Output({"part": "graph"}, "zoom"),
        Input({"part": "graph-fit"}, "n_clicks"), Input({"part": "graph-actual"}, "n_clicks"), **later,
    )(answers.zoomed)  # fmt: skip
    app.callback(
        Output("op", "data", allow_duplicate=True), Output("view", "value", allow_duplicate=True),
        Input({"part": "graph-open", "place": ALL}, "n_clicks"), **later,
    )(_opened)  # fmt: skip
    app.callback(Output({"part": "comparison"}, "children"), Input({"part": "compared"}, "value"))(answers.compared)
