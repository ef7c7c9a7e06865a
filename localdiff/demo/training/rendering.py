"""Examples of the corpus as token ids.

Knows the chat template and the vocabulary; knows nothing about canvases or training.
"""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from localdiff.checkpoint_files import CHAT_TEMPLATE, TOKENIZER
from localdiff.demo.skills import IN_WORDS, Example
from localdiff.demo.training.turns import Render, compile_template
from localdiff.demo.training.vocabulary import encode_written

END_OF_TURN = "<turn|>"


def load_vocabulary(directory: Path) -> tuple[Tokenizer, Render]:
    """The tokenizer and the template of a directory that `localdiff.demo.training.vocabulary` wrote."""
    tokenizer = Tokenizer.from_file(str(directory / TOKENIZER))
    return tokenizer, compile_template((directory / CHAT_TEMPLATE).read_text(encoding="utf-8"))


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
