"""Every code block of the pages is run, or is marked as not run with the reason, or is output."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import code_blocks
import pytest
import scenes
from pages import run_page, to_run

from quaver.strategies import registry

TESTS = Path(__file__).parents[1]
# Other test folders run the pages whose scene needs an environment of its own.
ELSEWHERE = {"torch": "with_torch", "mxnet": "with_mxnet"}
RUN = [page for page in code_blocks.PAGES if to_run(page) and code_blocks.scene_of(page) not in ELSEWHERE]


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reader")
    scenes.make_folder(folder)
    return folder


@pytest.mark.parametrize("page", code_blocks.PAGES)
def test_a_block_is_output_or_in_a_language_that_can_be_run(page: str) -> None:
    for block in code_blocks.blocks(page):
        known = (*code_blocks.LANGUAGES, *code_blocks.PROGRAMS, *code_blocks.OUTPUT)
        assert block.language in known, f"{block}: {block.language}"
        assert block.not_run or block.language not in code_blocks.PROGRAMS, (
            f"{block}: mark it with <!-- not run: why -->"
        )
        if block.is_output:
            assert not re.search(r"^(pip|make|quaver|import|from) ", block.code, re.MULTILINE), f"{block} is code"


@pytest.mark.parametrize("page", RUN)
def test_the_blocks_of_a_page_run_one_after_the_other(
    page: str, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "reader"
    shutil.copytree(prepared, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    scene = code_blocks.scene_of(page)
    needed = scene != "onnx" or any(block.language == "python" for block in to_run(page))
    run_page(page, scenes.SCENES[scene]() if needed else {})


def test_pages_for_other_environments_are_run_by_their_tests() -> None:
    for page in code_blocks.PAGES:
        folder = ELSEWHERE.get(code_blocks.scene_of(page))
        if folder is not None:
            tests = [path.read_text(encoding="utf-8") for path in (TESTS / folder).glob("test_*.py")]
            assert any(f'"{page}"' in text for text in tests), f"{page}: not run in tests/{folder}"
