"""A page of HTML without a browser: its elements, and its words."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser


class Elements(HTMLParser):
    """Every element with its attributes, and the text of some."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts.setdefault(self._open[-1], []).append(data)


def words_of(text: str) -> str:
    """What a reader reads, on one line."""
    body = re.sub(r"<(style|script)\b.*?</\1>", "", text.partition("<body>")[2], flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())
