"""Where a benchmark or a picture gets its run from: a model, a file of events, or a script."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from localdiff import events as vocabulary_of_events
from localdiff.events import BlockStats, Event, RunStats
from tests.fakes_canvas import SCRIPTS, Script


@dataclass(frozen=True)
class Source:
    """A run, and what its ids look like.

    Attributes:
        events: makes the events anew.
        piece_of, is_special: what the view needs to know about ids.
    """

    events: Callable[[], Iterator[Event]]
    piece_of: Callable[[int], str]
    is_special: Callable[[int], bool]


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """`--prompt`, `--events` or `--script`, and what belongs to them."""
    wanted = parser.add_mutually_exclusive_group()
    wanted.add_argument("--prompt", help="run a model on this")
    wanted.add_argument("--events", type=Path, help="what `localdiff run --events` wrote")
    wanted.add_argument("--script", choices=SCRIPTS, default="latin", help="a made-up run (the default)")
    parser.add_argument("-m", "--model", default="demo", help="of the prompt, or of the events' ids")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--canvas", type=int, default=128, help="positions of a made-up canvas")
    parser.add_argument("--repeat", type=int, default=1, help="times that a made-up text is repeated")


def source_of(options: argparse.Namespace) -> Source:
    """The run that the options name."""
    if options.prompt:
        from localdiff.engine import Engine
        from localdiff.options import GenerateOptions

        engine = Engine.load(options.model)
        settings = GenerateOptions(seed=options.seed)
        return Source(
            lambda: engine.generate(options.prompt, settings), engine.tokenizer.piece, engine.tokenizer.is_special
        )
    if options.events:
        from localdiff.hub import resolve
        from localdiff.tokenizer import Tokenizer

        tokenizer = Tokenizer(resolve(options.model).directory)
        lines = options.events.read_text(encoding="utf-8").splitlines()
        return Source(lambda: map(read_event, lines), tokenizer.piece, tokenizer.is_special)
    script = Script(text=SCRIPTS[options.script] * options.repeat, canvas=options.canvas)
    return Source(script.events, script.vocabulary.piece, script.vocabulary.is_special)


def read_event(line: str) -> Event:
    """An event as `localdiff.ui.jsonl` wrote it.

    Raises:
        ValueError: it was written by another version.
    """
    fields = json.loads(line)
    name = "".join(word.capitalize() for word in fields.pop("event").split("_"))
    schema = fields.pop("schema")
    if schema != vocabulary_of_events.SCHEMA_VERSION:
        raise ValueError(f"{schema=} should be {vocabulary_of_events.SCHEMA_VERSION}")
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
    if "stats" in values:
        blocks = tuple(BlockStats(**block) for block in values["stats"]["blocks"])
        values["stats"] = RunStats(**{**values["stats"], "blocks": blocks})
    event: Event = getattr(vocabulary_of_events, name)(**values)
    return event
