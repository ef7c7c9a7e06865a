"""The demo checkpoint's vocabulary: whole words if questions use them, single characters for all others.

Knows text and pieces; knows nothing about the model. Ids in order: special tokens, 256 byte tokens, single characters,
spelled letters, words, written words. Spaces stay spaces, and bytes stand in for every character without a piece, so
decoding loses nothing.

Every other word is read in letters, so that it can be spelled, sorted and quoted. A word of six letters has six places
to go wrong, so answers that copy nothing are written in whole words: words that are not pieces yet get one piece each,
`▁word`, which decodes to the word with the space before it. No text is tokenized to such a piece.

Written as `tokenizer.json`:

    python -m localdiff.demo.training.vocabulary DIR
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from string import ascii_lowercase

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from localdiff.checkpoint_files import CHAT_TEMPLATE, TOKENIZER, TOKENIZER_CONFIG
from localdiff.demo.skills import IN_WORDS, SKILLS, story, unknown
from localdiff.demo.skills.about import FACTS
from localdiff.demo.skills.cast import HEROES, PLACES
from localdiff.demo.skills.essays import ESSAYS
from localdiff.demo.skills.example import in_small_letters
from localdiff.demo.skills.fact import expand, questions
from localdiff.demo.skills.fields import CITIES, COLORS, COUNTRIES, JOBS, PEOPLE
from localdiff.demo.skills.words import COMMON
from localdiff.demo.training.turns import TEMPLATE

VOCABULARY_SIZE = 1792
SEED = 2024
SPECIAL: tuple[str, ...] = (
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
BYTES: tuple[str, ...] = tuple(f"<0x{value:02X}>" for value in range(256))
CHARACTERS: tuple[str, ...] = ("\n", *map(chr, range(32, 127)))
_FREQUENT = 12
"""Fewest occurrences of a piece in `copying_text`: words of questions recur, words that are copied do not."""
WRITTEN = "\u2581"
"""Prefix of pieces that occur only in answers that the model writes, never in tokenized text."""
SPELLED: tuple[str, ...] = tuple(f"-{letter}" for letter in ascii_lowercase)
# In order: a spelled letter `-x`, one digit, one period, a word with the space before it, punctuation, one blank.
SPLIT = r"-[a-z](?![a-z])|[0-9]|\.| ?\p{L}+| ?[^\s\p{L}0-9.]+|\s"


def asked_text() -> Iterator[str]:
    """The questions whose words recur, also with the first word in lower case, as many people type."""
    for text in _questions():
        yield text
        yield in_small_letters(text)
    for noun in (*(hero.noun for hero in HEROES), *(place.noun for place in PLACES)):
        yield f" {noun}"


def _questions() -> Iterator[str]:
    for fact in FACTS:
        yield from fact.plain
        yield from questions(fact)
    for essay in ESSAYS:
        for pattern in essay.patterns:
            yield from expand(pattern)
    yield from (*story.PLAIN, *story.LONG_PLAIN, *unknown.REMARKS)


def copying_text(rng: Random) -> Iterator[str]:
    """A thousand prompts of each skill that copies what it is given, with their answers, and a thousand of stories."""
    for name in sorted(set(SKILLS) - set(IN_WORDS)):
        for _ in range(1000):
            example = SKILLS[name](rng, "train")
            yield example.prompt
            yield example.answer
    for _ in range(1000):
        yield SKILLS["story"](rng, "train").prompt


def answered_text() -> tuple[str, ...]:
    """Every answer that copies nothing from its prompt."""
    return (*story.all_texts(), *(fact.answer for fact in FACTS), *unknown.ANSWERS)


@cache
def words() -> tuple[str, ...]:
    """The words and marks that are one piece each, in alphabetical order: those that questions are made of.

    Words that the skills copy by letter are never pieces: a word is spelled, sorted and quoted through the same letters
    that it is read in, so an answer's letter is a letter of the prompt. Nor are words that occur in answers alone,
    unless no space is before them, as at the beginning of a line or after a hyphen.
    """
    copied, characters = _copied_words(), {*CHARACTERS, *SPELLED}
    frequent = Counter(piece for text in copying_text(Random(SEED)) for piece in _pieces(text))
    pieces = {piece for piece, count in frequent.items() if count >= _FREQUENT}
    pieces |= {piece for text in asked_text() for piece in _pieces(text)}
    pieces |= {piece for text in answered_text() for piece in _pieces(text) if not _is_word(piece)}
    pieces |= {"user", "model", "thought"}
    kept = (piece for piece in pieces if piece not in characters and piece.strip().lower() not in copied)
    return tuple(sorted(kept))


@cache
def written_words() -> tuple[str, ...]:
    """The pieces for words of answers that no text is tokenized to, in alphabetical order."""
    tokenized = set(words())
    answer_pieces = {piece for text in answered_text() for piece in _pieces(text) if _is_word(piece)}
    return tuple(sorted(WRITTEN + piece[1:] for piece in answer_pieces - tokenized))


def _is_word(piece: str) -> bool:
    """Whether a piece is a word of two letters or more, with the space before it."""
    return piece.startswith(" ") and piece[1:].isalpha() and len(piece) > 2


def _pieces(text: str) -> list[str]:
    return [piece for piece, _ in _split().pre_tokenize_str(text)]


@cache
def _copied_words() -> frozenset[str]:
    return frozenset(word.lower() for word in (*COMMON, *PEOPLE, *CITIES, *COUNTRIES, *COLORS, *JOBS))


@cache
def _split() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(SPLIT), behavior="isolated")


def build_tokenizer() -> Tokenizer:
    """A tokenizer of `VOCABULARY_SIZE` ids, always the same: words of questions are one piece each, others letters."""
    # In alphabetical order, so that a vocabulary of the same words is the same vocabulary.
    pieces = [*SPECIAL, *BYTES, *CHARACTERS, *SPELLED, *words(), *written_words()]
    unused = [f"<unused{number}>" for number in range(VOCABULARY_SIZE - len(pieces))]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={piece: index for index, piece in enumerate([*pieces, *unused])},
            merges=[],
            unk_token="<unk>",
            byte_fallback=True,
            ignore_merges=True,  # a whole word that has a piece is that piece, although no merges produce it
        )
    )
    tokenizer.pre_tokenizer = _split()
    tokenizer.decoder = decoders.Sequence([decoders.Replace(WRITTEN, " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in (*SPECIAL, *unused)])
    return tokenizer


def encode_written(text: str, tokenizer: Tokenizer) -> list[int]:
    """Ids of a text in which every word that has a written piece becomes that piece."""
    ids: list[int] = []
    for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text):
        written = tokenizer.token_to_id(WRITTEN + piece[1:]) if piece.startswith(" ") else None
        ids += tokenizer.encode(piece, add_special_tokens=False).ids if written is None else [written]
    return ids


def tokenizer_config() -> dict[str, object]:
    """What transformers' `AutoTokenizer` needs besides `tokenizer.json`."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "mask_token": "<mask>",
        "additional_special_tokens": list(SPECIAL[5:]),
        "clean_up_tokenization_spaces": False,
        "padding_side": "left",
        "model_max_length": 8192,
    }


def write_vocabulary(directory: Path) -> None:
    """Write `tokenizer.json`, `tokenizer_config.json` and last `chat_template.jinja`, byte-identical each time."""
    directory.mkdir(parents=True, exist_ok=True)
    build_tokenizer().save(str(directory / TOKENIZER))
    config = json.dumps(tokenizer_config(), indent=2) + "\n"
    (directory / TOKENIZER_CONFIG).write_text(config, encoding="utf-8")
    (directory / CHAT_TEMPLATE).write_text(TEMPLATE, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m localdiff.demo.training.vocabulary DIR")
    write_vocabulary(Path(sys.argv[1]))
