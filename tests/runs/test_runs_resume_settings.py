"""A killed run resumes with the settings it was started with, given nothing but `resume=`."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from processes import ended, heard, run, started

# Rules, an absolute criterion that is hard to meet, another objective than by default, and all else that has a value.
SETTINGS = """
SETTINGS = {
    "absolute": 0.012,
    "objective": "size",
    "op_name_dict": {"layer.2/Gemm": "fp32"},
    "op_type_dict": {"Gemm": {"weight": {"granularity": ["per_tensor"]}}},
    "seed": 7,
    "threads": 1,
    "max_trials": 30,
    "timeout": 3600,
    **json.loads(sys.argv[2]),
}

def fit(closeness=Closeness(chain(8)), **settings):
    result = quaver.fit(chain(8), calib_dataloader=inputs(), eval_func=closeness, **settings)
    tell("result", summary(result), str(result.criterion), result.objective.name, result.model.sha256)
"""

WHOLE = SETTINGS + "fit(workspace=sys.argv[1], **SETTINGS)"

STOPS = (
    SETTINGS
    + """
closeness, calls = Closeness(chain(8)), []

def eval_func(model):
    calls.append(model)
    if len(calls) == int(sys.argv[3]):
        wait()
    return closeness(model)

fit(eval_func, workspace=sys.argv[1], **SETTINGS)
"""
)

RESUMED = SETTINGS + "fit(resume=sys.argv[1])"


@pytest.mark.parametrize(
    "choice",
    ['{"strategy": "basic"}', '{"strategy": "auto"}', '{"strategy": "bayesian", "strategy_options": {"batch": 2}}'],
)
def test_a_killed_run_resumed_with_nothing_but_its_folder_ends_as_the_undisturbed_one(
    choice: str, tmp_path: Path
) -> None:
    whole = run(WHOLE, tmp_path / "whole", choice)
    assert len(whole[0][1]["trials"]) >= 3
    for calls in (1, 3):  # the baseline, and the second trial
        folder = tmp_path / str(calls)
        with started(STOPS, folder, choice, calls) as process:
            assert heard(process) == ["ready"]
            process.kill()
            assert ended(process)[0] == -9
        assert run(RESUMED, folder, choice) == whole
        assert (folder / "best_model.onnx").read_bytes() == (tmp_path / "whole" / "best_model.onnx").read_bytes()
        kept, first = (yaml.safe_load((place / "quaver.yaml").read_text()) for place in (folder, tmp_path / "whole"))
        assert {**kept, "workspace": None, "resume": None} == {**first, "workspace": None}
