"""The guides and the glossary of ``docs/``, as the pages show them: one source, read by people and by the app."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from dflash_lab.errors import LabError

DOCS = Path(__file__).resolve().parent.parent / "docs"
_LINK = re.compile(r"\]\((?:\.\./)?(\w+)\.md(#[\w-]+)?\)")


@cache
def guide(page: str) -> str:
    """The guide of a page as Markdown. Raises LabError where its file is missing."""
    return _read(DOCS / "guide" / f"{page}.md")


@cache
def glossary() -> str:
    """Every word and figure as Markdown. Raises LabError where its file is missing."""
    return _read(DOCS / "glossary.md")


def _read(path: Path) -> str:
    """The text behind its heading, with links to files turned into links to the pages that show them."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise LabError(f"{path} cannot be read: {error.strerror}", "Take the whole project, docs included") from error
    return _LINK.sub(_to_page, text.partition("\n")[2].strip())


def _to_page(link: re.Match[str]) -> str:
    # Relative, so that it holds under a base path; the first page has no name in its address.
    page = "." if link[1] == "run" else link[1]
    return f"]({page}{link[2] or ''})"
