"""The summary of a run: whether the criterion is met, what that cost, and how to reproduce it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

from quaver.api.config.config import Config
from quaver.api.display.format import conversions, converted_phrase, timing_setup
from quaver.api.result_warnings import no_gain_summary, run_warnings
from quaver.engine.inspection.output_drift import drift_of
from quaver.engine.scoring.benefit import benefit
from quaver.formatting import MISSING, allowed, loss, loss_between, loss_is, op_counts, plural, probability, score
from quaver.insights.data.run_reader import RunData, RunState
from quaver.insights.data.text import duration, name, size
from quaver.limit import Limit, loss_text
from quaver.processors import noted_portability
from quaver.trial import Trial
from quaver.types import PlainDict, PlainMapping
from quaver.unquantizable import from_notes, in_words

# Judgement: limits that are shown, the worst first.
MAX_LIMITS = 6
# Judgement: seconds that no run can take, so that the file is damaged.
MAX_STAGE_SECONDS = 1e9


class Fact(NamedTuple):
    """One figure with its label and a note."""

    label: str
    value: str
    note: str = ""


# Judgement: characters of a value and of a note that fit a card, and cards side by side on a wide screen.
MAX_CARD_VALUE, MAX_CARD_NOTE, MAX_CARDS = 18, 60, 8


def cards_and_list(facts: Sequence[Fact]) -> tuple[list[Fact], list[Fact]]:
    """Return the facts that fit a card, and those whose texts are too long for one."""
    short = [fact for fact in facts if len(fact.value) <= MAX_CARD_VALUE and len(fact.note) <= MAX_CARD_NOTE]
    return short, [fact for fact in facts if fact not in short]


def card_columns(count: int) -> int:
    """Return how many cards stand in one row, so that all rows are about as long."""
    rows = max(1, -(-count // MAX_CARDS))
    return max(1, -(-count // rows))


@dataclass(frozen=True, slots=True)
class Verdict:
    """The summary of a run.

    Attributes:
        kind: "met", "warned" (met, but with warnings), "not met", "nothing" or "running"; it decides the colour.
        headline: the verdict in a sentence.
        warnings: what must not be overlooked, as in `TuneResult.warnings`.
        facts: the figures.
        costs: the seconds of each stage.
        about: the setup of the run.
        commands: lines to copy, each labelled with what it does.
    """

    kind: str
    headline: str
    warnings: tuple[str, ...]
    facts: tuple[Fact, ...]
    costs: Mapping[str, float]
    about: tuple[Fact, ...]
    commands: tuple[Fact, ...]


def verdict(data: RunData) -> Verdict:
    """Return the summary of a run in its current state."""
    kind, headline = _headline(data)
    warnings: tuple[str, ...] = ()
    if data.state is not RunState.RUNNING:  # the best trial so far is not a result
        warnings = run_warnings(data.judge, data.snapshot.notes, data.baseline)
    if kind == "met" and warnings:
        kind = "warned"
    facts, about = tuple(_facts(data)), tuple(_about(data))
    return Verdict(kind, headline, warnings, facts, costs(data), about, tuple(commands(data)))


def state_phrase(data: RunData) -> str:
    """Return a sentence about the state of the run."""
    match data.state:
        case RunState.RUNNING:
            return f"Running: {plural(len(data.rows), 'trial')} so far."
        case RunState.ENDED:
            return f"Ended: {name(str(data.ended.get('reason')))}."
        case RunState.KILLED:
            return "The run was killed: no process writes it, and it recorded no end. Resume it."
        case _:
            return f"The file cannot be read any further: {data.problem}"


def _headline(data: RunData) -> tuple[str, str]:
    best, criterion = data.best, data.criterion
    if best is None:
        failed = sum(row.trial.failed for row in data.rows)
        if data.state is RunState.RUNNING:
            return "running", "No result yet."
        return "nothing", f"No result: {f'all {failed} trials failed' if failed else 'no trial was made'}."
    if best.unscored:
        return "running" if data.state is RunState.RUNNING else "nothing", "Not evaluated: there was no eval_func."
    loss_sentence, allowed_text = loss_is(best.loss, criterion), allowed(criterion)
    no_gain = no_gain_summary(benefit(best, data.judge.objective, data.baseline))
    caveat = f", but the model is {no_gain}" if no_gain else ""
    if best.met and best.config.is_fp32:
        return "nothing", "Nothing was quantized: the best trial runs every op in fp32."
    if best.met and not data.judge.met:
        if data.state is RunState.RUNNING and not data.judge.confirmations:
            return "running", f"Not confirmed on other data yet: {loss_sentence} here, and {allowed_text} is allowed."
        return "not met", f"Criterion not met on other data: {loss_sentence} here, and {allowed_text} is allowed."
    if criterion.target_budget is not None:
        outcome = "kept" if best.met else "not kept"
        kind = "met" if best.met else "running" if data.state is RunState.RUNNING else "not met"
        return kind, f"Budget {outcome}{caveat}: {criterion}; {loss_sentence}."
    if best.met:
        speed = "" if no_gain else _speed(best)
        return "met", f"Criterion met{speed}{caveat}: {loss_sentence}, and {allowed_text} is allowed."
    kind = "running" if data.state is RunState.RUNNING else "not met"
    return kind, f"Criterion not met: {loss_sentence} at best, and {allowed_text} is allowed."


def _speed(best: Trial) -> str:
    """Return the latency of a trial for the headline; empty if it was not measured."""
    ratio = best.measured.get("latency")
    return "" if ratio is None else f" at {ratio:.2f}x fp32 latency"


def model_name(data: RunData) -> str:
    """Return the file name of the model; empty if the run did not record it."""
    return name(_model(data).replace("\\", "/").rpartition("/")[2], 60)


def strategy_name(data: RunData) -> str:
    """Return the name of the strategy; empty if the run did not record it."""
    return name(str(data.snapshot.run.settings.get("strategy") or ""), 40)


def verdict_word(data: RunData) -> str:
    """Return the verdict in a word or two, for lists of runs."""
    if data.state is RunState.RUNNING:
        return "running"
    return {"warned": "met, with warnings", "nothing": "no result"}.get(kind := verdict(data).kind, kind)


def _facts(data: RunData) -> list[Fact]:
    """Return the figures of the best trial."""
    base, best = data.baseline, data.best
    facts = []
    if base is not None:
        lowest = _allowed_score(data)
        if not base.unscored:
            facts.append(Fact("fp32 score", score(base.score), f"{score(lowest)} is allowed"))
    if best is None:
        return facts
    best_score = "not evaluated" if best.unscored else score(best.score)
    facts.append(Fact("best score", best_score, f"trial {best.number} of {len(data.rows)}"))
    facts += _trust(data, best)
    facts += _drift(data, best)
    most, *others = op_counts(best, "\n").split("\n")
    facts.append(Fact("ops", most, ", ".join((*others, f"of {len(data.ops)}"))))
    facts.append(_latency(data))
    facts += _processors(data, best)
    if base is not None and base.model_size and best.model_size:
        ratio = best.model_size / base.model_size
        facts.append(Fact("size", size(best.model_size), f"{ratio:.2f}x fp32 ({size(base.model_size)})"))
    tried = [row.trial for row in data.rows] + ([] if base is None else [base])
    evaluations = sum(not trial.unscored for trial in tried)
    facts.append(Fact("evaluations", str(evaluations), f"in {duration(sum(costs(data).values()))}"))
    return facts


def _drift(data: RunData, best: Trial) -> list[Fact]:
    """Return the difference of the outputs from the float model's, if it was measured."""
    drift, facts = drift_of(data.snapshot.notes, best), []
    note = "" if drift is None else f"of the outputs, against fp32, {plural(drift.samples, 'sample')}"
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
    measured = Fact("measured on", name(str(portability.measured_on), 200), portability.statement)
    return [
        measured,
        *(
            Fact("on another processor", name(verification.cpu), name(str(verification), 200))
            for verification in portability.verified
        ),
    ]


