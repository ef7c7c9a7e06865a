"""The header of a run to be recorded, built from an engine, options and a clock.

Knows where each field comes from; knows nothing about files of traces.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

from localdiff import __version__
from localdiff.events import SCHEMA_VERSION, RunStarted
from localdiff.identity import ModelIdentity
from localdiff.options import GenerateOptions
from localdiff.trace.hashing import adapter_digest, tokenizer_digest, weights_digest
from localdiff.trace.header import VERSION, Adapter, Header, Machine, Message, Model, Sampler

if TYPE_CHECKING:
    from localdiff.engine import Engine


@dataclass(frozen=True, kw_only=True, slots=True)
class Digests:
    """Hashes of a model's files; None for one that has no files."""

    weights: str | None = None
    tokenizer: str | None = None
    adapter: str | None = None


def digests_of(identity: ModelIdentity, progress: Callable[[int, int], None]) -> Digests:
    """The hashes; reads all weights once unless their hashes are known; see `trace.hashing`."""
    if identity.directory is None:
        return Digests()
    return Digests(
        weights=weights_digest(identity.directory, progress),
        tokenizer=tokenizer_digest(identity.directory),
        adapter=None if identity.adapter_directory is None else adapter_digest(identity.adapter_directory),
    )


def header_of(
    engine: Engine,
    messages: Sequence[Message],
    options: GenerateOptions,
    started: RunStarted,
    *,
    digests: Digests,
    gold: str | None = None,
    noise: Literal["seeded", "reference", "paired"] | None = None,
) -> Header:
    """The header of a run that has just started."""
    identity, settings = engine.identity, engine.settings_for(options)
    return Header(
        trace=VERSION,
        schema=SCHEMA_VERSION,
        created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        model=Model(
            name=identity.model,
            revision=identity.revision,
            recipe=identity.recipe,
            dtype=identity.dtype,
            weights=digests.weights,
            tokenizer=digests.tokenizer,
            adapter=None if identity.adapter is None else Adapter(name=identity.adapter, files=digests.adapter),
        ),
        machine=Machine(
            device=identity.device,
            hardware=engine.hardware,
            threads=engine.threads,
            localdiff=__version__,
            torch=version("torch"),
            python=platform.python_version(),
        ),
        messages=tuple(messages),
        prompt_ids=None,
        think=options.think,
        tool_calls=options.tool_calls,
        gold=gold,
        max_tokens=options.max_tokens,
        context_size=engine.context_size(options) if options.context_size is None else options.context_size,
        record_top_k=min(options.record_top_k, started.vocab_size),
        seed=started.seed,
        sampler=Sampler(**asdict(settings), noise=noise or options.noise),
    )


def conversation(messages: Sequence[Mapping[str, Any]], system: str | None) -> tuple[Message, ...]:
    """The messages as a header has them, the system prompt first."""
    before = () if system is None else (Message(role="system", content=system),)
    return (*before, *(Message(role=message["role"], content=message["content"]) for message in messages))
