"""The jinja2 sandbox in which a checkpoint's chat template runs.

Knows jinja2 and what chat templates expect of it; knows nothing about chats. Jinja's immutable sandbox keeps a template
from Python's insides and from changing what it was given. Its loops end after some seconds, and it writes no more than
a prompt can be. The time of a single filter and the memory of a variable are not bounded.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from typing import Any

from jinja2 import Template, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from localdiff.text.shield import MARK

MAX_SECONDS = 10.0
"""Limit of the thread's CPU time; the released templates take milliseconds for a full context."""


class RefusedError(Exception):
    """A template called `raise_exception`: it does not accept the conversation."""


class EndlessError(Exception):
    """A template writes more than any prompt needs, or computes for too long."""


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox that checks the clock in each round of a loop, and in macros and blocks, which may be recursive."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._ends = threading.local()  # of each thread that renders

    def begin(self) -> None:
        """Starts the clock of this thread."""
        self._ends.at = time.thread_time() + MAX_SECONDS

    def check_time(self) -> bool:
        """Called by templates; returns True, so that it can be put in front of a condition.

        Raises:
            EndlessError: the time is up.
        """
        if time.thread_time() > self._ends.at:
            raise EndlessError(f"it computes for more than {MAX_SECONDS:g} s")
        return True

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        kinds = nodes.For, nodes.Macro, nodes.Block
        found: Iterable[nodes.For | nodes.Macro | nodes.Block] = template.find_all(kinds)
        for node in list(found):
            call = nodes.Call(nodes.EnvironmentAttribute("check_time"), [], [], None, None)
            if isinstance(node, nodes.For) and node.test is not None:  # the test may skip every round
                node.test = nodes.And(call, node.test, lineno=node.lineno).set_environment(self)
            else:
                node.body.insert(0, nodes.ExprStmt(call, lineno=node.lineno).set_environment(self))
        return template


def environment() -> BoundedEnvironment:
    """An environment that compiles chat templates.

    It has what templates expect, as in transformers: trimmed blocks, loop controls, `raise_exception`, `tojson` without
    HTML escapes, and `{% generation %}` blocks, which only mark text for training.
    """
    sandbox = BoundedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols])
    sandbox.filters["tojson"] = _to_json
    sandbox.globals["raise_exception"] = _refuse
    return sandbox


def render(template: Template, max_characters: int, **variables: Any) -> str:
    """The text that a template of `environment` makes of its variables.

    Raises:
        EndlessError: it is longer than `max_characters`, or takes longer than `MAX_SECONDS`.
        RefusedError: the template does not accept the conversation.
        Exception: anything else that a template can do wrong.
    """
    assert isinstance(template.environment, BoundedEnvironment)
    template.environment.begin()
    pieces, size = [], 0
    for piece in template.generate(**variables):
        pieces.append(piece)
        size += len(piece)
        if size > max_characters:
            raise EndlessError(f"it writes more than {max_characters:,} characters")
    return "".join(pieces)


class GenerationTag(Extension):
    """`{% generation %} ... {% endgeneration %}`: renders its content."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


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
