"""A runtime that aborts the process while something is measured costs one candidate, not the run. Real processes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from processes import command, environment

import quaver

# The op that the adapter aborts on when it is quantized.
FATAL = "layer.2/Gemm"

# Tunes with an adapter that aborts, in the folder, calls and settings given. It reports the result or the error.
SCRIPT = """
import aborting

folder, settings = sys.argv[1], json.loads(sys.argv[2])

def user_objective(model):
    aborting.die("objective")
    return float(model.size)

closeness = Closeness(chain())

def eval_func(model):
    aborting.die("baseline")
    return closeness(model)

if settings.pop("user_objective", False):
    settings["objective"] = user_objective
settings = {"strategy": "auto", "absolute": None, "relative": 0.05, "objective": "latency", **settings}
try:
    result = tune(folder, eval_func, timing_cache=False, verbose=0, **settings)
except quaver.QuaverError as error:
    tell("error", type(error).__name__, str(error))
else:
    best = result.best
    tell("result", {"met": result.met, "fp32": [] if best is None else list(best.config.fp32_ops),
                    "skipped": list(result.skipped_measurements), "text": str(result),
                    "failed": [trial.error for trial in result.trials if trial.failed],
                    "saved": result.model_path is not None})
"""
ALL = "rebuild watch local_errors op_seconds"
ABORTED = -6


def attempt(folder: Path, calls: str, **settings: Any) -> tuple[int, list[Any] | None, str]:
    """Run or resume in a process of its own: its exit code, what it reported, and its stderr."""
    done = subprocess.run(
        command(SCRIPT, folder, json.dumps(settings), before=("bash", "-c", 'ulimit -c 0; exec "$@"', "-")),
        env=environment(QUAVER_TEST_ABORTS=calls, QUAVER_TEST_DEATHS=f"{folder}.deaths"),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    lines = done.stdout.splitlines()
    return done.returncode, json.loads(lines[-1]) if lines else None, done.stderr


def deaths(folder: Path) -> list[str]:
    """Return the calls in which a process died, in order."""
    journal = Path(f"{folder}.deaths")
    return [line.split()[0] for line in journal.read_text().splitlines()] if journal.exists() else []


def check_good(told: list[Any] | None) -> dict[str, Any]:
    """Check that a run found a model that leaves out the fatal op, and said what it skipped."""
    assert told is not None and told[0] == "result", told
    result: dict[str, Any] = told[1]
    assert result["met"] and FATAL in result["fp32"]
    assert result["skipped"] and all("of a configuration" in what for what in result["skipped"])
    assert "ended the process every time, so these candidates were skipped" in result["text"]
    return result


def test_a_measurement_that_aborts_ends_the_process_once_and_a_resumed_run_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    code, told, errors = attempt(folder, ALL)
    assert (code, told) == (ABORTED, None), errors
    assert deaths(folder) == ["op_seconds"] and quaver.read_snapshot(folder).baseline is not None
    code, told, errors = attempt(folder, ALL)
    assert code == 0, errors
    result = check_good(told)
    assert f"the output error of a configuration ({FATAL}: int8" in " ".join(result["skipped"])
    assert f"ended the process 2 times while measuring {result['skipped'][0]}" in errors
    died = deaths(folder)
    assert len(died) == 2 * len(result["skipped"])  # each candidate cost two processes
    assert len(result["skipped"]) == 2  # the default configuration, and the op alone: no other one with it is tried
    code, told, errors = attempt(folder, ALL)
    assert code == 0 and check_good(told)["failed"] == result["failed"]
    assert deaths(folder) == died  # nothing that died is tried again


def test_with_isolate_no_measurement_ends_the_run(tmp_path: Path) -> None:
    code, told, errors = attempt(tmp_path / "run", ALL, isolate=True)
    assert code == 0, errors
    check_good(told)


def test_with_workers_a_configuration_that_kills_two_of_them_counts_as_infinitely_wrong(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    code, told, errors = attempt(folder, "rebuild", n_jobs=2, objective="size")
    assert code == 0, errors
    result = check_good(told)
    notes = quaver.read_snapshot(folder).notes
    assert float("inf") in notes["probe.output_error.parts"].values()
    assert list(notes["probe.died"].values()) == result["skipped"] and set(deaths(folder)) == {"rebuild"}
    assert FATAL in "".join(notes["probe.fatal_ops"])


def test_a_call_that_aborts_by_itself_costs_no_configuration(tmp_path: Path) -> None:
    """Models that run, but cannot be profiled, are still tuned, and no op is kept in fp32 for it."""
    folder = tmp_path / "run"
    assert attempt(folder, "op_seconds")[0] == ABORTED
    code, told, errors = attempt(folder, "op_seconds")
    assert code == 0 and told is not None, errors
    assert told[1]["met"] and not told[1]["failed"] and told[1]["skipped"]
    assert "probe.fatal_ops" not in quaver.read_snapshot(folder).notes


def test_looking_into_the_best_model_ends_the_process_twice_at_most(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert [attempt(folder, "look", report=True)[0] for _ in range(2)] == [ABORTED, ABORTED]
    code, told, errors = attempt(folder, "look", report=True)
    assert code == 0 and told is not None and told[1]["met"] and told[1]["saved"], errors
    assert "ended 2 times while looking into trial" in errors and len(deaths(folder)) == 2


def test_an_objective_that_aborts_ends_the_process_twice_for_a_trial_at_most(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    codes = [attempt(folder, "objective", user_objective=True)[0] for _ in range(3)]
    assert codes == [ABORTED, ABORTED, 0]
    assert quaver.read_snapshot(folder).trials[0].measured == {}


def test_a_baseline_that_aborts_is_refused_after_three_times_and_isolate_says_how_it_ends(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert [attempt(folder, "baseline")[0] for _ in range(3)] == [ABORTED] * 3
    code, told, errors = attempt(folder, "baseline")
    assert code == 0 and told is not None and told[:2] == ["error", "EvaluationError"], errors
    assert "ended 3 times while the fp32 model was built or evaluated" in told[2] and "isolate=True" in told[2]
    code, told, _ = attempt(folder, "baseline", isolate=True)
    assert told is not None and "SIGABRT" in told[2]
    code, told, errors = attempt(folder, "", isolate=True)
    assert code == 0 and told is not None and told[1]["met"], errors
