"""Hooks of `mkdocs build` (see mkdocs.yml): the navigation is whole, links fit the site, and nothing is fetched."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

# What a browser fetches by itself: scripts, styles, fonts, pictures, frames.
_FETCHED = re.compile(r"""<(?:script|img|iframe|source|link(?![^>]*rel=["']?canonical))\b[^>]*(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)""")  # fmt: skip  # noqa: E501
_OUTSIDE = re.compile(r"\[([^\]]*)\]\((\.\./[^)]*)\)")


def on_config(config: Any) -> Any:
    """Put pages that stand nowhere in the navigation under "More", so that each can be reached."""
    docs = Path(config.docs_dir)
    listed = set(_pages(config.nav))
    more = sorted(page for path in docs.rglob("*.md") if (page := path.relative_to(docs).as_posix()) not in listed)
    if more:
        config.nav.append({"More": more})
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """A link to a file of the repository that is no page becomes its text: the site has pages alone."""
    docs = Path(config.docs_dir).resolve()

    def plain(link: re.Match[str]) -> str:
        place = (docs / page.file.src_uri).parent / link[2].partition("#")[0]
        return link[0] if place.resolve().is_relative_to(docs) else link[1]

    return _OUTSIDE.sub(plain, markdown)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Refuse a page that makes a browser fetch something from another host."""
    if found := _FETCHED.search(output):
        raise PluginError(f"{page.file.src_uri} would fetch {found[1]} from another host")
    return output


def _pages(nav: Any) -> Iterator[str]:
    """All pages that a navigation lists."""
    if isinstance(nav, str):
        yield nav
    else:
        for item in nav.values() if isinstance(nav, dict) else nav:
            yield from _pages(item)
