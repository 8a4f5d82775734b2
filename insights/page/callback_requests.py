"""Check requests to the callbacks before Dash reads them: an invalid request is answered with 400, not with 500.

The page's own script sends valid requests. Others come from a scanner, a stale tab or another program. They must
neither fill the log with tracebacks nor look like an error of the page.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from dash import Dash
from dash.exceptions import DependencyException, InvalidResourceError
from flask import Flask, abort, request

from quaver.types import PlainMapping

UPDATE = "/_dash-update-component"
# Judgement: bytes of a request. The page sends a few KB, and a few MB when thousands of trials are selected.
MAX_BYTES = 64 * 2**20


class InvalidRequest(ValueError):
    """A request that the page's own script would not send; the message says why."""


def refuse_invalid_requests(app: Dash) -> None:
    """Answer requests that fit no callback with 400, and requests for missing files with 404."""
    server: Flask = app.server
    server.config["MAX_CONTENT_LENGTH"] = MAX_BYTES

    @server.before_request
    def check() -> None:
        if request.path != UPDATE or request.method != "POST":
            return
        try:
            check_callback(json.loads(request.get_data()), app.callback_map)
        except (InvalidRequest, ValueError, RecursionError) as error:
            abort(400, f"Invalid request: {error}")

    @server.errorhandler(DependencyException)
    @server.errorhandler(InvalidResourceError)
    @server.errorhandler(FileNotFoundError)
    def missing(error: Exception) -> tuple[str, int]:
        return "File not found.", 404

    @server.before_request
    def check_path() -> None:
        if "\x00" in request.path or ".." in request.path.split("/"):
            abort(400, "Invalid path.")


def check_callback(body: object, callbacks: Mapping[str, PlainMapping]) -> None:
    """Raise `InvalidRequest` if a request does not have the form that Dash's own script sends.

    Args:
        body: the request, as read from JSON.
        callbacks: Dash's `callback_map`: inputs and states by the name of the outputs.
    """
    if not isinstance(body, dict):
        raise InvalidRequest("it is not a JSON object")
    output = body.get("output")
    if not isinstance(output, str) or output not in callbacks:
        raise InvalidRequest("there is no such output")
    callback = callbacks[output]
    _check_parts(body.get("inputs"), callback["inputs"], "inputs")
    _check_parts(body.get("state", []), callback["state"], "state")
    _check_outputs(body.get("outputs"), output)
    changed = body.get("changedPropIds", [])
    if not isinstance(changed, list) or not all(isinstance(name, str) and _is_property(name) for name in changed):
        raise InvalidRequest("changedPropIds must be a list of property names")


def _check_parts(parts: object, expected: Sequence[Mapping[str, str]], name: str) -> None:
    if not isinstance(parts, list) or len(parts) != len(expected):
        raise InvalidRequest(f"{name} must be a list of {len(expected)}")
    for part, spec in zip(parts, expected, strict=True):
        pattern = _identity(spec["id"])
        components = part if _is_pattern(pattern) else [part]
        if not isinstance(components, list):
            raise InvalidRequest(f"{name} must hold a list for {spec['id']}")
        for component in components:
            if not isinstance(component, dict) or component.get("property") != spec["property"]:
                raise InvalidRequest(f"{name} must hold {spec['id']}.{spec['property']}")
            if not _fits(component.get("id"), pattern):
                raise InvalidRequest(f"{name} must hold {spec['id']}")


def _check_outputs(outputs: object, output: str) -> None:
    """Check that the requested outputs are those of the callback."""
    names = output[2:-2].split("...") if output.startswith("..") else [output]
    parts = outputs if output.startswith("..") else [outputs]
    if not isinstance(parts, list) or len(parts) != len(names):
        raise InvalidRequest(f"outputs must be {len(names)}")
    for part, name in zip(parts, names, strict=True):
        pattern = _identity(name.rpartition(".")[0])
        components = part if _is_pattern(pattern) else [part]
        if not isinstance(components, list):
            raise InvalidRequest(f"outputs must hold a list for {name}")
        for component in components:
            if not isinstance(component, dict) or not isinstance(component.get("property"), str):
                raise InvalidRequest(f"outputs must hold {name}")
            if not _fits(component.get("id"), pattern):
                raise InvalidRequest(f"outputs must hold {name}")


def _identity(name: str) -> object:
    """Return the id of a component: a text, or the dict in a JSON text."""
    return json.loads(name) if name.startswith("{") else name


def _is_pattern(pattern: object) -> bool:
    return isinstance(pattern, dict) and any(isinstance(value, list) for value in pattern.values())


def _fits(identity: object, pattern: object) -> bool:
    """Return True if an id is the one of a callback, or matches its wildcards."""
    if not isinstance(pattern, dict):
        return bool(identity == pattern)
    if not isinstance(identity, dict) or identity.keys() != pattern.keys():
        return False
    return all(
        isinstance(identity[key], str | int) if isinstance(value, list) else identity[key] == value
        for key, value in pattern.items()
    )


def _is_property(name: str) -> bool:
    """Return True if a text names a property of a component, as in `run.value` or `{"grid":"ops"}.rowData`."""
    identity, _, prop = name.rpartition(".")
    if not identity or not prop:
        return False
    return not identity.startswith("{") or isinstance(json.loads(identity), dict)
