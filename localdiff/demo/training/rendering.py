"""Examples of the corpus as token ids.

Knows the chat template and the vocabulary; knows nothing about canvases or training.

    python -m localdiff.demo.training.rendering DIR      lengths per skill, with the vocabulary in DIR
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

from tokenizers import Tokenizer

from localdiff.demo.corpus import Mixture, sample_example
from localdiff.demo.skills import IN_WORDS, SKILLS, Example
from localdiff.demo.training.turns import Render, compile_template
from localdiff.demo.training.vocabulary import encode_written

END_OF_TURN = "<turn|>"


def load_vocabulary(directory: Path) -> tuple[Tokenizer, Render]:
    """The tokenizer and the template of a directory that `localdiff.demo.training.vocabulary` wrote."""
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
        sys.exit("usage: python -m localdiff.demo.training.rendering DIR")
    print(length_table(*load_vocabulary(Path(sys.argv[1]))))
