"""A run in MLflow: one parent run, a child run a trial, and the files of the workspace as artefacts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from quaver.engine.events import RunFinished, RunStarted
from quaver.insights.trackers.tracker import Tracker, figures, flat
from quaver.trial import Trial

# A server that is away is not waited for, unless the user says how long: MLflow itself tries for minutes.
PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}


class MLflow(Tracker):
    """Tells MLflow: a parent run with the settings, the score over trials and the artefacts, and a child a trial.

    It uses a client of its own, so that a run of yours that is active is left alone.

    Args:
        experiment: the name of the experiment; it is made if there is none.
        tracking_uri: the server or store; MLflow's own setting if None.
        run_name: the name of the parent run; that of the workspace if None.
    """

    extra = package = "mlflow"

    def __init__(
        self, experiment: str = "quaver", tracking_uri: str | None = None, run_name: str | None = None
    ) -> None:
        super().__init__()
        self._experiment, self._uri, self._name = experiment, tracking_uri, run_name
        self._client: Any = None
        self._parent = self._id = ""

    def start(self, event: RunStarted) -> None:
        """Make the parent run."""
        for name, value in PATIENCE.items():
            os.environ.setdefault(name, value)
        self._client = self._package.MlflowClient(self._uri)
        found = self._client.get_experiment_by_name(self._experiment)
        self._id = self._client.create_experiment(self._experiment) if found is None else found.experiment_id
        self._parent = self._make(self._name or event.workspace.name)
        for name, value in flat(event.settings).items():
            self._client.log_param(self._parent, name, value)
        self._client.set_tag(self._parent, "quaver.workspace", str(event.workspace))
        self._client.set_tag(self._parent, "quaver.resumed", str(event.resumed))

    def trial(self, trial: Trial) -> None:
        """Make a child run, and a step of the parent's curves."""
        child = self._make("fp32" if trial.number == 0 else f"trial {trial.number}", parent=self._parent)
        for name, value in figures(trial).items():
            self._client.log_metric(child, name, value)
            self._client.log_metric(self._parent, name, value, step=trial.number)
        self._client.set_tag(child, "quaver.trial", str(trial.number))
        if trial.error:
            self._client.set_tag(child, "quaver.error", trial.error[-4000:])
        ops = {name: str(pick) for name, pick in trial.config.items()}
        self._client.log_dict(child, ops, "ops.json")
        self._client.set_terminated(child, "FAILED" if trial.failed else "FINISHED")

    def finish(self, event: RunFinished, artefacts: list[Path]) -> None:
        """Say how it ended, and keep the files."""
        self._client.set_tag(self._parent, "quaver.reason", str(event.reason))
        self._client.set_tag(self._parent, "quaver.summary", event.summary)
        if event.best is not None:
            self._client.set_tag(self._parent, "quaver.best", str(event.best.number))
            for name, value in figures(event.best).items():
                self._client.log_metric(self._parent, f"best_{name}", value)
        for path in artefacts:
            self._client.log_artifact(self._parent, str(path))
        self._client.set_terminated(self._parent, "FINISHED")

    def _make(self, name: str, parent: str = "") -> str:
        tags = {"mlflow.parentRunId": parent} if parent else {}
        return str(self._client.create_run(self._id, run_name=name, tags=tags).info.run_id)
