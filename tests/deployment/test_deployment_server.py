"""The server and the container of docs/deploy.md."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from saved_models import SavedModel, block, relative_error

PAGE = "docs/deploy.md"
ROOT = Path(__file__).parents[2]


def instructions() -> dict[str, str]:
    """Return the instructions of the Dockerfile; each occurs once."""
    lines = [line.split(" ", 1) for line in block(PAGE, "dockerfile").splitlines()]
    assert len(dict(lines)) == len(lines)
    return dict(lines)


def start(command: list[str], folder: Path) -> tuple[subprocess.Popen[str], str]:
    """Start uvicorn, and return the process and its address."""
    name, *words = command
    words[words.index("--port") + 1] = "0"  # any free port
    environment = {**os.environ, **dict([instructions()["ENV"].split("=")])}
    process = subprocess.Popen(
        [sys.executable, "-m", name, *words], cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    printed = ""
    for line in process.stderr:
        printed += line
        if found := re.search(r"running on http://[\d.]+:(\d+)", line):
            return process, f"http://127.0.0.1:{found[1]}"
    raise AssertionError(printed)


@pytest.fixture(scope="module")
def address(cnn: SavedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server as the container starts it, in a folder with the files that it copies."""
    folder = tmp_path_factory.mktemp("app")
    files = instructions()["COPY"].split()[:-1]
    (folder / "server.py").write_text(block(PAGE, "python"))
    (folder / cnn.path.name).write_bytes(cnn.path.read_bytes())
    assert sorted(files) == sorted(path.name for path in folder.iterdir())
    process, address = start(json.loads(instructions()["CMD"]), folder)
    yield address
    process.terminate()
    assert process.wait(timeout=60) in (0, -15)


def post(address: str, body: Any) -> tuple[int, Any]:
    request = urllib.request.Request(
        f"{address}/predict", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_the_server_answers_as_the_saved_model_does(address: str, cnn: SavedModel) -> None:
    status, answer = post(address, {"inputs": {name: values.tolist() for name, values in cnn.inputs.items()}})
    assert status == 200
    expected = cnn.outputs()
    found = {name: {"dims": expected[name].shape, "data": np.ravel(rows)} for name, rows in answer.items()}
    assert relative_error(found, expected) < 1e-6


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "'image' is missing"),
        ({"image": [[1.0]]}, "image"),
        ({"image": "text"}, "list"),
        ({"image": [["a"]]}, "float"),
    ],
)
def test_a_wrong_request_is_refused_with_the_reason(address: str, inputs: Any, message: str) -> None:
    status, answer = post(address, {"inputs": inputs})
    assert status == 422
    assert message in json.dumps(answer)


def test_the_health_check_of_the_container_succeeds(address: str) -> None:
    command = json.loads(instructions()["HEALTHCHECK"].removeprefix("CMD "))
    command = [word.replace("http://127.0.0.1:8000", address) for word in command[1:]]
    for attempt in range(3):
        if subprocess.run([sys.executable, *command], check=False).returncode == 0:
            return
        time.sleep(attempt)
    raise AssertionError(shlex.join(command))


def test_the_container_installs_versions_that_are_tested() -> None:
    tested = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            tested[Requirement(line).name] = Requirement(line).specifier
    for word in instructions()["RUN"].split()[3:]:
        requirement = Requirement(word)
        (pinned,) = requirement.specifier
        assert tested.get(requirement.name, SpecifierSet()).contains(pinned.version), word
