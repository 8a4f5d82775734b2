"""Hooks of `mkdocs build` (see mkdocs.yml): complete navigation, links that fit the site, no content of other hosts."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

# A browser fetches these without a click: scripts, styles, fonts, pictures, frames.
_FETCHED = re.compile(r"""<(?:script|img|iframe|source|link(?![^>]*rel=["']?canonical))\b[^>]*(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)""")  # fmt: skip  # noqa: E501
_OUTSIDE = re.compile(r"\[([^\]]*)\]\((\.\./[^)]*)\)")


def on_config(config: Any) -> Any:
    """Add pages that the navigation does not list under "More", so that each can be reached."""
    docs = Path(config.docs_dir)
    listed = set(_pages(config.nav))
    more = sorted(page for path in docs.rglob("*.md") if (page := path.relative_to(docs).as_posix()) not in listed)
    if more:
        config.nav.append({"More": more})
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Replace links to files that are not pages by their text, because the site contains only pages."""
    docs = Path(config.docs_dir).resolve()

    def without_link(link: re.Match[str]) -> str:
        target = (docs / page.file.src_uri).parent / link[2].partition("#")[0]
        return link[0] if target.resolve().is_relative_to(docs) else link[1]

    return _OUTSIDE.sub(without_link, markdown)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Refuse a page that makes a browser fetch something from another host."""
    if fetched := _FETCHED.search(output):
        raise PluginError(f"{page.file.src_uri} would fetch {fetched[1]} from another host")
    return output


def _pages(nav: Any) -> Iterator[str]:
    """Yield all pages that a navigation lists."""
    if isinstance(nav, str):
        yield nav
    else:
        for item in nav.values() if isinstance(nav, dict) else nav:
            yield from _pages(item)
