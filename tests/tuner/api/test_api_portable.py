"""The setting `portable`: recorded with the run, kept when it is resumed, and built in when a trial is recovered."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from fake import FakeAdapter, FakeFloat, quality

import quaver
from quaver import Config, SettingsError, metrics
from quaver.adapters import load_unmodified, registry
from quaver.adapters.litert.adapter import LiteRTAdapter
from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.adapters.options import resolve_portable
from quaver.api.check import _record
from quaver.api.check_result import ProcessorVerdict, Verdict
from quaver.api.config.resume import resumed_config
from quaver.demo.data import digits
from quaver.processors import VERIFIED, noted_portability, this_processor

MODEL = Path(__file__).parents[2] / "data" / "digits_resnet.onnx"


def tuned(workspace: Path, **settings: Any) -> quaver.TuneResult:
    x, _, images, labels = digits()
    return quaver.fit(
        MODEL,
        calib_dataloader=x[:32],
        eval_func=metrics.top1(images[:100], labels[:100]),
        workspace=workspace,
        objective="int8_ops",
        report=False,
        verbose=0,
        **settings,
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[bool | None, quaver.TuneResult]:
    folder = tmp_path_factory.mktemp("runs")
    return {portable: tuned(folder / str(portable), portable=portable) for portable in (True, False, None)}


def test_a_portable_run_builds_other_bytes_and_is_the_default(runs: dict[bool | None, quaver.TuneResult]) -> None:
    hashes = {portable: run.best.model_hash for portable, run in runs.items() if run.best is not None}
    assert hashes[True] != hashes[False]
    assert hashes[None] == hashes[True]


@pytest.mark.parametrize("portable", [True, False])
def test_a_trial_is_rebuilt_as_its_run_built_it(portable: bool, runs: dict[bool | None, quaver.TuneResult]) -> None:
    run = runs[portable]
    assert run.best is not None
    assert quaver.read_snapshot(run.workspace).run.settings["portable"] is portable
    assert quaver.recover(MODEL, run.workspace, run.best.number).sha256 == run.best.model_hash


def test_a_resumed_run_goes_on_as_it_was_and_cannot_change(runs: dict[bool | None, quaver.TuneResult]) -> None:
    for portable in (True, False):
        run = runs[portable]
        again = tuned_again(run.workspace)
        assert [trial.model_hash for trial in again.trials] == [trial.model_hash for trial in run.trials]
        with pytest.raises(SettingsError, match=rf"`portable` is {not portable}, but {portable} in the run"):
            tuned_again(run.workspace, portable=not portable)


def tuned_again(workspace: Path, **settings: Any) -> quaver.TuneResult:
    images, labels = digits()[2:]
    return quaver.fit(
        MODEL, eval_func=metrics.top1(images[:100], labels[:100]), resume=workspace, report=False, verbose=0, **settings
    )


def test_a_run_of_a_version_without_the_setting_is_not_portable() -> None:
    earlier = {name: value for name, value in Config().to_dict().items() if name != "portable"}
    config, changes = resumed_config({"resume": "there"}, earlier)
    assert config.portable is False and changes == []
    with pytest.raises(SettingsError, match="`portable` is True, but False in the run that is resumed"):
        resumed_config({"resume": "there", "portable": True}, earlier)


def test_workers_build_the_same_models(tmp_path: Path, runs: dict[bool | None, quaver.TuneResult]) -> None:
    result = tuned(tmp_path / "run", portable=True, isolate=True)
    assert result.best is not None and runs[True].best is not None
    assert result.best.model_hash == runs[True].best.model_hash


def test_an_adapter_that_cannot_promise_it_refuses_it_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry._registered, "fake", FakeAdapter)
    model = FakeFloat({"a": 0.1})
    with pytest.raises(SettingsError, match=r"fake cannot promise it.*Leave `portable` out"):
        quaver.fit(model, eval_func=quality, calib_dataloader=[], workspace=tmp_path, portable=True)


def test_each_adapter_says_what_portable_means_there() -> None:
    assert [resolve_portable(OnnxAdapter, wanted) for wanted in (None, True, False)] == [True, True, False]
    assert [resolve_portable(LiteRTAdapter, wanted) for wanted in (None, True)] == [True, True]
    assert resolve_portable(FakeAdapter, None) is False


@pytest.mark.parametrize("value", ["yes", 1, 0, "haswell"])
def test_only_true_false_and_none_are_taken(value: Any) -> None:
    with pytest.raises(SettingsError, match="`portable` must be True or False, not"):
        Config(portable=value)


def test_a_result_says_where_it_was_measured_and_where_it_holds(runs: dict[bool | None, quaver.TuneResult]) -> None:
    portable, other = runs[True].portability, runs[False].portability
    assert portable is not None and other is not None
    assert (portable.promise, other.promise) == ("bounded", "")
    assert portable.measured_on == other.measured_on == this_processor()
    assert other.coarsened is None and portable.coarsened is not None
    coarsened = portable.coarsened
    assert 0 < coarsened.coarser_ops <= coarsened.ops == 12  # the convolutions and the product of the network
    assert 0 < coarsened.coarser_channels <= coarsened.channels
    assert str(runs[True]).splitlines()[-1] == str(portable)
    noted = noted_portability(quaver.read_snapshot(runs[True].workspace).notes)
    assert noted == portable


def test_what_is_verified_of_the_best_model_is_noted_in_its_run(runs: dict[bool | None, quaver.TuneResult]) -> None:
    run = runs[None]
    assert run.best is not None and run.model_path is not None and run.model is not None
    processor = ProcessorVerdict(Verdict.MET, "haswell", "AVX2", 8, 0.01, 0.01, 1.0, 1.0, True, ())
    _record(run.model_path, load_unmodified(str(run.model_path)), processor)
    noted = noted_portability(quaver.read_snapshot(run.workspace).notes, run.best.model_hash)
    assert noted is not None and [one.cpu for one in noted.verified] == ["haswell"]
    again = tuned_again(run.workspace)
    assert again.portability == noted and "verified on haswell" in str(again)


def test_another_model_in_the_same_folder_is_not_taken_for_it(
    tmp_path: Path, runs: dict[bool | None, quaver.TuneResult]
) -> None:
    shutil.copy(runs[True].history_path, tmp_path / "history.snapshot")
    shutil.copy(MODEL, tmp_path / "other.onnx")
    processor = ProcessorVerdict(Verdict.MET, "haswell", "AVX2", 8, 0.01, 0.01, 1.0, 1.0, True, ())
    _record(tmp_path / "other.onnx", load_unmodified(str(tmp_path / "other.onnx")), processor)
    assert VERIFIED not in quaver.read_snapshot(tmp_path).notes
