"""The demo checkpoint's vocabulary: byte-pair pieces learned from the skills' own text.

Knows text and pieces; knows nothing about the model. Ids in order: special tokens, 256 byte tokens, single
characters, merged pieces. Spaces stay spaces, and bytes stand in for every character without a piece, so
decoding loses nothing. Written as `tokenizer.json`:

    python -m localdiff.demo.vocabulary DIR
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from string import ascii_lowercase

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from .skills import SKILLS
from .skills.cast import HEROES, PLACES
from .skills.essays import ESSAYS
from .skills.fact import questions
from .skills.facts import FACTS
from .skills.story import tell
from .skills.words import COMMON
from .turns import CHAT_TEMPLATE

VOCABULARY_SIZE = 1024
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
# In order: a spelled letter `-x`, one digit, one period, a word with the space before it, marks, one blank.
SPLIT = r"-[a-z](?![a-z])|[0-9]|\.| ?\p{L}+| ?[^\s\p{L}0-9.]+|\s"


def training_text(rng: Random) -> Iterator[str]:
    """Text whose frequent pieces deserve an id: questions, answers, stories, some of each other skill."""
    for fact in FACTS:
        yield from questions(fact)
        yield from [fact.answer] * 12
    for essay in ESSAYS:
        yield from [essay.text] * 12
    for _ in range(80):
        yield tell(rng.choice(HEROES), rng.choice(PLACES), long=True)
    for word in COMMON:
        yield from [f" {word}"] * 50
        yield from [word] * 3
    yield "user\nmodel\nthought\n" * 400
    for letter in ascii_lowercase:
        yield f"-{letter}" * 400
    for name, count in (
        ("json", 400),
        ("dates", 300),
        ("add", 100),
        ("sudoku", 60),
        ("sort", 60),
        ("unknown", 200),
    ):
        for _ in range(count):
            example = SKILLS[name](rng, "train")
            yield example.prompt
            yield example.answer


def _split() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(SPLIT), behavior="isolated")


def build_tokenizer() -> Tokenizer:
    """Learn the pieces and assemble a tokenizer of at most `VOCABULARY_SIZE` ids, always the same one."""
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = _split()
    room = VOCABULARY_SIZE - len(SPECIAL) - len(BYTES)
    trainer = trainers.BpeTrainer(
        vocab_size=room,
        initial_alphabet=list(CHARACTERS),
        limit_alphabet=len(CHARACTERS),
        show_progress=False,
    )
    learner.train_from_iterator(training_text(Random(SEED)), trainer)
    merges = [(first, second) for first, second in json.loads(learner.to_str())["model"]["merges"]]
    pieces = [*SPECIAL, *BYTES, *CHARACTERS, *dict.fromkeys(first + second for first, second in merges)]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={piece: index for index, piece in enumerate(pieces)},
            merges=merges,
            unk_token="<unk>",
            byte_fallback=True,
        )
    )
    tokenizer.pre_tokenizer = _split()
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIAL])
    return tokenizer


def tokenizer_config() -> dict[str, object]:
    """What transformers' `AutoTokenizer` needs beside `tokenizer.json`."""
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
    """Write `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja`, byte-identical each time."""
    directory.mkdir(parents=True, exist_ok=True)
    build_tokenizer().save(str(directory / "tokenizer.json"))
    config = json.dumps(tokenizer_config(), indent=2) + "\n"
    (directory / "tokenizer_config.json").write_text(config, encoding="utf-8")
    (directory / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m localdiff.demo.vocabulary DIR")
    write_vocabulary(Path(sys.argv[1]))
