"""Met or not, what it cost, and how to have it again: the first thing that a view says of a run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from quaver.api.config.config import Config
from quaver.api.display.format import conversions, converted_phrase, timing_setup
from quaver.api.result_warnings import no_gain_summary, run_warnings
from quaver.engine.inspection.output_drift import drift_of
from quaver.engine.scoring.benefit import benefit
from quaver.formatting import loss_between, loss_is, probability
from quaver.insights.data import text as wording
from quaver.insights.data.run_reader import RunData, RunState
from quaver.limit import Limit, loss_text
from quaver.processors import noted_portability
from quaver.trial import Trial
from quaver.types import PlainDict, PlainMapping
from quaver.unquantizable import from_notes, in_words

# So many limits are shown, the worst first.
LIMITS = 6


class Fact(NamedTuple):
    """One figure, with what it is and what stands beside it."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the first view says.

    Attributes:
        kind: "met", "warned" (met, but with warnings), "not met", "nothing" or "running", for the colour.
        headline: in a sentence.
        warnings: what must not be overlooked, as in `TuneResult.warnings`.
        facts: the figures.
        costs: seconds by what they were spent on.
        about: what the run was made with.
        commands: lines to copy, by what they do.
    """

    kind: str
    headline: str
    warnings: tuple[str, ...]
    facts: tuple[Fact, ...]
    costs: Mapping[str, float]
    about: tuple[Fact, ...]
    commands: tuple[Fact, ...]


def verdict(data: RunData) -> Verdict:
    """The verdict on a run as it stands."""
    kind, headline = _headline(data)
    warnings: tuple[str, ...] = ()
    if data.state is not RunState.RUNNING:  # the best so far is no result yet
        warnings = run_warnings(data.judge, data.snapshot.notes, data.baseline)
    if kind == "met" and warnings:
        kind = "warned"
    facts, about = tuple(_facts(data)), tuple(_about(data))
    return Verdict(kind, headline, warnings, facts, costs(data), about, tuple(commands(data)))


def state_phrase(data: RunData) -> str:
    """Whether the run goes on, in a sentence."""
    match data.state:
        case RunState.RUNNING:
            return f"Running: {wording.count(len(data.rows), 'trial')} so far."
        case RunState.ENDED:
            return f"Ended: {wording.name(str(data.ended.get('reason')))}."
        case RunState.KILLED:
            return "No process writes this run any more, and it did not say that it ended: it was killed. Resume it."
        case _:
            return f"Not readable any further: {data.problem}"


def _headline(data: RunData) -> tuple[str, str]:
    best, criterion = data.best, data.criterion
    if best is None:
        failed = sum(row.trial.failed for row in data.rows)
        if data.state is RunState.RUNNING:
            return "running", "No result yet."
        return "nothing", f"No result: {f'all {failed} trials failed' if failed else 'nothing was tried'}."
    if best.unscored:
        return "running" if data.state is RunState.RUNNING else "nothing", "Not evaluated: there was no eval_func."
    loss, allowed = loss_is(best.loss, criterion), wording.allowed(criterion)
    no_gain = no_gain_summary(benefit(best, data.judge.objective, data.baseline))
    but = f", but the model is {no_gain}" if no_gain else ""
    if best.met and not best.config.quantized_ops:
        return "nothing", "Nothing was quantized: the best trial runs every op in fp32."
    if best.met and not data.judge.met:
        if data.state is RunState.RUNNING and not data.judge.confirmations:
            return "running", f"Not confirmed on other data yet: {loss} here, and {allowed} is allowed."
        return "not met", f"Criterion not met on other data: {loss} here, and {allowed} is allowed."
    if criterion.target_budget is not None:
        kept = "kept" if best.met else "not kept"
        kind = "met" if best.met else "running" if data.state is RunState.RUNNING else "not met"
        return kind, f"Budget {kept}{but}: {criterion}; {loss}."
    if best.met:
        return "met", f"Criterion met{but}: {loss}, and {allowed} is allowed."
    kind = "running" if data.state is RunState.RUNNING else "not met"
    return kind, f"Criterion not met: {loss} at best, and {allowed} is allowed."


def _facts(data: RunData) -> list[Fact]:
    base, best = data.baseline, data.best
    facts = []
    if base is not None:
        lowest = _allowed_score(data)
        if not base.unscored:
            facts.append(Fact("fp32 score", wording.score(base.score), f"{wording.score(lowest)} is allowed"))
    if best is None:
        return facts
    counts = best.config.counts
    said = " / ".join(f"{count} {precision}" for precision, count in counts.items())
    score = "not evaluated" if best.unscored else wording.score(best.score)
    facts.append(Fact("best score", score, f"trial {best.number} of {len(data.rows)}"))
    facts += _trust(data, best)
    facts += _drift(data, best)
    facts.append(Fact("ops", said, f"of {len(data.ops)}"))
    facts.append(_latency(data))
    facts += _processors(data, best)
    if base is not None and base.model_size and best.model_size:
        ratio = best.model_size / base.model_size
        facts.append(Fact("size", wording.size(best.model_size), f"{ratio:.2f} of {wording.size(base.model_size)}"))
    tried = [row.trial for row in data.rows] + ([] if base is None else [base])
    evaluations = sum(not trial.unscored for trial in tried)
    facts.append(Fact("evaluations", str(evaluations), f"in {wording.duration(sum(costs(data).values()))}"))
    return facts


def _drift(data: RunData, best: Trial) -> list[Fact]:
    """Return how far the outputs are from the float model's, as far as that was measured."""
    drift, facts = drift_of(data.snapshot.notes, best), []
    note = "" if drift is None else f"of the outputs, against fp32, {wording.count(drift.samples, 'sample')}"
    if drift is not None and drift.relative_error is not None:
        facts.append(Fact("relative error", f"{drift.relative_error:.3g}", note))
    if drift is not None and drift.top1_agreement is not None:
        facts.append(Fact("top-1 agreement", f"{drift.top1_agreement:.1%}", note))
    return facts


