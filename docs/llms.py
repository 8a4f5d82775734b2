"""Write docs/llms.txt, a list of all pages for language models: python docs/llms.py

The navigation of mkdocs.yml gives the sections, and the first paragraph of each page says what it is about.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

DOCS = Path(__file__).parent
PAGE = DOCS / "llms.txt"
HEAD = """\
# quaver

> Auto-tuning for post-training quantization: quaver finds which ops of a float model can run in int8 so that the model
> is as fast as possible and still meets the user's accuracy criterion, and explains why the other ops cannot.

`quaver.fit(model, calib_dataloader=batches, eval_func=accuracy, relative=0.01)` does it in Python,
`quaver tune` in a shell.

"""


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml without the Python functions that it names."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)


def page() -> str:
    """Return docs/llms.txt."""
    nav = yaml.load((DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8"), _Loader)["nav"]
    return HEAD + "".join(_lines(nav, ""))


def _lines(nav: Any, title: str) -> Iterator[str]:
    """Yield a section for each list of pages, and a line for each page."""
    if title and any(isinstance(target, str) for item in nav for target in item.values()):
        yield f"\n## {title}\n\n"
    for item in nav:
        ((name, target),) = item.items() if isinstance(item, dict) else (("Start", item),)
        if isinstance(target, str):
            yield f"- [{name}]({target}): {_about(DOCS / target)}\n"
    for item in nav:
        ((name, target),) = item.items() if isinstance(item, dict) else (("", ""),)
        if isinstance(target, list):
            yield from _lines(target, f"{title}: {name}" if title else name)


def _about(path: Path) -> str:
    """Return the first sentence of a page that is neither heading, comment, list nor code."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for paragraph in text.split("\n\n")[1:]:
        sentence = " ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraph).split())
        if sentence and sentence[0] not in "<#`|!-=*1":
            return re.split(r"(?<=[.:]) ", sentence)[0].rstrip(":")
    return path.stem


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
