"""What fuzzing starts from, and what it once found, is read or refused, and nothing else happens."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz_targets import CORPUS, TARGETS, harmless, kept

FILES = [(target, path) for target in TARGETS for path in kept(target)]


@pytest.mark.parametrize(("target", "path"), FILES, ids=[f"{target}-{path.name}" for target, path in FILES])
def test_a_kept_file_does_no_harm(target: str, path: Path) -> None:
    harmless(target, path.read_bytes())


@pytest.mark.parametrize("target", TARGETS)
def test_fuzzing_starts_from_files_that_are_sound(target: str) -> None:
    files = sorted((CORPUS / target).glob("*"))
    assert files
    for path in files:
        if path.name != "sparse":  # its data lies outside, in a file of the repository's top
            TARGETS[target](path.read_bytes())
