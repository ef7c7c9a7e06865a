"""An observer of downloads that remembers what it was told."""

from __future__ import annotations


class DownloadLog:
    """Bytes done, by name of a file; names of fetched files; and notes."""

    def __init__(self) -> None:
        self.bytes: dict[str, list[int]] = {}
        self.fetched: list[str] = []
        self.notes: list[str] = []

    def on_bytes(self, name: str, done: int) -> None:
        self.bytes.setdefault(name, []).append(done)

    def on_fetched(self, name: str) -> None:
        self.fetched.append(name)

    def on_note(self, text: str) -> None:
        self.notes.append(text)