def _trust(data: RunData, best: Trial) -> list[Fact]:
    """Return how reliable the verdict is: the interval of the loss, its confidence, each limit, and other data."""
    judge, criterion = data.judge, data.criterion
    facts = []
    if best.interval is not None:
        sure = judge.confidence(best)
        note = (
            ""
            if sure is None
            else f"{probability(sure.chosen)} confidence that it is within the criterion on such data"
        )
        facts.append(Fact("loss between", loss_between(best.interval, criterion), note))
    losses = judge.losses(best)
    for lost in losses[:MAX_LIMITS] if len(losses) > 1 else ():
        loss_shown, allowed_loss = (loss_text(value, lost.limit.relative) for value in (lost.loss, lost.limit.allowed))
        facts.append(Fact(f"loss of {lost.limit.name or 'the score'}"[:60], loss_shown, f"{allowed_loss} is allowed"))
    for confirmation in judge.confirmations:
        verdict = "within the criterion" if confirmation.met else "NOT within the criterion"
        facts.append(
            Fact(f"trial {confirmation.trial} on other data", loss(confirmation.loss, criterion), f"loss, {verdict}")
        )
    stopped = sum(row.trial.stopped for row in data.rows)
    if stopped and data.baseline is not None:
        scored = sum(row.trial.seen for row in data.rows)
        total = data.baseline.seen * sum(bool(row.trial.samples) for row in data.rows)
        facts.append(Fact("stopped early", plural(stopped, "trial"), f"{scored:,} of {total:,} samples scored"))
    return facts


