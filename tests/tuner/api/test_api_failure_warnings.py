"""What a result warns of: trials that all failed, measurements that were skipped, scores that depend on the batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from networks import Closeness, chain, inputs

import quaver
from quaver.api.result_warnings import (
    MAX_ERROR,
    warn_of_batch_dependence,
    warn_of_failed_trials,
    warn_of_skipped_measurements,
)
from quaver.ops import FLOAT, INT8, OpConfig, QuantConfig
from quaver.trial import Trial, TrialState

STATIC, DYNAMIC = OpConfig(INT8), OpConfig(INT8, mode="dynamic")


def trial(number: int, pick: OpConfig, error: str | None = None) -> Trial:
    state = TrialState.COMPLETE if error is None else TrialState.FAILED
    return Trial(number, QuantConfig({"a": pick, "b": FLOAT}), state, None if error else 0.5, error=error)


def test_trials_that_all_failed_are_named_with_the_first_error() -> None:
    failed = [trial(1, STATIC, "Traceback ...\nValueError: no such node"), trial(2, STATIC, "later")]
    assert warn_of_failed_trials(failed) == (
        "all 2 quantized trials failed, so no quantized model has a score. The first error, in trial 1: "
        "ValueError: no such node"
    )
    assert str(warn_of_failed_trials(failed[:1])).startswith("the only quantized trial failed")
    long = warn_of_failed_trials([trial(1, STATIC, "x" * 10 * MAX_ERROR)])
    assert long is not None and len(long) < MAX_ERROR + 200
    assert "no reason is recorded" in str(warn_of_failed_trials([trial(1, STATIC, " ")]))


def test_one_quantized_trial_with_a_score_is_enough() -> None:
    assert warn_of_failed_trials([trial(1, STATIC, "oh"), trial(2, STATIC)]) is None
    assert warn_of_failed_trials([]) is None
    assert warn_of_failed_trials([trial(1, FLOAT, "oh")]) is None


def test_skipped_measurements_are_listed_up_to_three() -> None:
    assert warn_of_skipped_measurements(()) is None
    one = warn_of_skipped_measurements(["the speed of a configuration (a: int8)"])
    assert one is not None and one.startswith("1 measurement ended") and one.endswith("(a: int8)")
    many = warn_of_skipped_measurements([f"m{index}" for index in range(5)])
    assert many is not None and many.endswith("m0; m1; m2; and 2 more")


def test_a_best_trial_without_dynamic_ops_has_no_such_warning() -> None:
    assert warn_of_batch_dependence(None) is None
    assert warn_of_batch_dependence(trial(1, STATIC)) is None
    assert str(warn_of_batch_dependence(trial(1, DYNAMIC))).startswith("1 op takes its range from each batch")


def test_a_result_with_dynamic_ops_says_that_its_score_depends_on_the_batch_and_it_does(tmp_path: Path) -> None:
    model = chain(3)
    rules = {".*": {"activation": {"mode": ["dynamic"]}}}
    result = quaver.fit(
        model, calib_dataloader=inputs(), eval_func=Closeness(model), op_name_dict=rules, relative=0.5,
        allow_any_loss=True, objective="int8_ops", threads=1, report=False, verbose=0, workspace=tmp_path / "run",
    )  # fmt: skip
    assert result.met and result.model is not None
    assert {pick.mode for pick in result.best.config.values() if pick.quantized} == {"dynamic"}  # type: ignore[union-attr]
    assert "ops take their ranges from each batch as the model runs (dynamic mode), so outputs and score" in str(result)
    samples = inputs(8)
    samples[0] *= 100  # one large sample makes the steps of all others coarser
    together, alone = result.model(samples)[1:], np.concatenate([result.model(row[None]) for row in samples[1:]])
    assert not np.allclose(together, alone, rtol=1e-3)


def test_a_run_whose_quantized_trials_all_fail_warns_once(tmp_path: Path) -> None:
    model, closeness, count = chain(2), Closeness(chain(2)), 0

    def eval_func(built: quaver.adapters.Model) -> float:
        nonlocal count
        count += 1
        if count > 1:
            raise LookupError("no node of that name")
        return closeness(built)

    with pytest.warns(UserWarning, match="failed, so no quantized model has a score.*LookupError: no node") as raised:
        result = quaver.fit(
            model, calib_dataloader=inputs(), eval_func=eval_func, strategy="basic", objective="size", threads=1,
            report=False, verbose=0, workspace=tmp_path / "run",
        )  # fmt: skip
    assert sum("no quantized model" in str(one.message) for one in raised) == 1
    assert raised[0].filename == __file__
    assert "WARNING: all 3 quantized trials failed" in str(result)
