"""What cannot be quantized is named with its share of the time, wherever a result is shown; a converted opset, too."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from networks import Closeness, chain, inputs
from onnx import TensorProto, helper, numpy_helper

import quaver
from quaver.adapters import AdapterOptions, load_model
from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.command import main
from quaver.engine.events import ModelConverted
from quaver.engine.run import run
from quaver.engine.run import scheduling as clock

RNG = np.random.default_rng(7)
STEPS, WIDE, HIDDEN = 24, 16, 96
SAMPLES = [RNG.standard_normal((STEPS, 1, WIDE)).astype(np.float32) for _ in range(4)]


def constant(name: str, *shape: int) -> TensorProto:
    values = np.random.default_rng(len(name)).standard_normal(shape)
    return numpy_helper.from_array((0.2 * values).astype(np.float32), name)


def model(nodes: list[Any], constants: list[TensorProto], opset: int = 17) -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [STEPS, 1, WIDE])]
    ends.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], constants)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def recurrent() -> onnx.ModelProto:
    """Two MatMuls that run in int8, and a GRU between them that takes nearly all of the time."""
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["a"], "before"),
        helper.make_node("GRU", ["a", "W", "R"], ["b"], "memory", hidden_size=HIDDEN),
        helper.make_node("MatMul", ["b", "last"], ["z"], "after"),
    ]
    constants = [
        constant("first", WIDE, WIDE), constant("W", 1, 3 * HIDDEN, WIDE), constant("R", 1, 3 * HIDDEN, HIDDEN),
        constant("last", HIDDEN, 4),
    ]  # fmt: skip
    return model(nodes, constants)


def branching() -> onnx.ModelProto:
    """An If with a MatMul in one of its bodies, a node of another domain, and what only moves values about."""
    node, value = helper.make_node, helper.make_tensor_value_info("t", TensorProto.FLOAT, None)
    heavy = helper.make_graph([node("MatMul", ["c", "big"], ["t"], "before")], "then", [], [value])
    light = helper.make_graph([node("MatMul", ["c", "big"], ["t"], "light")], "else", [], [value])
    nodes = [
        node("MatMul", ["x", "first"], ["a"], "before"),
        node("Gelu", ["a"], ["b"], "gelu", domain="com.microsoft"),
        node("Transpose", ["b"], ["c"], "turn", perm=[1, 0, 2]),
        node("ReduceSum", ["x"], ["sum"], "sum", keepdims=0),
        node("Greater", ["sum", "never"], ["is"], "greater"),
        node("If", ["is"], ["d"], "branch", then_branch=heavy, else_branch=light),
        node("MatMul", ["d", "last"], ["z"], "after"),
    ]  # fmt: skip
    constants = [
        constant("first", WIDE, WIDE), constant("big", WIDE, 512), constant("last", 512, 4),
        numpy_helper.from_array(np.float32(-1e9), "never"),
    ]  # fmt: skip
    return model(nodes, constants)


class Near:
    """An `eval_func`: 1 minus the relative error at the output."""

    def __init__(self, net: onnx.ModelProto) -> None:
        session = ort.InferenceSession(net.SerializeToString(), providers=["CPUExecutionProvider"])
        self._expected = [session.run(None, {"x": sample})[0] for sample in SAMPLES]

    def __call__(self, built: quaver.Model) -> float:
        pairs = zip(SAMPLES, self._expected, strict=True)
        return 1 - float(np.mean([np.abs(built(x) - y).mean() / np.abs(y).mean() for x, y in pairs]))


def fit(net: onnx.ModelProto, folder: Path, **more: Any) -> quaver.TuneResult:
    settings = {"calib_dataloader": SAMPLES, "absolute": 0.3, "workspace": folder, "strategy": "basic", **more}
    return quaver.fit(net, eval_func=Near(net), **settings)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> quaver.TuneResult:
    return fit(recurrent(), tmp_path_factory.mktemp("gru") / "w")


def test_a_gru_is_not_hidden_behind_int8_ops(tuned: quaver.TuneResult, capsys: pytest.CaptureFixture[str]) -> None:
    assert tuned.best is not None and len(tuned.best.config.int8_ops) == 2 and not tuned.best.config.fp32_ops
    (found,) = tuned.unquantizable
    assert (found.kind, found.count) == ("GRU", 1) and found.share is not None and 0.3 < found.share < 1
    line = f"GRU (1) cannot be quantized: {100 * found.share:.0f} % of the fp32 time"
    assert line in str(tuned).splitlines() and line in tuned._repr_html_()
    for words in (["history", str(tuned.workspace)], ["show", str(tuned.workspace), "1"]):
        assert main.main(words) == 0
        assert line in capsys.readouterr().out.splitlines()
        assert main.main([*words, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["unquantizable"] == [{"kind": "GRU", "count": 1, "share": found.share}]
        assert told["conversions"] == []


def test_a_resumed_run_takes_the_share_from_the_history(
    tuned: quaver.TuneResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(self: Any, timed: bool = False) -> Any:
        pytest.fail("it was measured before")

    monkeypatch.setattr(OnnxAdapter, "unquantizable", asked)
    again = fit(recurrent(), tuned.workspace, workspace=None, resume=tuned.workspace)
    assert again.unquantizable == tuned.unquantizable


def test_without_samples_there_are_names_and_with_them_the_shares_follow(tmp_path: Path) -> None:
    net = recurrent()
    with quaver.open_run(net, calib_dataloader=SAMPLES, absolute=0.3, strategy="basic", workspace=tmp_path) as begun:
        pending = begun.ask()
        assert pending is not None
        begun.tell(pending, 1.0)
    named = quaver.fit(net, eval_func=Near(net), resume=tmp_path)
    assert named.unquantizable == (quaver.Unquantizable("GRU", 1, None),)
    assert "GRU (1) cannot be quantized" in str(named).splitlines()
    timed = quaver.fit(net, calib_dataloader=SAMPLES, eval_func=Near(net), resume=tmp_path)
    assert timed.unquantizable[0].share is not None


def test_a_run_that_is_out_of_time_names_and_does_not_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    for module in (run, clock):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    net = recurrent()
    near = Near(net)

    def slow(built: quaver.Model) -> float:
        now[0] += 60.0
        return near(built)

    result = quaver.fit(
        net, calib_dataloader=SAMPLES, eval_func=slow, timeout=100, strategy="basic", absolute=0.3, workspace=tmp_path
    )
    assert result.unquantizable == (quaver.Unquantizable("GRU", 1, None),)


def test_bodies_and_nodes_of_other_domains_are_named_and_what_moves_values_is_not() -> None:
    adapter = load_model(branching(), AdapterOptions(threads=1, optimise_float=False))
    adapter.calibrate(SAMPLES)
    counted = {one.kind: one.count for one in adapter.unquantizable()}
    assert counted == {"com.microsoft:Gelu": 1, "ReduceSum": 1, "Greater": 1, "If": 1}
    shares = {one.kind: one.share for one in adapter.unquantizable(timed=True)}
    assert shares.keys() == counted.keys()
    # The MatMul in the body is called as one outside, and counts once, as a part of the If.
    assert all(share is not None and 0 <= share < 1 for share in shares.values())
    assert sum(share or 0.0 for share in shares.values()) < 1 and (shares["If"] or 0.0) > 0
    adapter.close()


def test_a_model_all_of_whose_nodes_can_be_quantized_says_nothing(tmp_path: Path) -> None:
    net = chain(2)
    result = quaver.fit(
        net, calib_dataloader=inputs(), eval_func=Closeness(net), strategy="basic", absolute=0.5, workspace=tmp_path
    )
    assert result.unquantizable == () and "cannot be quantized" not in str(result)
    assert "unquantizable" not in quaver.read_snapshot(tmp_path).notes


def test_a_converted_opset_is_said_with_both_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = chain(2)
    net.opset_import[0].version = 11
    seen: list[Any] = []
    result = quaver.fit(
        net, calib_dataloader=inputs(), eval_func=Closeness(net), strategy="basic", absolute=0.5, workspace=tmp_path,
        observer=seen.append,
    )  # fmt: skip
    line = "the model was converted from opset 11 to 17"
    assert result.conversions == ("opset 11 to 17",) and line in str(result).splitlines()
    assert [str(event) for event in seen if isinstance(event, ModelConverted)] == [line]
    assert line in (tmp_path / "quaver.log").read_text(encoding="utf-8")
    for words in (["history", str(tmp_path)], ["show", str(tmp_path), "1"]):
        assert main.main(words) == 0
        assert line in capsys.readouterr().out.splitlines()
    assert main.main(["history", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["conversions"] == ["opset 11 to 17"]


def test_a_model_that_is_taken_as_it_is_was_not_converted(tuned: quaver.TuneResult) -> None:
    assert tuned.conversions == () and "converted" not in str(tuned)


def test_the_latency_comes_in_milliseconds_with_spread_batch_and_threads(
    tuned: quaver.TuneResult, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tuned.best is not None
    measured, fp32 = tuned.best.measured, tuned.fp32_measured
    assert measured.keys() == {"latency", "latency_ms", "latency_spread"}
    assert fp32["threads"] == 1 and fp32["batch"] == STEPS and fp32["latency_ms"] > 0
    last = next(
        line for line in str(tuned).splitlines() if line.startswith(f"{measured['latency']:.2f}x fp32 latency (")
    )
    assert f", batch {STEPS}, 1 thread)" in last
    assert main.main(["show", str(tuned.workspace), "1"]) == 0
    assert last in capsys.readouterr().out.splitlines()
    assert main.main(["show", str(tuned.workspace), "0"]) == 0
    assert "latency " in capsys.readouterr().out
    table = tuned.to_dataframe()
    assert {"latency", "latency_ms", "latency_spread"} <= set(table.columns)


def test_latency_is_measured_on_the_threads_of_deployment(tmp_path: Path) -> None:
    result = fit(recurrent(), tmp_path, threads=2)
    assert result.fp32_measured["threads"] == 2 and "2 threads" in str(result)