def _allowed_score(data: RunData) -> float | None:
    base, criterion = data.baseline, data.criterion
    if base is None or base.score is None:
        return None
    return allowed_score(base.score, criterion.first)


def allowed_score(base: float, limit: Limit) -> float:
    """Return the score at which a limit is exactly met."""
    margin = abs(base) * limit.allowed if limit.relative else limit.allowed
    return base - margin if limit.higher_is_better else base + margin


def _latency(data: RunData) -> Fact:
    best, base = data.best, data.baseline
    measured = {} if best is None else best.measured
    fp32 = {} if base is None else base.measured
    ratio, milliseconds = measured.get("latency"), measured.get("latency_ms")
    if ratio is None:
        return Fact("latency", MISSING, "measured for trials within the criterion")
    setup = timing_setup(fp32)
    where = f"; {setup}" if setup else ""
    if milliseconds is None:
        return Fact("latency", f"{ratio:.2f}x fp32", where.removeprefix("; "))
    spread = 100 * measured.get("latency_spread", 0.0)
    return Fact("latency", duration(milliseconds / 1e3), f"±{spread:.0f} %; {ratio:.2f}x fp32{where}")


def costs(data: RunData) -> dict[str, float]:
    """Return the seconds of each stage, the longest first."""
    stages = data.ended.get("stages")
    seconds = _numbers(stages)
    trials = [row.trial for row in data.rows] + ([] if data.baseline is None else [data.baseline])
    seconds["eval_func"] = sum(trial.seconds for trial in trials)
    seconds["building models"] = sum(trial.build_seconds for trial in trials)
    return dict(sorted(((name, value) for name, value in seconds.items() if value > 0), key=lambda item: -item[1]))


def _numbers(value: object) -> dict[str, float]:
    entries = value.items() if isinstance(value, dict) else ()
    return {
        name(stage): number
        for stage, number in entries
        if isinstance(stage, str) and isinstance(number, float) and 0 <= number < MAX_STAGE_SECONDS
    }


def _about(data: RunData) -> list[Fact]:
    snapshot = data.snapshot
    run = snapshot.run
    settings = {name: value for name, value in run.settings.items() if isinstance(name, str)}
    facts = [
        Fact("strategy", _setting(settings.get("strategy"))),
        Fact(data.criterion.called, str(data.criterion)),
        Fact("objective", _setting(settings.get("objective"))),
        Fact("seed", _setting(settings.get("seed"))),
        Fact("model", name(_model(data) or "–", 200), f"hash {snapshot.header.model_fingerprint[:16]}"),  # noqa: RUF001
        Fact("framework", name(snapshot.header.adapter)),
        Fact("versions", ", ".join(f"{name(package)} {name(version)}" for package, version in run.versions.items())),
        Fact("started", name(run.started), f"run {run.number}" if run.number > 1 else ""),
        Fact("folder", name(str(data.folder), 300)),
    ]
    notes = filter(None, (converted_phrase(conversions(snapshot.notes)), in_words(from_notes(snapshot.notes))))
    facts += [Fact("note", name(text, 400)) for text in notes]
    return facts


