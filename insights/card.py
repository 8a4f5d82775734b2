"""The model card of a run: a README.md in the layout of Hugging Face, with the figures as machine-readable metadata."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from quaver import formatting
from quaver.api.display.format import latency_phrase, trial_phrases
from quaver.api.manifest import best_of
from quaver.engine.scoring.judge import Judge
from quaver.errors import HistoryError
from quaver.history import Snapshot
from quaver.insights.data.run_reader import FollowedRun, RunData
from quaver.insights.data.summary import commands
from quaver.processors import noted_portability
from quaver.trial import Trial
from quaver.types import PlainDict

# fp32 ops that a card lists by name; judgement: a card fits on two screens.
MAX_LISTED_OPS = 20


@dataclass(frozen=True)
class CardOptions:
    """Facts about the model that the run does not know.

    Attributes:
        name: the name of the model; by default that of its file.
        task: the task as Hugging Face calls it, such as "image-classification".
        dataset: the data that the scores were measured on.
        license: the license of the model, such as "apache-2.0"; left out if empty.
        manifest: the file name of the manifest; empty without one.
    """

    name: str = ""
    task: str = "other"
    dataset: str = "evaluation data of the run"
    license: str = ""
    manifest: str = ""


def model_card(run: str | os.PathLike[str], model: Path, options: CardOptions | None = None) -> str:
    """Return the card of the best model of a run, as Markdown.

    Args:
        run: the workspace of the run, or its snapshot.
        model: the file of the model, as it is published.
        options: what the run does not know.

    Raises:
        HistoryError: the run has no result.
    """
    options = options or CardOptions()
    snapshot, judged, _ = best_of(run)
    followed = FollowedRun(snapshot.path.parent)
    data = followed.poll()
    best = judged.best
    if data is None or best is None:
        raise HistoryError(followed.problem or f"{snapshot.path} holds no run to describe")
    name = options.name or model.stem
    front = yaml.safe_dump(_metadata(name, snapshot, best, options), sort_keys=False, allow_unicode=True)
    parts = [f"---\n{front}---\n", f"# {name}\n", *_body(snapshot, judged, best, data, model, options)]
    return "\n".join(parts)


def published_commands(data: RunData, model: Path) -> dict[str, str]:
    """Return the commands of a run for its manifest, by what they do."""
    model_path, folder = str(data.ended.get("model") or ""), str(data.folder)
    made = {fact.label: fact.value for fact in commands(data)}
    for label, line in made.items():  # where the files lay on this machine is nobody else's business
        line = line.replace(folder, data.folder.name)
        made[label] = line.replace(model_path, Path(model_path).name) if model_path else line
    return {**made, "show where the file comes from": f"quaver show {model.name}"}


def _metadata(name: str, snapshot: Snapshot, best: Trial, options: CardOptions) -> PlainDict:
    """Return the metadata block that Hugging Face reads."""
    base = snapshot.baseline
    metrics = [
        {"type": metric or "score", "name": f"{metric or 'score'} ({precision})", "value": float(value)}
        for precision, trial in (("int8", best), ("fp32", base))
        if trial is not None and not trial.unscored
        for metric, value in _scores(trial).items()
    ]
    front: PlainDict = {"library_name": "onnx", "tags": ["onnx", "int8", "quantized", "quaver"]}
    if options.license:
        front["license"] = options.license
    if metrics:
        dataset = {"name": options.dataset, "type": "custom"}
        results = {"task": {"type": options.task}, "dataset": dataset, "metrics": metrics}
        front["model-index"] = [{"name": name, "results": [results]}]
    return front


def _scores(trial: Trial) -> dict[str, float]:
    return dict(trial.metrics) or ({} if trial.score is None else {"": trial.score})


def _body(
    snapshot: Snapshot, judged: Judge, best: Trial, data: RunData, model: Path, options: CardOptions
) -> Iterator[str]:
    base = snapshot.baseline
    verdict = "It meets the criterion" if judged.met else "It does NOT meet the criterion"
    verdict = "It was not evaluated" if best.unscored else f"{verdict}: {judged.criterion}"
    yield f"An int8 model that quaver {snapshot.run.versions.get('quaver', '')} made from a float model. {verdict}.\n"
    yield "| | fp32 | int8 |\n|---|---|---|"
    if base is not None:
        for metric, value in _scores(best).items():
            yield f"| {metric or 'score'} | {formatting.score(_scores(base).get(metric))} | {formatting.score(value)} |"
        if base.model_size and best.model_size:
            yield f"| size | {formatting.file_size(base.model_size)} | {formatting.file_size(best.model_size)} |"
    yield f"| ops | | {formatting.op_counts(best)} |\n"
    latency = latency_phrase(best.measured, {} if base is None else base.measured)
    if latency:
        yield f"Latency: {latency}."
    portability = noted_portability(snapshot.notes, best.model_hash)
    if portability is not None:
        yield f"It was {portability}."
    for phrase in trial_phrases(best, judged):
        yield f"{phrase[0].upper()}{phrase[1:]}."
    fp32 = best.config.fp32_ops
    if fp32:
        listed = ", ".join(f"`{op}`" for op in fp32[:MAX_LISTED_OPS])
        more = f" and {len(fp32) - MAX_LISTED_OPS} more" if len(fp32) > MAX_LISTED_OPS else ""
        yield f"\nOps in fp32: {listed}{more}."
    yield from _how_to(model, data, options)
    yield "## Versions\n"
    yield ", ".join(f"{package} {version}" for package, version in snapshot.run.versions.items()) + "\n"


def _how_to(model: Path, data: RunData, options: CardOptions) -> Iterator[str]:
    yield "\n## How to run it\n"
    if model.suffix == ".onnx":
        yield (
            "```python\nimport onnxruntime\n\n"
            f'session = onnxruntime.InferenceSession("{model.name}")\n'
            "print([(value.name, value.shape, value.type) for value in session.get_inputs()])\n"
            "outputs = session.run(None, {...})  # arrays by input name\n```\n"
        )
    yield "## How to reproduce it\n"
    yield "\n".join(["```sh", *(f"# {name}\n{line}" for name, line in _shell_commands(data, model)), "```\n"])
    if options.manifest:
        yield f"`quaver check --manifest {options.manifest}` verifies that the files are the published ones.\n"


def _shell_commands(data: RunData, model: Path) -> Iterator[tuple[str, str]]:
    for label, line in published_commands(data, model).items():
        if line.startswith("quaver ") and "continue" not in label:
            yield label, line
