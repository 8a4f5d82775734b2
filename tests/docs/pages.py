"""Run a page as its reader would: block after block, in a folder with the files that pages use."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import code_blocks
from code_blocks import Block

from quaver.api.config.resolve import make_config
from quaver.command.main import main


def to_run(page: str) -> list[Block]:
    """Return the blocks of a page that are neither output nor marked as not run."""
    return [block for block in code_blocks.blocks(page) if not block.not_run and not block.is_output]


def run_page(page: str, names: dict[str, Any]) -> None:
    """Run all blocks of a page in the current folder. Python code starts with `names` and adds its own to them."""
    names["__name__"] = "page"
    for block in to_run(page):
        match block.language:
            case "python":
                _run_python(block, names)
            case "sh":
                _run_commands(block)
            case "yaml":
                _read_settings(block)
            case "toml":
                assert tomllib.loads(block.code)


def _run_python(block: Block, names: dict[str, Any]) -> None:
    """Run a block with the names of the blocks before it. A traceback shows the line of the page."""
    code = "\n" * (block.line - 1) + block.code
    exec(compile(code, str(code_blocks.ROOT / block.page), "exec"), names)


def _run_commands(block: Block) -> None:
    for words in code_blocks.commands(block):
        assert words[0] == "quaver", f"{block}: only `quaver` is run here; mark the block with <!-- not run: why -->"
        assert main(words[1:]) == 0, f"{block}: {words}"


def _read_settings(block: Block) -> None:
    path = Path("block.yaml")
    path.write_text(block.code, encoding="utf-8")
    make_config(path)
