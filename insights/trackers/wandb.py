"""A run in Weights & Biases: the figures of each trial as a step, a table of all, and the files as an artefact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quaver.engine.events import RunFinished, RunStarted
from quaver.insights.trackers.tracker import Tracker, figures
from quaver.trial import Trial


class WandB(Tracker):
    """Tells Weights & Biases.

    Args:
        project: the name of the project.
        run_name: the name of the run; that of the workspace if None.
        mode: "online", "offline" or "disabled"; what wandb's own settings (WANDB_MODE) say if None.
        folder: where wandb puts its files; the workspace if None.
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
        """Begin a run."""
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

    def finish(self, event: RunFinished, artefacts: list[Path]) -> None:
        """Keep the table and the files, and end the run."""
        rows = {number: figures(trial) for number, trial in self._trials.items()}
        columns = list(dict.fromkeys(name for row in rows.values() for name in row))
        data = [
            [number, str(self._trials[number].state), *(row.get(name) for name in columns)]
            for number, row in rows.items()
        ]
        self._run.log({"trials": self._package.Table(columns=["trial", "state", *columns], data=data)})
        said = {"reason": str(event.reason), "summary": event.summary, "evaluations": event.evaluations}
        best = {} if event.best is None else figures(event.best)
        self._run.summary.update({**said, **{f"best_{name}": value for name, value in best.items()}})
        if event.best is not None:
            self._run.summary["best"] = event.best.number
        kept = self._package.Artifact(f"history-{self._run.id}", type="history")
        for path in artefacts:
            kept.add_file(str(path))
        self._run.log_artifact(kept)
        self._run.finish(exit_code=0)
