"""The tokenizer: text to token ids and back, and the text of single ids.

The only module that knows the vocabulary, through `tokenizer.json`. Knows nothing about messages, roles or
the model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localdiff.checkpoint_files import TOKENIZER, read_small, require_readable
from localdiff.errors import ContextError, UsageError, WeightsError, one_line
from localdiff.text.shield import Segment, Shield
from localdiff.utf8 import require_text

if TYPE_CHECKING:
    import tokenizers

REPLACEMENT = "\ufffd"

# In characters: shorter text is tokenized in no time, but some times as much takes gigabytes and minutes.
_LONG = 1_000_000

# Gemma's markers have a bar inside an angle bracket. They count even if the file forgot to flag them as special.
_MARKER = re.compile(r"<\|\S*>|<\S*\|>")


class Tokenizer:
    """The vocabulary of one checkpoint.

    A *control token* is an added token that is flagged special in `tokenizer.json`, or that is shaped like
    one of Gemma's markers (`<|...>`, `<...|>`). Added tokens that stand for ordinary text, such as runs of
    newlines, are not.

    Attributes:
        control: id of every control token by its text.
        shield: keeps typed text from becoming control tokens; `ChatTemplate.encode` uses it.
        path: its file.

    Raises:
        WeightsError: `tokenizer.json` is missing, or cannot be read.
    """

    def __init__(self, directory: Path) -> None:
        self.path = Path(directory) / TOKENIZER
        self._backend = _read(self.path)
        added = self._backend.get_added_tokens_decoder()
        self.control: Mapping[str, int] = {
            token.content: id for id, token in added.items() if token.special or _MARKER.fullmatch(token.content)
        }
        self.shield = Shield(self.control)
        self._control_ids = frozenset(self.control.values())
        self._pieces: dict[int, str] = {}

    def is_special(self, id: int) -> bool:
        """Whether `id` is a control token."""
        return id in self._control_ids

    def is_known(self, id: int) -> bool:
        """Whether `id` has a token; a model's embedding may have more rows than the vocabulary has tokens."""
        return id >= 0 and self._backend.id_to_token(id) is not None

    def is_byte(self, id: int) -> bool:
        """Whether `id` is one byte, `<0x00>` to `<0xFF>`, of a character that the vocabulary lacks."""
        return id in self._byte_ids

    def encode(self, text: str) -> list[int]:
        """The ids of trusted text: control tokens written in it become control ids; none is added around it.

        For typed text use `ChatTemplate.encode`, or `encode_literal`.

        Raises:
            UsageError: `text` holds a lone surrogate.
        """
        require_text(text, "the prompt", "a prompt is UTF-8 text")
        return self._backend.encode(text, add_special_tokens=False).ids

    def encode_literal(self, text: str, *, max_tokens: int | None = None) -> list[int]:
        """The ids of literal text, without control tokens: `<turn|>` is encoded as its characters.

        Raises:
            UsageError, ContextError: as `encode_segments`.
        """
        return self.encode_segments(self.shield.segments(self.shield.cover(text)), max_tokens=max_tokens)

    def encode_segments(self, segments: Iterable[Segment], *, max_tokens: int | None = None) -> list[int]:
        """The ids of a prompt in which some segments are literal.

        Args:
            max_tokens: number of ids that are of any use; the result may still be longer.

        Raises:
            UsageError: a literal segment cannot be encoded without the control token it looks like, or the text
                holds a lone surrogate.
            ContextError: the text is so long that it must have more than `max_tokens` ids.
        """
        segments = list(segments)
        size = sum(len(segment.text) for segment in segments)
        if max_tokens is not None and size > _LONG and size > max_tokens * self._longest:
            raise ContextError(
                f"a text of {size:,} characters does not fit into a context of {max_tokens:,} tokens",
                "send the part that matters",
            )
        ids: list[int] = []
        for segment in segments:
            ids += self._spell(segment.text) if segment.literal else self.encode(segment.text)
        return ids

    def decode(self, ids: Sequence[int], special: bool = False) -> str:
        """The text of `ids`, without those that have no token.

        Args:
            special: write control tokens as text; otherwise they are left out.
        """
        text_ids = ids if special else [id for id in ids if id not in self._control_ids]
        return self._backend.decode(list(text_ids), skip_special_tokens=False)

    def piece(self, id: int) -> str:
        """The text of one id on a canvas.

        A marker of a leading space is a space; a control token is its own text, and so is a byte token such as
        `<0xE2>`; an id without a token is U+FFFD.
        """
        piece = self._pieces.get(id)
        if piece is None:
            piece = self._pieces[id] = self._make_piece(id)
        return piece

    @cached_property
    def decoder_steps(self) -> tuple[Mapping[str, Any], ...]:
        """The decoder steps as in `tokenizer.json`, sequences flattened; may be empty."""
        decoder = self._backend.decoder
        return () if decoder is None else tuple(_flatten(json.loads(decoder.__getstate__())))

    @cached_property
    def _longest(self) -> int:
        """Characters of the longest token: no id stands for more, as unknown characters become bytes."""
        return max(map(len, self._backend.get_vocab()))

    @cached_property
    def _byte_ids(self) -> frozenset[int]:
        ids = (self._backend.token_to_id(f"<0x{byte:02X}>") for byte in range(256))
        return frozenset(id for id in ids if id is not None)

    def _make_piece(self, id: int) -> str:
        token = self._backend.id_to_token(id) if id >= 0 else None
        if token is None:
            return REPLACEMENT
        if id in self._control_ids or id in self._byte_ids:
            return token
        for step in self.decoder_steps:
            if step["type"] == "Replace" and "String" in step["pattern"]:
                token = token.replace(step["pattern"]["String"], step["content"])
        return token

    def _spell(self, text: str) -> list[int]:
        """Ids of `text` without the table of added tokens; by single characters if it still gives a control token."""
        ids = self._model_ids(text)
        if self._control_ids.isdisjoint(ids):
            return ids
        ids = [id for character in text for id in self._model_ids(character)]
        if self._control_ids.isdisjoint(ids):
            return ids
        raise UsageError(
            f"the prompt contains `{text}`, which this tokenizer cannot distinguish from its own control token",
            hint="leave it out or write it differently",
        )

    def _model_ids(self, text: str) -> list[int]:
        normalizer, pre_tokenizer = self._backend.normalizer, self._backend.pre_tokenizer
        normal = text if normalizer is None else normalizer.normalize_str(text)
        words = [normal]
        if pre_tokenizer is not None:
            words = [word for word, _ in pre_tokenizer.pre_tokenize_str(normal)]
        return [token.id for word in words for token in self._backend.model.tokenize(word)]


def _read(path: Path) -> tokenizers.Tokenizer:
    import tokenizers

    if not path.is_file():
        raise WeightsError(
            f"`{path.parent}` has no `{path.name}`",
            hint="give the directory of a complete checkpoint, or its name on the Hub",
        )
    require_readable(path)
    try:
        backend = tokenizers.Tokenizer.from_str(read_small(path).decode())
    except Exception as error:  # the library raises no other for any error in the file
        hint = "the file may be cut off; fetch it again"
        raise WeightsError(f"`{path}` is not a tokenizer that can be read: {one_line(error)}", hint) from error
    # The file may carry settings of a training run, which would truncate or pad prompts.
    backend.no_truncation()
    backend.no_padding()
    return backend


def _flatten(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if spec["type"] == "Sequence":
        return [step for part in spec["decoders"] for step in _flatten(part)]
    return [spec]
