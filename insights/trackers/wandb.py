"""Record a run in Weights & Biases: a step per trial, a table of all trials, and the files as an artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quaver.engine.events import RunFinished, RunStarted
from quaver.insights.trackers.tracker import Tracker, figures
from quaver.trial import Trial


class WandB(Tracker):
    """Record a run in Weights & Biases.

    Args:
        project: the name of the project.
        run_name: the name of the run; None for the name of the workspace.
        mode: "online", "offline" or "disabled"; None for wandb's own setting (WANDB_MODE).
        folder: where wandb writes its files; None for the workspace.
    """

    extra = package = "wandb"

    def __init__(
        self,
        project: str = "quaver",
        run_name: str | None = None,
        mode: str | None = None,
        folder: str | Path | None = None,
    ) -> None:
        super().__init__()
        self._project, self._name, self._mode, self._place = project, run_name, mode, folder
        self._run: Any = None
        self._trials: dict[int, Trial] = {}

    def start(self, event: RunStarted) -> None:
        """Start a run."""
        self._trials = {}
        self._run = self._package.init(
            project=self._project,
            name=self._name or event.workspace.name,
            config=dict(event.settings),
            dir=str(self._place or event.workspace),
            mode=self._mode,
            reinit="create_new",
            settings=self._package.Settings(console="off", silent=True),
        )

    def trial(self, trial: Trial) -> None:
        """Log a step."""
        self._trials[trial.number] = trial
        self._run.log(figures(trial), step=trial.number)

    def finish(self, event: RunFinished, artifacts: list[Path]) -> None:
        """Log the table and the files, and end the run."""
        rows = {number: figures(trial) for number, trial in self._trials.items()}
        columns = list(dict.fromkeys(name for row in rows.values() for name in row))
        data = [
            [number, str(self._trials[number].state), *(row.get(name) for name in columns)]
            for number, row in rows.items()
        ]
        self._run.log({"trials": self._package.Table(columns=["trial", "state", *columns], data=data)})
        outcome = {"reason": str(event.reason), "summary": event.summary, "evaluations": event.evaluations}
        best = {} if event.best is None else figures(event.best)
        self._run.summary.update({**outcome, **{f"best_{name}": value for name, value in best.items()}})
        if event.best is not None:
            self._run.summary["best"] = event.best.number
        artifact = self._package.Artifact(f"history-{self._run.id}", type="history")
        for path in artifacts:
            artifact.add_file(str(path))
        self._run.log_artifact(artifact)
        self._run.finish(exit_code=0)
