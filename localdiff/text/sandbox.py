"""The jinja2 sandbox in which a checkpoint's chat template runs.

Knows jinja2 and what chat templates expect of it; knows nothing about chats. Jinja's immutable sandbox keeps a template
from Python's insides and from changing what it was given, and it writes no more than a prompt can be. Its time and the
memory of its variables are not bounded.
"""

from __future__ import annotations

import json
from typing import Any

from jinja2 import Template, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from localdiff.text.shield import MARK


class RefusedError(Exception):
    """A template called `raise_exception`: it does not accept the conversation."""


def environment() -> ImmutableSandboxedEnvironment:
    """An environment that compiles chat templates.

    It has what templates expect, as in transformers: trimmed blocks, loop controls, `raise_exception`, `tojson` without
    HTML escapes, and `{% generation %}` blocks, which only mark text for training.
    """
    sandbox = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    sandbox.filters["tojson"] = _to_json
    sandbox.globals["raise_exception"] = _refuse
    sandbox.globals["dict"] = _Dict()
    return sandbox


def render(template: Template, max_characters: int, **variables: Any) -> str:
    """The text that a template of `environment` makes of its variables.

    Raises:
        RefusedError: the template does not accept the conversation.
        Exception: anything else that a template can do wrong, such as writing more than `max_characters`.
    """
    pieces, size = [], 0
    for piece in template.generate(**variables):
        pieces.append(piece)
        size += len(piece)
        if size > max_characters:
            raise ValueError(f"it writes more than {max_characters:,} characters")
    return "".join(pieces)


class GenerationTag(Extension):
    """`{% generation %} ... {% endgeneration %}`: renders its content."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Dict:
    """A template's `dict`, which only makes mappings: jinja's sandbox would let `dict.update(message, …)` pass."""

    def __call__(self, *arguments: Any, **entries: Any) -> dict[Any, Any]:
        return dict(*arguments, **entries)

    def fromkeys(self, *arguments: Any) -> dict[Any, Any]:
        return dict.fromkeys(*arguments)


def _refuse(message: Any) -> None:
    raise RefusedError(str(message))


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)
    if not ensure_ascii:
        return text
    # The mark stays: `Shield` puts it into typed text and looks for it afterwards.
    return "".join(c if c.isascii() or c == MARK else json.dumps(c)[1:-1] for c in text)
