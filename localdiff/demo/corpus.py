"""The mixture of skills that the demo model is trained on, as token ids.

Knows skills, weights and rendering; knows nothing about canvases or training.

    python -m localdiff.demo.corpus DIR      lengths per skill, with the vocabulary in DIR
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from tokenizers import Tokenizer

from .skills import ALL_SKILLS, IN_WORDS, SKILLS, Example, Message, Split
from .turns import Render, compile_template
from .vocabulary import encode_written

END_OF_TURN = "<turn|>"
WEIGHTS: Mapping[str, float] = {
    "spelling": 0.03,
    "json": 0.09,
    "dates": 0.04,
    "sort": 0.18,
    "add": 0.10,
    "sudoku": 0.06,
    "about": 0.18,
    "story": 0.14,
    "unknown": 0.18,
}
SYSTEM_PROMPTS: tuple[str, ...] = (
    "You are a helpful assistant.",
    "You are terse.",
    "Be brief.",
    "Answer in one sentence.",
    "You are a tiny demo model.",
)


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """How often each skill is drawn, and how often something precedes the question.

    Attributes:
        weights: relative weight of each skill.
        history_share: share of examples with earlier exchanges: one, and another one as often as not, six at most.
        story_share: share of those exchanges that are always stories; the rest is of any skill.
        system_share: share of examples with a system turn.
    """

    weights: Mapping[str, float] = field(default_factory=lambda: dict(WEIGHTS))
    history_share: float = 0.25
    story_share: float = 0.2
    system_share: float = 0.04

    def __post_init__(self) -> None:
        unknown = sorted(set(self.weights) - set(ALL_SKILLS))
        if unknown:
            raise ValueError(f"weights name no skill: {unknown}; skills are {sorted(ALL_SKILLS)}")
        if min(self.weights.values()) < 0 or sum(self.weights.values()) <= 0:
            raise ValueError(f"weights must not be negative and not all zero, got {dict(self.weights)}")


DEFAULT_MIXTURE = Mixture()
_MOST_EARLIER = 6


def sample_example(rng: Random, split: Split, mixture: Mixture = DEFAULT_MIXTURE) -> Example:
    """Draw a skill by weight and an example of it; some follow a system turn, and some earlier exchanges."""
    skill = rng.choices(tuple(mixture.weights), tuple(mixture.weights.values()))[0]
    example = ALL_SKILLS[skill](rng, split)
    if rng.random() < mixture.system_share:
        system: Message = ("system", rng.choice(SYSTEM_PROMPTS))
        example = replace(example, messages=(system, *example.messages))
    if rng.random() < mixture.history_share:
        example = replace(example, earlier=_earlier(rng, mixture.story_share))
    return example


def _earlier(rng: Random, story_share: float) -> tuple[Example, ...]:
    count = 1
    while count < _MOST_EARLIER and rng.random() < 0.5:
        count += 1
    names = ["story" if rng.random() < story_share else rng.choice(tuple(SKILLS)) for _ in range(count)]
    return tuple(SKILLS[name](rng, "train") for name in names)


def load_vocabulary(directory: Path) -> tuple[Tokenizer, Render]:
    """The tokenizer and the template of a directory that `localdiff.demo.vocabulary` wrote."""
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    return tokenizer, compile_template((directory / "chat_template.jinja").read_text(encoding="utf-8"))


def render(example: Example, tokenizer: Tokenizer, template: Render) -> tuple[list[int], list[int]]:
    """Ids of the prompt up to the start of the model's turn, and of the answer with the end-of-turn id.

    Earlier answers are the ids that the model wrote, as in a conversation, and not their text tokenized again.
    """
    *messages, question = example.messages
    prompt: list[int] = []
    rendered = ""
    for exchange in example.earlier:
        messages.extend(exchange.messages)
        text = template(messages)
        prompt += _ids(text.removeprefix(rendered), tokenizer) + _answer_ids(exchange, tokenizer)
        messages.append(("assistant", exchange.answer))
        rendered = text + exchange.answer + END_OF_TURN
    prompt += _ids(template([*messages, question]).removeprefix(rendered), tokenizer)
    return prompt, _answer_ids(example, tokenizer)


def _answer_ids(example: Example, tokenizer: Tokenizer) -> list[int]:
    in_words = example.skill in IN_WORDS
    answer = encode_written(example.answer, tokenizer) if in_words else _ids(example.answer, tokenizer)
    return answer + _ids(END_OF_TURN, tokenizer)


def _ids(text: str, tokenizer: Tokenizer) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def length_table(tokenizer: Tokenizer, template: Render, per_skill: int = 400, seed: int = 0) -> str:
    """Percentiles of prompt and answer lengths in tokens for every skill, as lines of text."""
    lines = [f"{'skill':10} {'prompt 50':>9} {'95':>5} {'max':>5}   {'answer 50':>9} {'95':>5} {'max':>5}"]
    for skill in SKILLS:
        rng = Random(seed)
        mixture = Mixture(weights={skill: 1.0}, history_share=0.0, system_share=0.0)
        pairs = [render(sample_example(rng, "train", mixture), tokenizer, template) for _ in range(per_skill)]
        cells = []
        for side in zip(*pairs, strict=True):
            lengths = sorted(map(len, side))
            cells.append((lengths[len(lengths) // 2], lengths[len(lengths) * 95 // 100], lengths[-1]))
        (a, b, c), (d, e, f) = cells
        lines.append(f"{skill:10} {a:9} {b:5} {c:5}   {d:9} {e:5} {f:5}")
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m localdiff.demo.corpus DIR")
    print(length_table(*load_vocabulary(Path(sys.argv[1]))))
