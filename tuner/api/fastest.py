"""Tune a model for every runtime that runs it, and choose file and runtime: `runtime="fastest"`.

Each runtime has a run of its own, in a folder of the workspace that has its name: `resume`, `recover`, `show`, page and
report work on it. The folder `winner` is a link to the run of the file that was chosen.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from quaver.adapters import Model, load_unmodified, runtimes_of
from quaver.adapters.samples import make_batch
from quaver.api.config.config import Config
from quaver.api.config.resolve import ResolvedSettings
from quaver.api.config.resume import earlier_settings, resumed_config
from quaver.api.workspace import make_folder
from quaver.engine.inspection.diagnose import replayable
from quaver.engine.timing import latency
from quaver.errors import QuaverError, SettingsError
from quaver.files.paths import expanded
from quaver.history import FILE_NAME, History
from quaver.types import CalibrationData, ModelLike, PlainDict, PlainMapping

if TYPE_CHECKING:
    from quaver.api.result import TuneResult

log = logging.getLogger(__name__)

# The value of `runtime` that tunes for every runtime of a model.
FASTEST = "fastest"
# The note of a history that holds the outcomes of all runtimes.
NOTE = "runtimes"
# The link to the run whose file was chosen.
WINNER = "winner"


@dataclass(frozen=True, slots=True)
class RuntimeOutcome:
    """The best file for one runtime.

    Attributes:
        runtime: the value of `runtime`.
        wins: True for the file and the runtime that were chosen.
        met: whether it meets the criterion; None if nothing was evaluated.
        score: its score; None if nothing was evaluated.
        trial: its trial in the history of this runtime; None if no trial has a score.
        evaluations: calls of eval_func for this runtime, the baseline included.
        latency: of the file, relative to the fp32 model in the usual runtime; all were timed interleaved. None if there
            were no samples to time on.
        fp32_latency: the same of the fp32 model in this runtime.
        milliseconds: of one inference of the file.
        workspace: the folder of the run.
    """

    runtime: str
    wins: bool
    met: bool | None
    score: float | None
    trial: int | None
    evaluations: int
    latency: float | None
    fp32_latency: float | None
    milliseconds: float | None
    workspace: str

    def to_dict(self) -> PlainDict:
        """Return builtins, for the history and for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, noted: PlainMapping) -> RuntimeOutcome:
        """Return the outcome that `to_dict` made builtins of."""
        return cls(**{name: noted[name] for name in cls.__dataclass_fields__})

    def __str__(self) -> str:
        verdict = {True: "meets the criterion", False: "misses the criterion", None: "not evaluated"}[self.met]
        score = "" if self.score is None else f", score {self.score:.6g}"
        figures = f"{self.runtime}: {verdict}{score}, {self.evaluations} evaluations"
        if self.latency is None or self.milliseconds is None:
            return figures
        fp32 = "" if self.fp32_latency is None else f"; its fp32 {self.fp32_latency:.2f}x"
        return f"{figures}, {self.latency:.2f}x ({self.milliseconds:.3g} ms{fp32})"


def check_single(runtime: str | None) -> None:
    """Refuse a run in all runtimes where one is needed."""
    if runtime == FASTEST:
        raise SettingsError('runtime="fastest" makes a run for each runtime, which only fit does: name one runtime')


def comparison_lines(outcomes: Sequence[RuntimeOutcome]) -> list[str]:
    """Return which runtime wins and the figures of all, a line each; nothing for a run in one runtime."""
    winner = next((outcome for outcome in outcomes if outcome.wins), None)
    if winner is None:
        return []
    reference = "latencies relative to fp32 in the usual runtime, all timed interleaved"
    return [f"the fastest runtime is {winner.runtime} ({reference}):", *(f"  {outcome}" for outcome in outcomes)]


def noted_outcomes(notes: PlainMapping) -> tuple[RuntimeOutcome, ...]:
    """Return the outcomes that a history holds; nothing if it has none that can be read."""
    noted = notes.get(NOTE)
    try:
        return tuple(map(RuntimeOutcome.from_dict, noted)) if isinstance(noted, list | tuple) else ()
    except (AttributeError, KeyError, TypeError):
        return ()


def order_of(outcome: RuntimeOutcome, loss: float | None) -> tuple[bool, float, float]:
    """Return a key: those that meet the criterion first, by latency; the others by loss."""
    misses = outcome.met is False or outcome.trial is None
    latency = math.inf if outcome.latency is None else outcome.latency
    return misses, (math.inf if loss is None else loss) if misses else 0.0, latency


class Request(Protocol):
    """The parts of a `TuneRequest` that are needed here."""

    @property
    def model(self) -> ModelLike:
        """The user's model."""

    @property
    def settings(self) -> ResolvedSettings:
        """The settings of the call."""

    @property
    def calib_dataloader(self) -> CalibrationData:
        """The calibration data."""


@dataclass(frozen=True)
class RuntimeRun:
    """A run in one runtime that is over."""

    runtime: str
    result: TuneResult


def is_fastest(config: Config) -> bool:
    """Return True for a run in all runtimes, also one that is resumed."""
    return config.runtime == FASTEST or bool(_runs_in(config))


