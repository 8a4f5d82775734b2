"""The data of the views, read from the folder of a run."""

from __future__ import annotations

import math
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

import quaver
from quaver.formatting import MISSING
from quaver.history import Header, History
from quaver.insights import FollowedRun, RunData, RunState
from quaver.insights.data import text as wording
from quaver.insights.data.best_model import profile_rows, totals
from quaver.insights.data.graph import default_depth, make_graph
from quaver.insights.data.op_rows import best_scores, largest_gain, most_sensitive, op_rows
from quaver.insights.data.summary import verdict
from quaver.ops import FLOAT, INT8, Op, OpConfig, QuantConfig
from quaver.processors import VERIFIED, Verification, this_processor
from quaver.trial import Trial, TrialState
from quaver.trial_lineage import LOOK_BACK, origins


@pytest.fixture(scope="module")
def data(demo: quaver.TuneResult) -> RunData:
    found = FollowedRun(demo.workspace).poll()
    assert found is not None
    return found


def test_the_trials_are_judged_as_the_run_judged_them(data: RunData, demo: quaver.TuneResult) -> None:
    assert [row.trial for row in data.rows] == list(demo.trials)
    assert data.best == demo.best and data.state is RunState.ENDED
    assert data.ended["reason"] == str(demo.reason)


def test_each_trial_lists_its_changes_from_its_parent(data: RunData) -> None:
    assert data.rows[0].origin is None
    for row in data.rows[1:]:
        assert row.origin is not None
        before, after = data.config(row.origin), row.trial.config
        assert before is not None
        changed = [name for name in after if after[name] != before[name]]
        assert row.changed == len(changed) == len(data.difference(row.origin, row.trial.number))
        assert row.quantized == len(after.quantized_ops) and row.quantized + row.fp32 == len(after)


def test_the_summary_holds_costs_and_commands(data: RunData, demo: quaver.TuneResult) -> None:
    said = verdict(data)
    assert said.kind == ("not met" if not demo.met else "warned" if demo.warnings else "met")
    assert said.warnings == demo.warnings
    assert {fact.label for fact in said.facts} >= {"fp32 score", "best score", "ops", "latency", "size", "evaluations"}
    assert {"eval_func", "building models", "calibrating"} <= set(said.costs)
    lines = {fact.label: fact.value for fact in said.commands}
    assert "--strategy mse_v2" in lines["repeat the run"]
    assert str(demo.workspace) in lines["rebuild the best model"]
    assert (
        eval(f"dict({lines['repeat the run in Python'].partition('eval_func=..., ')[2][:-1]})")["strategy"] == "mse_v2"
    )


def test_the_summary_names_the_processors_of_the_verdict(demo: quaver.TuneResult, tmp_path: Path) -> None:
    shutil.copytree(demo.workspace, tmp_path / "run")
    assert demo.best is not None
    verification = Verification("haswell", 64, 0.01, 0.0102, True, demo.best.model_hash)
    with History.resume(tmp_path / "run") as history:
        history.extend_note(VERIFIED, {"haswell": asdict(verification)})
    data = FollowedRun(tmp_path / "run").poll()
    assert data is not None
    facts = {fact.label: (fact.value, fact.note) for fact in verdict(data).facts}
    value, note = facts["measured on"]
    assert value == str(this_processor()) and "no int8 sum saturates on x86 processors without VNNI" in note
    assert facts["on another processor"] == ("haswell", str(verification))


def test_every_op_was_inspected(data: RunData) -> None:
    rows = op_rows(data)
    assert [row.op.name for row in rows] == [op.name for op in data.ops]
    convolutions = [row for row in rows if row.op.kind == "Conv"]
    for row in convolutions:
        weight = row.details.weight
        assert weight is not None and row.details.activation is not None
        assert weight.counts.sum() > 0 and len(weight.channel_low) > 1 and math.isfinite(weight.scale)
        # A scale may be up to twice as large so that no sum saturates without VNNI.
        assert 0.98 * weight.reach <= 127 * weight.scale <= 2.02 * weight.reach
        assert row.details.low <= row.details.high and row.local_error >= 0
    assert data.inspection.trial == data.best.number if data.best else False
    fallen = [row for row in rows if not row.choice.quantized]
    assert all(row.reason for row in fallen)


