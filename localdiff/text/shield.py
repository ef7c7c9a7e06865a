"""Keeps typed text from turning into control tokens.

Knows control tokens as strings and one mark; knows nothing about ids, roles or templates.

A chat template writes control tokens (`<|turn>`, `<turn|>`, ...) as text around the messages, and the
tokenizer reads them back from the one rendered string, so a message that holds `<turn|>` would close its own
turn. transformers offers `sanitize_control_tokens=True` against that. Here it is always on, and costs nothing
where a message holds no control token: the ids are then exactly those of the released rendering.

    cover      "2<3 <turn|>" ─► "2<·3 <·turn|>"          · is MARK, after every character that starts a token
    render     "<|turn>user 2<·3 <·turn|><turn|>"        the template's own tokens carry no mark
    segments   "<|turn>user 2<3 " │ "<turn|>" as text │ "<turn|>"

The mark goes after every such character and not only into whole tokens, because a template cuts and joins
strings: from `<chan<channel|>nel|>` it removes the inner token and thereby makes a new one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

MARK = "\ufdd0"
"""A Unicode noncharacter: reserved for use inside a program, never for exchange between programs."""

_NEVER = "(?!)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """A stretch of a prompt.

    Attributes:
        text: the characters, free of marks.
        literal: True where `text` looks like a control token and must be encoded as ordinary text.
    """

    text: str
    literal: bool


class Shield:
    """Marks typed text before rendering and finds it again afterwards.

    Args:
        control: the strings that a tokenizer reads as control tokens. Those that begin with white space are
            left out: a template writes white space as ordinary text.
    """

    def __init__(self, control: Iterable[str]) -> None:
        # The longest first: the tokenizer prefers the longest of several tokens that begin at one place.
        tokens = sorted({token for token in control if token.strip() == token != ""}, key=len, reverse=True)
        starts = sorted({token[0] for token in tokens})
        self._tokens = frozenset(tokens)
        self._token_pattern = re.compile("|".join(map(re.escape, tokens)) or _NEVER)
        self._start_class = f"[{re.escape(''.join(starts))}]" if starts else _NEVER

    def cover(self, value: Any, keep: Sequence[str] = ()) -> Any:
        """Marks every string in `value`, a JSON-like value, and returns the marked copy.

        Args:
            value: a string, or a list or mapping of such values; anything else comes back as it is. Keys are
                marked only where they hold a whole control token, since templates sort by key.
            keep: control tokens that stay control tokens, for text the model wrote itself.
        """
        if isinstance(value, str):
            return self._cover_text(value, keep)
        if isinstance(value, dict):
            return {self._cover_key(key): self.cover(item, keep) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.cover(item, keep) for item in value]
        return value

    def segments(self, text: str) -> list[Segment]:
        """Cuts a rendered prompt at the control tokens that came from marked strings; drops the marks."""
        pieces = text.split(MARK)
        plain = "".join(pieces)
        covered: set[int] = set()
        length = 0
        for piece in pieces[:-1]:
            length += len(piece)
            covered.add(length - 1)
        segments: list[Segment] = []
        begin = 0
        for match in self._token_pattern.finditer(plain):
            if match.start() in covered:
                if begin < match.start():
                    segments.append(Segment(text=plain[begin : match.start()], literal=False))
                segments.append(Segment(text=match.group(), literal=True))
                begin = match.end()
        if begin < len(plain):
            segments.append(Segment(text=plain[begin:], literal=False))
        return segments

    def _cover_text(self, text: str, keep: Sequence[str]) -> str:
        text = text.replace(MARK, "\ufffd")
        kept = [token for token in keep if token in self._tokens]
        pattern = "|".join([*map(re.escape, sorted(kept, key=len, reverse=True)), self._start_class])
        return re.sub(pattern, lambda match: match[0] if match[0] in kept else match[0] + MARK, text)

    def _cover_key(self, key: Any) -> Any:
        if isinstance(key, str) and (MARK in key or self._token_pattern.search(key)):
            return self._cover_text(key, ())
        return key