def _setting(value: object) -> str:
    return MISSING if value is None else name(str(value), 100)


def _model(data: RunData) -> str:
    model = data.ended.get("model")
    return model if isinstance(model, str) else ""


def commands(data: RunData) -> list[Fact]:
    """Return lines that repeat the run and rebuild its best model, for a shell and for Python."""
    model = _model(data) or "MODEL"
    folder, best = str(data.folder), data.best
    changed = changed_settings(data.snapshot.run.settings)
    arguments = ["calib_dataloader=...", "eval_func=...", *(f"{name}={value!r}" for name, value in changed.items())]
    tune = ["quaver", "tune", "--model", model, "--calib", "CALIB", "--eval", "EVAL"]
    facts = [
        Fact("repeat the run", _shell(*tune, *_flags(changed))),
        Fact("repeat the run in Python", f"quaver.fit({', '.join([repr(model), *arguments])})"),
        Fact("continue the run", _shell(*tune, "--resume", folder)),
    ]
    if best is not None:
        facts.append(Fact("rebuild the best model", recover_command(data, best.number)))
        facts.append(Fact("rebuild the best model in Python", f"quaver.recover({model!r}, {folder!r}, {best.number})"))
    return facts


def recover_command(data: RunData, number: int) -> str:
    """Return the command that rebuilds the model of a trial."""
    model = _model(data) or "MODEL"
    suffix = "." + model.rpartition(".")[2] if "." in model.rpartition("/")[2] else ".onnx"
    return _shell("quaver", "recover", model, str(data.folder), number, "-o", f"trial{number}{suffix}")


def changed_settings(settings: PlainMapping) -> PlainDict:
    """Return the settings that differ from the defaults, without those about where a run is shown."""
    default = Config().to_dict()
    excluded = {"workspace", "resume", "report", "insights", "framework"}
    names = [item.name for item in fields(Config) if item.name not in excluded]
    return {name: settings[name] for name in names if name in settings and settings[name] != default[name]}


def _flags(settings: PlainMapping) -> list[str]:
    """Return settings as flags of the command line."""
    words: list[str] = []
    for setting, value in settings.items():
        words += _FLAGS.get(setting, _flag)("--" + setting.replace("_", "-"), value)
    return words


def _flag(flag: str, value: object) -> list[str]:
    if isinstance(value, dict):  # limits by metric or by slice
        return [word for key, limit in value.items() for word in (flag, f"{key}={limit}")]
    if isinstance(value, bool):
        return [flag if value else f"--no-{flag[2:]}"]
    return [] if value is None else [flag, str(value)]


def _rules_flag(flag: str, value: object) -> list[str]:
    if not isinstance(value, dict):
        return _flag(flag, value)
    return [word for key, rule in value.items() for word in (flag.removesuffix("-dict"), f"{key}={_yaml(rule)}")]


def _strategy_options_flag(flag: str, value: object) -> list[str]:
    if not isinstance(value, dict):
        return _flag(flag, value)
    return [word for key, option in value.items() for word in ("--strategy-option", f"{key}={_yaml(option)}")]


def _lower_is_better_flag(flag: str, value: object) -> list[str]:
    metrics = [name for name, higher in value.items() if not higher] if isinstance(value, dict) else [""]
    return [word for metric in metrics for word in ("--lower-is-better", metric) if word]


def _slices_flag(flag: str, value: object) -> list[str]:
    return [flag, "SLICES.txt"]


# The settings whose flags are not the setting's own name and value.
_FLAGS: dict[str, Callable[[str, object], list[str]]] = {
    "op_name_dict": _rules_flag,
    "op_type_dict": _rules_flag,
    "strategy_options": _strategy_options_flag,
    "higher_is_better": _lower_is_better_flag,
    "slices": _slices_flag,
}


def _yaml(value: object) -> str:
    """Return a value as a flag takes it: as YAML, of which JSON is a part."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _shell(*words: object) -> str:
    return name(shlex.join(map(str, words)), 4000)