def _processors(data: RunData, best: Trial) -> list[Fact]:
    """Return the processor that the verdict was measured on, and those it was verified for; empty for older runs."""
    portability = noted_portability(data.snapshot.notes, best.model_hash)
    if portability is None:
        return []
    measured = Fact("measured on", wording.name(str(portability.measured_on), 200), portability.statement)
    return [
        measured,
        *(
            Fact("on another processor", wording.name(verification.cpu), wording.name(str(verification), 200))
            for verification in portability.verified
        ),
    ]


def _trust(data: RunData, best: Trial) -> list[Fact]:
    """Between what the loss lies, how sure that is, each of several limits, and what other data say."""
    judge, criterion = data.judge, data.criterion
    found = []
    if best.interval is not None:
        sure = judge.confidence(best)
        said = (
            ""
            if sure is None
            else f"{probability(sure.chosen)} confidence that it is within the criterion on such data"
        )
        found.append(Fact("loss between", loss_between(best.interval, criterion), said))
    losses = judge.losses(best)
    for lost in losses[:LIMITS] if len(losses) > 1 else ():
        shown, allowed = (loss_text(value, lost.limit.relative) for value in (lost.loss, lost.limit.allowed))
        found.append(Fact(f"loss of {lost.limit.name or 'the score'}"[:60], shown, f"{allowed} is allowed"))
    for one in judge.confirmations:
        verdict = "within the criterion" if one.met else "NOT within the criterion"
        found.append(Fact(f"trial {one.trial} on other data", wording.loss(one.loss, criterion), f"loss, {verdict}"))
    stopped = sum(row.trial.stopped for row in data.rows)
    if stopped and data.baseline is not None:
        seen = sum(row.trial.seen for row in data.rows)
        total = data.baseline.seen * sum(bool(row.trial.samples) for row in data.rows)
        found.append(Fact("stopped early", wording.count(stopped, "trial"), f"{seen:,} of {total:,} samples scored"))
    return found


def _allowed_score(data: RunData) -> float | None:
    base, criterion = data.baseline, data.criterion
    if base is None or base.score is None:
        return None
    return allowed_score(base.score, criterion.first)


def allowed_score(base: float, limit: Limit) -> float:
    """The score at which a limit is just kept."""
    room = abs(base) * limit.allowed if limit.relative else limit.allowed
    return base - room if limit.higher_is_better else base + room


def _latency(data: RunData) -> Fact:
    best, base = data.best, data.baseline
    measured = {} if best is None else best.measured
    fp32 = {} if base is None else base.measured
    ratio, milliseconds = measured.get("latency"), measured.get("latency_ms")
    if ratio is None:
        return Fact("latency", wording.UNKNOWN, "measured of trials within the criterion")
    setup = timing_setup(fp32)
    where = f"; {setup}" if setup else ""
    if milliseconds is None:
        return Fact("latency", f"{ratio:.2f} of fp32", where.removeprefix("; "))
    spread = 100 * measured.get("latency_spread", 0.0)
    value = f"{wording.duration(milliseconds / 1e3)} ±{spread:.0f} %"
    return Fact("latency", value, f"{ratio:.2f} of fp32{where}")


def costs(data: RunData) -> dict[str, float]:
    """Seconds by what they were spent on, those that cost most first."""
    stages = data.ended.get("stages")
    found = _numbers(stages)
    trials = [row.trial for row in data.rows] + ([] if data.baseline is None else [data.baseline])
    found["eval_func"] = sum(trial.seconds for trial in trials)
    found["building models"] = sum(trial.build_seconds for trial in trials)
    return dict(sorted(((name, value) for name, value in found.items() if value > 0), key=lambda item: -item[1]))


