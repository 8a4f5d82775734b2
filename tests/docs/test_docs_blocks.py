"""Every code block of the pages does what it says: it is run, or marked as not run with the reason, or it is output."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

import code_blocks
import pytest
import scenes
from code_blocks import Block

from quaver.api.settings import make_config
from quaver.command.main import main
from quaver.strategies import registry

RUN = [page for page in code_blocks.PAGES if any(not b.not_run and not b.is_output for b in code_blocks.blocks(page))]


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reader")
    scenes.make_folder(folder)
    return folder


@pytest.mark.parametrize("page", code_blocks.PAGES)
def test_a_block_is_code_of_a_language_that_is_run_here_or_output(page: str) -> None:
    for block in code_blocks.blocks(page):
        assert block.language in (*code_blocks.LANGUAGES, *code_blocks.OUTPUT), f"{block}: {block.language}"
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
    todo = [block for block in code_blocks.blocks(page) if not block.not_run and not block.is_output]
    names = scenes.SCENES[code_blocks.scene_of(page)]() if any(block.language == "python" for block in todo) else {}
    names["__name__"] = "page"
    for block in todo:
        match block.language:
            case "python":
                run_python(block, names)
            case "sh":
                run_commands(block)
            case "yaml":
                read_settings(block)
            case "toml":
                assert tomllib.loads(block.code)


def run_python(block: Block, names: dict[str, object]) -> None:
    """As a reader would, with what the blocks before it left. A traceback names the line of the page."""
    code = "\n" * (block.line - 1) + block.code
    exec(compile(code, str(code_blocks.ROOT / block.page), "exec"), names)


def run_commands(block: Block) -> None:
    for words in code_blocks.commands(block):
        assert words[0] == "quaver", f"{block}: only `quaver` is run here; mark the block with <!-- not run: why -->"
        assert main(words[1:]) == 0, f"{block}: {words}"


def read_settings(block: Block) -> None:
    path = Path("block.yaml")
    path.write_text(block.code, encoding="utf-8")
    make_config(path)
