"""Writes small `tokenizer.json` files of the kinds that matter: byte fallback, as in Gemma, and others."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from localdiff.text.tokenizer import Tokenizer as Vocabulary

CONTROL = (
    "<pad>",
    "<eos>",
    "<bos>",
    "<unk>",
    "<mask>",
    "<|turn>",
    "<turn|>",
    "<|channel>",
    "<channel|>",
    "<|think|>",
    "<|tool>",
    "<tool|>",
    "<|tool_call>",
    "<tool_call|>",
    "<|tool_response>",
    "<tool_response|>",
    '<|"|>',
)
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
LETTERS = tuple("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:;!?'\"+-=<>|_(){}[]é")
MERGES = (
    "t h", "th e", "▁ the", "o u", "th ou", "g h", "gh t", "thou ght", "e r", "u s", "us er", "m o", "d e",
    "mo de", "mode l", "t u", "r n", "tu rn", "| >", "< |",
)  # fmt: skip


def gemma_like(directory: Path, *, flag_markers: bool = True, decoder: str = "gemma") -> Path:
    """BPE with byte fallback; spaces are `▁`, newlines are added tokens that are not special.

    Args:
        flag_markers: flag markers such as `<|turn>` as special, as `tokenizer.json` should.
        decoder: `gemma`, or `llama`, which strips one leading space of the whole text.
    """
    merges = [(first, second) for first, second in map(str.split, MERGES)]
    merged = (first + second for first, second in merges)
    pieces = [*CONTROL, *BYTES, "\n", "\n\n", "▁", *LETTERS, *merged, "\ufffd", "<unused0>"]
    vocabulary = {piece: id for id, piece in enumerate(pieces)}
    backend = Tokenizer(
        models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    steps: list[decoders.Decoder] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if decoder == "llama":
        steps.append(decoders.Strip(" ", 1, 0))
    backend.decoder = decoders.Sequence(steps)
    special = [token for token in CONTROL if flag_markers or "|" not in token]
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    plain = [token for token in CONTROL if token not in special]
    backend.add_tokens([AddedToken(text, normalized=False) for text in ("\n", "\n\n", "<unused0>", *plain)])
    return _write(backend, directory)


def word_pieces(directory: Path) -> Path:
    """A decoder that cleans up across tokens, so that no text is final before the end."""
    pieces = [*CONTROL, "a", "b", "n", "##b", ".", "'", "t", "n't"]
    backend = Tokenizer(models.WordLevel({piece: id for id, piece in enumerate(pieces)}, unk_token="<unk>"))
    backend.decoder = decoders.WordPiece()
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in CONTROL])
    return _write(backend, directory)


def no_decoder(directory: Path) -> Path:
    """A tokenizer whose tokens are joined by spaces."""
    pieces = [*CONTROL, "a", "b", "c"]
    backend = Tokenizer(models.WordLevel({piece: id for id, piece in enumerate(pieces)}, unk_token="<unk>"))
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in CONTROL])
    return _write(backend, directory)


def size_of(vocabulary: Vocabulary) -> int:
    """Number of ids that have a token; ids begin at 0."""
    return next(id for id in count() if not vocabulary.is_known(id))


def _write(backend: Tokenizer, directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    backend.save(str(directory / "tokenizer.json"))
    return directory