def _numbers(value: Any) -> dict[str, float]:
    entries = value.items() if isinstance(value, dict) else ()
    return {
        wording.name(name): one
        for name, one in entries
        if isinstance(name, str) and isinstance(one, float) and 0 <= one < 1e9
    }


def _about(data: RunData) -> list[Fact]:
    snapshot = data.snapshot
    run = snapshot.run
    settings = {name: value for name, value in run.settings.items() if isinstance(name, str)}
    facts = [
        Fact("strategy", _word(settings.get("strategy"))),
        Fact(data.criterion.called, str(data.criterion)),
        Fact("objective", _word(settings.get("objective"))),
        Fact("seed", _word(settings.get("seed"))),
        Fact("model", wording.name(_model(data) or "–", 200), f"hash {snapshot.header.model_fingerprint[:16]}"),  # noqa: RUF001
        Fact("framework", wording.name(snapshot.header.adapter)),
        Fact("versions", ", ".join(f"{wording.name(name)} {wording.name(one)}" for name, one in run.versions.items())),
        Fact("started", wording.name(run.started), f"run {run.number}" if run.number > 1 else ""),
        Fact("folder", wording.name(str(data.folder), 300)),
    ]
    said = filter(None, (converted_phrase(conversions(snapshot.notes)), in_words(from_notes(snapshot.notes))))
    facts += [Fact("note", wording.name(text, 400)) for text in said]
    return facts


def _word(value: Any) -> str:
    return wording.UNKNOWN if value is None else wording.name(str(value), 100)


def _model(data: RunData) -> str:
    said = data.ended.get("model")
    return said if isinstance(said, str) else ""


def commands(data: RunData) -> list[Fact]:
    """Lines that repeat the run, and that give its best model; both for a shell and for Python."""
    model = _model(data) or "MODEL"
    folder, best = str(data.folder), data.best
    changed = changed_settings(data.snapshot.run.settings)
    given = ["calib_dataloader=...", "eval_func=...", *(f"{name}={value!r}" for name, value in changed.items())]
    tune = ["quaver", "tune", "--model", model, "--calib", "CALIB", "--eval", "EVAL"]
    found = [
        Fact("repeat it", _shell(*tune, *_flags(changed))),
        Fact("repeat it in Python", f"quaver.fit({', '.join([repr(model), *given])})"),
        Fact("go on with it", _shell(*tune, "--resume", folder)),
    ]
    if best is not None:
        found.append(Fact("the best model", recover_command(data, best.number)))
        found.append(Fact("the best model in Python", f"quaver.recover({model!r}, {folder!r}, {best.number})"))
    return found


def recover_command(data: RunData, number: int) -> str:
    """The line that rebuilds the model of a trial."""
    model = _model(data) or "MODEL"
    suffix = "." + model.rpartition(".")[2] if "." in model.rpartition("/")[2] else ".onnx"
    return _shell("quaver", "recover", model, str(data.folder), number, "-o", f"trial{number}{suffix}")


def changed_settings(settings: PlainMapping) -> PlainDict:
    """The settings that are not as by default, without those that say where and how a run is shown."""
    default = Config().to_dict()
    left = {"workspace", "resume", "report", "insights", "framework"}
    names = [item.name for item in fields(Config) if item.name not in left]
    return {name: settings[name] for name in names if name in settings and settings[name] != default[name]}


def _flags(changed: PlainMapping) -> list[str]:
    words: list[str] = []
    for name, value in changed.items():
        flag = "--" + name.replace("_", "-")
        if name in ("op_name_dict", "op_type_dict") and isinstance(value, dict):
            for key, rule in value.items():
                words += [flag.removesuffix("-dict"), f"{key}={_yaml(rule)}"]
        elif name == "strategy_options" and isinstance(value, dict):
            for key, one in value.items():
                words += ["--strategy-option", f"{key}={_yaml(one)}"]
        elif name == "higher_is_better":
            lower = [key for key, higher in value.items() if not higher] if isinstance(value, dict) else [""]
            words += [word for key in lower for word in ("--lower-is-better", key) if word]
        elif name == "slices":
            words += [flag, "SLICES.txt"]
        elif isinstance(value, dict):  # limits by metric or by slice
            words += [word for key, limit in value.items() for word in (flag, f"{key}={limit}")]
        elif isinstance(value, bool):
            words.append(flag if value else f"--no-{flag[2:]}")
        elif value is not None:
            words += [flag, str(value)]
    return words


def _yaml(value: Any) -> str:
    """A value as a flag takes it: YAML, of which JSON is a part."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _shell(*words: Any) -> str:
    return wording.name(shlex.join(map(str, words)), 4000)
