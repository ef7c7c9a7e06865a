"""Chats with every feature of the released templates, and checkpoints to render them with."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerFast

from tests.checkpoints.tokenizers import gemma_like

TEMPLATES = Path(__file__).parents[1] / "data" / "chat_templates"
GENERATIONS = ("v1", "v3")


def write_chat_checkpoint(directory: Path, generation: str) -> Path:
    """A small tokenizer beside one generation of the released template."""
    gemma_like(directory)
    shutil.copy(TEMPLATES / f"{generation}.jinja", directory / "chat_template.jinja")
    return directory


def reference_tokenizer(directory: Path) -> PreTrainedTokenizerFast:
    """The tokenizer of the same checkpoint in transformers."""
    reference = PreTrainedTokenizerFast(
        tokenizer_file=str(directory / "tokenizer.json"),
        bos_token="<bos>",
        eos_token="<eos>",
        pad_token="<pad>",
        unk_token="<unk>",
    )
    reference.chat_template = (directory / "chat_template.jinja").read_text("utf-8")
    return reference


def text_part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def call_of(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"function": {"name": name, "arguments": arguments}}]}


USER = {"role": "user", "content": "Hi"}
SYSTEM = {"role": "system", "content": "You are terse."}
THOUGHT = {"role": "assistant", "content": "<|channel>thought\nsecret<channel|>Hello!"}
HISTORY = [SYSTEM, USER, THOUGHT, {"role": "user", "content": "2+2?"}]
CALL = {
    "role": "assistant",
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": {"days": 2, "city": "Rome"}}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "sunny, 25C"}
SUNNY = {"role": "assistant", "content": "Sunny."}
