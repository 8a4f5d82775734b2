"""The two steps of a decoder with a cache, timed separately: the prompt, and one token after it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from quaver.adapters import Adapter, Model
from quaver.adapters.decoder_inputs import CACHE, next_feed
from quaver.engine.timing.latency import compare
from quaver.history import History
from quaver.history.pickle_check import MalformedRecord
from quaver.history.records.fields import Fields
from quaver.trial import Trial
from quaver.types import Feed, PlainMapping

log = logging.getLogger(__name__)

# The note of the steps of the best trial.
NOTE = "step_latencies"
# The most processor seconds for each step. Judgement: enough for two digits.
SECONDS = 4.0


@dataclass(frozen=True, slots=True)
class StepLatencies:
    """The latencies of a trial's prompt and next token, interleaved with the float model's.

    Attributes:
        tokens: tokens of the prompt, and in the cache when the next token is computed.
        prompt: latency of the whole prompt, as a fraction of the float model's.
        prompt_ms: its milliseconds.
        token: latency of one token after it, as a fraction of the float model's.
        token_ms: its milliseconds.
    """

    tokens: int
    prompt: float
    prompt_ms: float
    token: float
    token_ms: float

    def __str__(self) -> str:
        prompt, token = (
            f"{ratio:.2f}x fp32 latency ({ms:,.3g} ms vs {ms / ratio:,.3g} ms)"
            for ratio, ms in ((self.prompt, self.prompt_ms), (self.token, self.token_ms))
        )
        return f"a prompt of {self.tokens} tokens takes {prompt}, each token after it {token}"


def step_latencies(
    models: Sequence[Model], float_model: Model, prompt: Feed, seconds: float = SECONDS
) -> list[StepLatencies]:
    """Return the latencies of both steps of each model, all interleaved with the float model.

    Args:
        models: the models to time.
        float_model: the float model.
        prompt: texts of the same length, with an empty cache.
        seconds: the most processor time for each step.
    """
    names = [value.name for value in float_model.session.get_outputs()]
    outputs = dict(zip(names, float_model.session.run(None, prompt), strict=True))
    tokens = next(prompt[spec.name] for spec in float_model.inputs if not spec.follows)
    step = next_feed(prompt, float_model.inputs, outputs, np.asarray(tokens[:, -1:]))
    prefill, decode = (compare(models, float_model, feed, seconds) for feed in (prompt, step))
    return [
        StepLatencies(int(tokens.shape[1]), first["latency"], first["latency_ms"], last["latency"], last["latency_ms"])
        for first, last in zip(prefill, decode, strict=True)
    ]


def note_steps(adapter: Adapter, best: Trial, model: Model, history: History) -> None:
    """Time the steps of the best trial and record them, unless they are recorded, or the model has no cache.

    Args:
        adapter: builds the float model, and holds the probe samples.
        best: the trial.
        model: its model. Its session is closed afterwards.
        history: where the latencies are noted.
    """
    has_cache = any(spec.follows == CACHE for spec in adapter.inputs)
    if not has_cache or not adapter.probe_samples or steps_of(history.notes, best) is not None:
        return
    float_model = adapter.assemble(None)
    try:
        (steps,) = step_latencies([model], float_model, adapter.probe_samples[0])
        history.note(NOTE, {"trial": best.number, "fingerprint": best.config.fingerprint, **asdict(steps)})
    except Exception:
        log.warning("the steps of the best model could not be timed", exc_info=True)
    finally:
        model.close()
        float_model.close()


def steps_of(notes: PlainMapping, best: Trial | None) -> StepLatencies | None:
    """Return the latencies of the best trial's steps, from the notes of a history; None if there are none."""
    record = notes.get(NOTE)
    if best is None or not isinstance(record, dict) or record.get("fingerprint") != best.config.fingerprint:
        return None
    try:
        fields = Fields(record, NOTE)
        figures = {name: fields.take(name, float) for name in ("prompt", "prompt_ms", "token", "token_ms")}
        return StepLatencies(fields.take("tokens", int), **figures)
    except MalformedRecord as error:
        log.warning("the recorded latencies of steps cannot be read: %s", error)
        return None
