"""Record a run in MLflow: a parent run, a child run per trial, and the files of the workspace as artifacts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from quaver.engine.events import RunFinished, RunStarted
from quaver.insights.trackers.tracker import Tracker, figures, flat
from quaver.trial import Trial

# MLflow waits minutes for an unreachable server. Judgement: one retry and 20 s, unless the user sets something else.
REQUEST_LIMITS = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}


class MLflow(Tracker):
    """Record a run in MLflow: a parent run with the settings, the curves and the artifacts, and a child run per trial.

    It uses its own client, so an active run of yours is left alone.

    Args:
        experiment: the name of the experiment; it is created if it does not exist.
        tracking_uri: the server or store; None for MLflow's own setting.
        run_name: the name of the parent run; None for the name of the workspace.
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
        """Create the parent run."""
        for name, value in REQUEST_LIMITS.items():
            os.environ.setdefault(name, value)
        self._client = self._package.MlflowClient(self._uri)
        experiment = self._client.get_experiment_by_name(self._experiment)
        self._id = self._client.create_experiment(self._experiment) if experiment is None else experiment.experiment_id
        self._parent = self._make(self._name or event.workspace.name)
        for name, value in flat(event.settings).items():
            self._client.log_param(self._parent, name, value)
        self._client.set_tag(self._parent, "quaver.workspace", str(event.workspace))
        self._client.set_tag(self._parent, "quaver.resumed", str(event.resumed))

    def trial(self, trial: Trial) -> None:
        """Create a child run, and add a step to the parent's curves."""
        child = self._make("fp32" if trial.number == 0 else f"trial {trial.number}", parent=self._parent)
        for name, value in figures(trial).items():
            self._client.log_metric(child, name, value)
            self._client.log_metric(self._parent, name, value, step=trial.number)
        self._client.set_tag(child, "quaver.trial", str(trial.number))
        if trial.error:
            self._client.set_tag(child, "quaver.error", trial.error[-4000:])
        ops = {name: str(choice) for name, choice in trial.config.items()}
        self._client.log_dict(child, ops, "ops.json")
        self._client.set_terminated(child, "FAILED" if trial.failed else "FINISHED")

    def finish(self, event: RunFinished, artifacts: list[Path]) -> None:
        """Record how the run ended, and store the files."""
        self._client.set_tag(self._parent, "quaver.reason", str(event.reason))
        self._client.set_tag(self._parent, "quaver.summary", event.summary)
        if event.best is not None:
            self._client.set_tag(self._parent, "quaver.best", str(event.best.number))
            for name, value in figures(event.best).items():
                self._client.log_metric(self._parent, f"best_{name}", value)
        for path in artifacts:
            self._client.log_artifact(self._parent, str(path))
        self._client.set_terminated(self._parent, "FINISHED")

    def _make(self, name: str, parent: str = "") -> str:
        tags = {"mlflow.parentRunId": parent} if parent else {}
        return str(self._client.create_run(self._id, run_name=name, tags=tags).info.run_id)