def test_an_outlier_in_the_weights_is_seen(data: RunData) -> None:
    seen = {row.op.name: row.details.weight for row in op_rows(data) if row.details.weight is not None}
    furthest = max(seen, key=lambda name: seen[name].reach)
    usual = sorted(weight.reach for weight in seen.values())[len(seen) // 2]
    assert "depthwise" in furthest and seen[furthest].reach > 50 * usual
    assert seen[furthest].reach > 50 * seen[furthest].median_reach


def test_the_graph_has_its_edges_and_conversions(data: RunData) -> None:
    rows = op_rows(data)
    graph = make_graph(rows)
    assert len(graph.nodes) == len(rows) and len(graph.edges) >= len(rows) - 1
    quantized = {f"op:{place}": row.choice.quantized for place, row in enumerate(rows)}
    assert all(edge.converts == (quantized[edge.source] != quantized[edge.target]) for edge in graph.edges)
    assert len({(node.x, node.y) for node in graph.nodes}) == len(rows)
    folded = make_graph(rows, 2)
    assert len(folded.nodes) < len(rows) and sum(len(node.rows) for node in folded.nodes) == len(rows)
    opened = make_graph(rows, 2, [folded.nodes[1].key])
    assert len(folded.nodes) < len(opened.nodes) < len(rows)
    assert default_depth(rows) is None


def test_the_profile_separates_conversions(data: RunData) -> None:
    rows = profile_rows(data)
    assert {"int8", "fp32"} <= {row.kind for row in rows} <= {"int8", "fp32", "conversion", "rest"}
    assert totals(rows, best=True)["int8"] > 0 and totals(rows, best=False)["conversion"] == 0


def test_sensitive_ops_are_ranked_and_the_largest_gain_is_reported(data: RunData) -> None:
    path = best_scores(data)
    assert [step.score for step in path] == sorted({step.score for step in path})
    worst = most_sensitive(op_rows(data))
    assert "depthwise" in worst[0].op.name
    assert "in fp32" in largest_gain(path) if len(path) > 1 else not largest_gain(path)


def test_a_growing_run_is_read_further_and_a_killed_one_is_recognized(demo: quaver.TuneResult, tmp_path: Path) -> None:
    whole = (demo.workspace / "history.snapshot").read_bytes()
    run = FollowedRun(tmp_path)
    assert run.poll() is None
    (tmp_path / "history.snapshot").write_bytes(whole[: len(whole) // 2])
    some = run.poll()
    assert some is not None and some.state is RunState.KILLED
    count, version = len(some.rows), some.version
    (tmp_path / "history.snapshot").write_bytes(whole)
    more = run.poll()
    assert more is not None and len(more.rows) >= count and more.version > version and more.state is RunState.ENDED
    again = run.poll()
    assert again is more and again.version == more.version


def test_a_damaged_file_shows_its_undamaged_part(demo: quaver.TuneResult, tmp_path: Path) -> None:
    content = bytearray((demo.workspace / "history.snapshot").read_bytes())
    content[len(content) // 3] ^= 0xFF
    (tmp_path / "history.snapshot").write_bytes(content)
    data = FollowedRun(tmp_path).poll()
    assert data is not None and data.snapshot.damage
    assert verdict(data).headline


def test_malformed_notes_are_ignored(demo: quaver.TuneResult, tmp_path: Path) -> None:
    shutil.copy(demo.workspace / "history.snapshot", tmp_path)
    wrong = {
        "inside.about": ["no dict"],
        "inside.ops": {"/classifier/Gemm": {"before": ["../x", 3], "limits": [1.0, "x"], "weight": {"counts": b"123"},
                                            "activation": {"low": float("nan"), "high": 1.0, "counts": bytes(8)}},
                       "unknown": {}},
        "inside.causes": [3, {"op": 4}, {"op": "/classifier/Gemm", "sentence": 5}],
        "inside.profile": {"rows": [[1, 2], ["x", True, "k", float("inf"), "k", 1.0]], "fp32": {"p50": "x"}},
        "probe.sensitivity": {"x": "y"}, "probe.time_model": {"x": [1]}, "probe.latency": [3],
        "run.ended": {"run": 1, "stages": {"x": "y"}, "reason": 3, "model": 4}, "unquantizable": [[1]],
    }  # fmt: skip
    with quaver.history.History.resume(tmp_path) as history:
        for name, note in wrong.items():
            history.note(name, note)
    data = FollowedRun(tmp_path).poll()
    assert data is not None and data.inspection.trial is None
    assert verdict(data).headline and len(op_rows(data)) == len(data.ops)
    assert profile_rows(data) == [] and make_graph(op_rows(data)).edges == ()


def test_names_are_bounded_and_escaped() -> None:
    assert wording.name("a" * 10_000) == "a" * 21 + "…" + "a" * 42
    assert wording.name("x\x1b[31m\n") == "x\\x1b[31m\\n"
    assert wording.figure_text("<a href=x>&") == "&lt;a href=x&gt;&amp;"
    assert [wording.duration(one) for one in (0, 2e-6, 0.5, 90, 600)] == ["0 ms", "2 µs", "500 ms", "90 s", "10 min"]
    assert wording.duration(math.nan) == MISSING


def test_the_page_and_the_command_line_agree_on_parents_of_trials(tmp_path: Path) -> None:
    """Also far back, and where trials of several workers end out of order."""
    random = np.random.default_rng(0)
    names = [f"op{number}" for number in range(12)]
    choice = OpConfig(INT8)
    ops = tuple(Op(name, "Gemm", (name,), (choice, FLOAT)) for name in names)
    default_config = QuantConfig(dict.fromkeys(names, choice))
    numbers = [int(number) for number in random.permutation(np.arange(1, 401))]  # as far out of order as can be
    with History.create(tmp_path / "history.snapshot") as history:
        history.begin(Header("f" * 64, "onnxrt", ops, {}, "now"))
        history.start_run({"relative": 0.01}, {})
        history.append(Trial(0, default_config.fallback(*names), TrialState.COMPLETE, 0.9))
        run, parts = FollowedRun(tmp_path), 4
        for part in range(parts):
            for number in numbers[part::parts]:
                fallen = [name for name in names if random.random() < 0.4]
                history.append(Trial(number, default_config.fallback(*fallen), TrialState.COMPLETE, 0.5))
            data = run.poll()
            assert data is not None
            expected = origins(data.judge.trials)
            assert {row.trial.number: row.origin for row in data.rows} == {
                number: origin.parent for number, origin in expected.items()
            }
            assert all(row.changed == len(expected[row.trial.number].changes) for row in data.rows)
    distances = [number - (origin.parent or 0) for number, origin in expected.items()]
    assert 24 < max(distances) <= LOOK_BACK  # the page once looked no further back than 24
