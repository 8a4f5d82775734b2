"""An objective is added in one place: its class, once registered, is known to fit, the command line and the figures."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

import quaver
from quaver import SettingsError, Trial
from quaver import objective_traits as vocabulary
from quaver.api.config.config import Config
from quaver.command import flags
from quaver.command.main import main
from quaver.demo.data import Accuracy, digits
from quaver.demo.run import MODEL, RULES
from quaver.engine.scoring.judge import judge_snapshot
from quaver.engine.timing.objective import OBJECTIVES, Axis, Objective, quoted_names, register_objective
from quaver.objective_traits import ObjectiveTraits
from quaver.strategies.basic import Basic

NAME = "fewest_int8_ops"


class FewestInt8Ops(Objective):
    """The opposite of the registered `int8_ops`: no strategy, figure or flag was written for it."""

    name = NAME
    traits = ObjectiveTraits(rewards_small_files=True)
    axis = Axis("quantized ops", lambda trial: float(trial.config.quantized_count))

    def value(self, trial: Trial) -> float:
        return trial.config.quantized_count


@pytest.fixture
def registered() -> Iterator[None]:
    objectives, traits = dict(OBJECTIVES), dict(vocabulary._traits)
    register_objective(FewestInt8Ops)
    yield
    for registry, before in ((OBJECTIVES, objectives), (vocabulary._traits, traits)):
        registry.clear()
        registry.update(before)  # type: ignore[arg-type]


@pytest.fixture
def result(registered: None, tmp_path: Path) -> quaver.TuneResult:
    train, _, images, labels = digits()
    return quaver.fit(
        MODEL, calib_dataloader=train[:64], eval_func=Accuracy(images, labels), objective=NAME, op_type_dict=RULES,
        strategy="random", relative=0.2, timeout=1e6, max_trials=8, threads=1, workspace=tmp_path, verbose=0,
    )  # fmt: skip


def test_fit_chooses_by_a_registered_objective_and_records_it(result: quaver.TuneResult) -> None:
    met = [trial for trial in result.trials if trial.met]
    assert result.best is not None and len({trial.config.quantized_count for trial in met}) > 1
    assert result.best.config.quantized_count == min(trial.config.quantized_count for trial in met)
    snapshot = quaver.read_snapshot(result.history_path)
    assert snapshot.run.settings["objective"] == NAME
    assert type(judge_snapshot(snapshot).objective) is FewestInt8Ops


def test_the_tradeoff_figure_shows_a_registered_objective(result: quaver.TuneResult) -> None:
    pytest.importorskip("plotly")
    figure = result.plot.pareto(by=NAME)
    assert figure.layout.xaxis.title.text == "quantized ops"
    shown = {x for scatter in figure.data for x in scatter.x}
    counts = {float(trial.config.quantized_count) for trial in result.trials if trial.loss is not None}
    assert shown == counts | {0.0}  # the float model is the reference
    with pytest.raises(SettingsError, match=f"`by` must be latency or size or {NAME}, not 'weight'"):
        result.plot.pareto(by="weight")


@pytest.mark.usefixtures("registered")
def test_help_and_docs_list_the_registered_objectives() -> None:
    assert quoted_names() == f'"latency", "size", "int8_ops", "{NAME}"'


def test_the_help_of_the_command_line_lists_every_objective_of_quaver(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["tune", "--help"])
    assert f"{quoted_names()} or a function".replace('"', "") in " ".join(capsys.readouterr().out.split()).replace(
        '"', ""
    )


@pytest.mark.usefixtures("registered")
def test_the_command_line_takes_a_registered_objective() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config")
    flags.add(parser)
    settings = flags.parse_settings(parser.parse_args(["--objective", NAME]))
    assert Config(**settings.explicit).objective == NAME


@pytest.mark.usefixtures("registered")
def test_a_misspelled_name_is_corrected_to_a_registered_objective() -> None:
    with pytest.raises(SettingsError, match=f"did you mean .*'{NAME}'"):
        quaver.fit(MODEL, objective=NAME[:-1], eval_func=len)


@pytest.mark.usefixtures("registered")
def test_a_strategy_reads_the_traits_of_a_registered_objective() -> None:
    strategy = Basic()
    strategy.objective = NAME
    assert strategy.traits.rewards_small_files and not strategy.traits.rewards_speed
