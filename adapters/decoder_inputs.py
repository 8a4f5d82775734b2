"""Inputs of a decoder with a cache that follow from its token numbers: the mask, the positions and the cache itself.

A step reads new tokens and the cache of all tokens before them. Data and evaluations hold texts from their beginning,
so there the cache is empty, the mask holds ones, and positions count from zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from quaver.types import Array, Feed

if TYPE_CHECKING:
    from quaver.adapters.data import InputSpec

# The values of `InputSpec.follows`: what an input holds that follows from the token numbers.
MASK, POSITIONS, CACHE, FALSE = "mask", "positions", "cache", "false"
_PAST, _PRESENT = "past", "present"


def with_derived_inputs(inputs: Sequence[InputSpec], head_size: int | None = None) -> tuple[InputSpec, ...]:
    """Return the inputs of a model; where it has a cache, those that follow from the token numbers are marked.

    Args:
        inputs: all inputs.
        head_size: the last dimension of the cache, which some models leave open.
    """
    if not any(_is_cache(spec) for spec in inputs):
        return tuple(inputs)
    return tuple(replace(spec, follows=_derivation(spec), shape=_cache_shape(spec, head_size)) for spec in inputs)


def derived(spec: InputSpec, tokens: Array) -> Array:
    """Return what an input holds at the beginning of texts.

    Args:
        spec: an input that follows from the token numbers.
        tokens: the token numbers, [texts, length].
    """
    if spec.follows == MASK:
        return np.ones(tokens.shape, spec.dtype)
    if spec.follows == POSITIONS:
        return np.broadcast_to(np.arange(tokens.shape[1], dtype=spec.dtype), tokens.shape).copy()
    if spec.follows == FALSE:
        return np.zeros(1, spec.dtype)
    shape = spec.shape or ()
    sizes = [(0 if at else len(tokens)) if size is None else size for at, size in enumerate(shape)]
    return np.zeros(sizes, spec.dtype)


def completed(batch: Mapping[str, Any], inputs: Sequence[InputSpec]) -> Mapping[str, Any]:
    """Return a batch by input name with the inputs that it lacks and that follow from its token numbers."""
    missing = [spec for spec in inputs if spec.follows and spec.name not in batch]
    source = next((spec.name for spec in inputs if not spec.follows and spec.dtype.kind in "iu"), None)
    if not missing or source is None or source not in batch:
        return batch
    tokens = np.asarray(batch[source])
    tokens = tokens[None] if tokens.ndim == 1 else tokens
    return {**batch, **{spec.name: derived(spec, tokens) for spec in missing}} if tokens.ndim == 2 else batch


def next_feed(feed: Feed, inputs: Sequence[InputSpec], outputs: Mapping[str, Array], tokens: Array) -> Feed:
    """Return the feed of the next step: new tokens, and the cache that the last step wrote.

    Args:
        feed: the feed of the last step.
        inputs: inputs of the model.
        outputs: outputs of the last step by name.
        tokens: the new token numbers, [texts, length].
    """
    presents = [name for name in outputs if name.startswith(_PRESENT)]
    caches = iter(presents)
    step: Feed = {}
    for spec in inputs:
        last = feed[spec.name]
        if spec.follows == CACHE:
            name = next(caches)
            paired = spec.name.replace("past_key_values", _PRESENT)
            step[spec.name] = outputs[paired if paired in outputs else name]
        elif spec.follows == MASK:
            step[spec.name] = np.concatenate([last, np.ones(tokens.shape, last.dtype)], axis=1)
        elif spec.follows == POSITIONS:
            step[spec.name] = last[:, -1:] + 1 + np.arange(tokens.shape[1], dtype=last.dtype)
        elif spec.follows == FALSE:
            step[spec.name] = np.ones(1, last.dtype)
        else:
            step[spec.name] = tokens.astype(last.dtype)
    return step


def _is_cache(spec: InputSpec) -> bool:
    is_open = spec.shape is not None and len(spec.shape) > 2 and any(size is None for size in spec.shape[1:])
    return spec.name.startswith(_PAST) and spec.dtype.kind == "f" and is_open


def _cache_shape(spec: InputSpec, head_size: int | None) -> tuple[int | None, ...] | None:
    if head_size is None or not _is_cache(spec) or spec.shape is None or spec.shape[-1] is not None:
        return spec.shape
    return (*spec.shape[:-1], head_size)


def _derivation(spec: InputSpec) -> str:
    rank = len(spec.shape or ())
    if _is_cache(spec):
        return CACHE
    if spec.dtype.kind == "b" and "cache" in spec.name:
        return FALSE
    if rank == 2 and spec.dtype.kind in "iu":
        return MASK if "mask" in spec.name else POSITIONS if "position" in spec.name else ""
    return ""