def tune_fastest(request: Request, tune: Callable[[ResolvedSettings, CalibrationData], TuneResult]) -> TuneResult:
    """Tune for each runtime, time the best files and the fp32 models interleaved, and return the winner's result.

    Args:
        request: model, settings and data.
        tune: tunes for one runtime.
    """
    config = request.settings.config
    data = replayable(request.calib_dataloader)
    if config.resume is None:
        names = runtimes_of(request.model, config.framework)
        folder, _ = make_folder(config.workspace)
    else:
        names, folder = _runs_in(config), Path(expanded(config.resume)).absolute()
        if not names:
            raise SettingsError(
                f'{str(folder)!r} holds no run of runtime="fastest": leave `runtime` out to resume a run in one runtime'
            )
        names = list(dict.fromkeys([*names, *runtimes_of(request.model, config.framework)]))
    runs = [RuntimeRun(name, tune(_settings_for(name, folder, names, request.settings), data)) for name in names]
    outcomes = _compared(runs, request, data)
    winner = min(range(len(runs)), key=lambda at: order_of(outcomes[at], _loss(runs[at].result)))
    outcomes = [replace(outcome, wins=at == winner) for at, outcome in enumerate(outcomes)]
    for run in runs:
        _note(run.result, outcomes)
    _link(folder, runs[winner].result.workspace)
    return replace(runs[winner].result, runtimes=tuple(outcomes))


def _runs_in(config: Config) -> list[str]:
    """Return the runtimes that have a run in the folder to resume; none for a folder with a run of its own."""
    if config.resume is None:
        return []
    folder = Path(expanded(config.resume))
    if not folder.is_dir() or (folder / FILE_NAME).exists():
        return []
    return sorted(path.parent.name for path in folder.glob(f"*/{FILE_NAME}") if not path.parent.is_symlink())


def _settings_for(name: str, folder: Path, names: Sequence[str], settings: ResolvedSettings) -> ResolvedSettings:
    """Return the settings of the run in one runtime: it is resumed if it exists."""
    explicit = {key: value for key, value in settings.explicit.items() if key not in ("runtime", "workspace", "resume")}
    if settings.config.resume is None:
        return ResolvedSettings.of({**explicit, "runtime": name, "workspace": folder / name})
    if (folder / name / FILE_NAME).exists():
        return ResolvedSettings.of({**explicit, "resume": folder / name})
    begun = next(other for other in names if (folder / other / FILE_NAME).exists())
    earlier, _ = resumed_config(explicit, earlier_settings(folder / begun))
    return ResolvedSettings.of({**earlier.changed(), "runtime": name, "workspace": folder / name})


def _compared(runs: Sequence[RuntimeRun], request: Request, data: CalibrationData) -> list[RuntimeOutcome]:
    """Return the outcome of each run, with the latencies of files and fp32 models, all timed interleaved."""
    config = request.settings.config
    files = {run.runtime: run.result.model for run in runs if run.result.model is not None}
    seconds: dict[str, float] = {}
    fp32: dict[str, float] = {}
    if data is not None and files:
        floats = {
            run.runtime: load_unmodified(request.model, config.threads or 1, config.framework, run.runtime)
            for run in runs
        }
        models: list[Model] = [*floats.values(), *files.values()]
        feed = make_batch(data, next(iter(floats.values())).inputs, config.batch)
        measured = latency.measure([latency.as_deployed(model) for model in models], feed)
        fp32 = dict(zip(floats, (each.seconds for each in measured), strict=False))
        seconds = dict(zip(files, (each.seconds for each in measured[len(floats) :]), strict=True))
    base = fp32.get(runs[0].runtime)
    return [_outcome(run, base, fp32.get(run.runtime), seconds.get(run.runtime)) for run in runs]


def _outcome(run: RuntimeRun, base: float | None, fp32: float | None, seconds: float | None) -> RuntimeOutcome:
    result = run.result
    return RuntimeOutcome(
        runtime=run.runtime,
        wins=False,
        met=result.met,
        score=None if result.best is None else result.best.score,
        trial=None if result.best is None else result.best.number,
        evaluations=result.evaluations,
        latency=None if base is None or seconds is None else seconds / base,
        fp32_latency=None if base is None or fp32 is None else fp32 / base,
        milliseconds=None if seconds is None else 1e3 * seconds,
        workspace=os.fspath(result.workspace),
    )


def _note(result: TuneResult, outcomes: Sequence[RuntimeOutcome]) -> None:
    try:
        with History.resume(result.history_path) as history:
            history.note(NOTE, [outcome.to_dict() for outcome in outcomes])
    except QuaverError as error:
        log.warning("which runtime is the fastest could not be noted in %s: %s", result.history_path, error)


def _link(folder: Path, target: Path) -> None:
    """Make `winner` a link to the run whose file was chosen."""
    link = folder / WINNER
    try:
        with contextlib.suppress(FileNotFoundError):
            link.unlink()
        link.symlink_to(target.name)
    except OSError as error:
        log.warning("cannot make the link %s: %s", link, error)


def _loss(result: TuneResult) -> float | None:
    return None if result.best is None else result.best.loss
