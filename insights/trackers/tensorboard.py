"""Record a run in TensorBoard: scalars over the trials. tensorboardX writes them, without TensorFlow or PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quaver.engine.events import RunFinished, RunStarted
from quaver.insights.trackers.tracker import Tracker, figures, flat
from quaver.trial import Trial

FOLDER = "tensorboard"


class TensorBoard(Tracker):
    """Write event files for TensorBoard: `tensorboard --logdir quaver_workspace`.

    Args:
        folder: where to write; None for a folder `tensorboard` in the workspace.
    """

    extra, package = "tensorboard", "tensorboardX"

    def __init__(self, folder: str | Path | None = None) -> None:
        super().__init__()
        self._place = folder
        self._writer: Any = None

    def start(self, event: RunStarted) -> None:
        """Open the file and write the settings."""
        self._writer = self._package.SummaryWriter(str(self._place or event.workspace / FOLDER))
        lines = (f"    {name}: {value}" for name, value in flat(event.settings).items())
        self._writer.add_text("settings", "\n".join(lines))

    def trial(self, trial: Trial) -> None:
        """Add a point to each curve; the fp32 model is at 0."""
        for name, value in figures(trial).items():
            self._writer.add_scalar(f"trial/{name}", value, trial.number)
        if trial.error:
            text = "\n".join(f"    {line}" for line in trial.error.splitlines())
            self._writer.add_text("error", text, trial.number)
        self._writer.flush()

    def finish(self, event: RunFinished, artifacts: list[Path]) -> None:
        """Write the best trial's figures and the end of the run. The files are in the workspace already."""
        if event.best is not None:
            for name, value in figures(event.best).items():
                self._writer.add_scalar(f"best/{name}", value, event.best.number)
        self._writer.add_text("summary", event.summary)
        self._writer.close()
