"""The index of the site's full-text search, which works from the file system: a script with the text of every page."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable
from pathlib import Path

ARTICLE = re.compile(r'<article class="bd-article".*?</article>', re.DOTALL)
UNREAD = re.compile(r"<(script|style|svg|math|template)\b.*?</\1>", re.DOTALL)  # not words
HEADING = re.compile(r'<h([1-4])>(.*?)<a class="headerlink" href="#([^"]*)"', re.DOTALL)
TAG = re.compile(r"<[^>]+>")


def words(markup: str) -> str:
    """The text of a piece of HTML."""
    return " ".join(html.unescape(TAG.sub(" ", markup)).split())


def entry(page: str, address: str) -> dict[str, object] | None:
    """A page's address, title, headings (text, id) and text; None if it has no article."""
    article = ARTICLE.search(page)
    if not article:
        return None
    markup = UNREAD.sub(" ", article.group())
    headings = [(words(text), name) for _, text, name in HEADING.findall(markup)]
    text = words(HEADING.sub(" ", markup))
    return {
        "url": address,
        "title": headings[0][0] if headings else address,
        "headings": headings[1:],
        "text": text,
    }


def index(site: Path, repeated: Iterable[str] = ()) -> str:
    """The script that holds the index of a rendered site. repeated: pages that repeat another one."""
    left_out = {"search.html", "genindex.html", *repeated}
    pages = {path.relative_to(site).as_posix(): path for path in sorted(site.rglob("*.html"))}
    entries = [entry(path.read_text(), name) for name, path in pages.items() if name not in left_out]
    return f"searchIndex({json.dumps([page for page in entries if page], ensure_ascii=False)});\n"
