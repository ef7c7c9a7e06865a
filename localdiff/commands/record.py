"""`--record`: writes a trace of the run to a private file while it happens.

Knows what records a trace, and where each field of its header comes from; knows nothing about the lines themselves.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from localdiff import __version__
from localdiff.commands.run_file import FileObserver, OtherFiles, RunFile, run_file
from localdiff.errors import UsageError
from localdiff.events import SCHEMA_VERSION, Observer, RunStarted
from localdiff.options import GenerateOptions
from localdiff.quoting import printable
from localdiff.trace.hashing import Digests, digests_of
from localdiff.trace.header import VERSION, Adapter, Header, Machine, Message, Model, Sampler
from localdiff.trace.recorder import Recorder
from localdiff.ui.output import Output
from localdiff.utf8 import require_text

if TYPE_CHECKING:
    from localdiff.engine import Engine


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordOptions:
    """What to record.

    Attributes:
        file: takes the trace; None records nothing.
        gold: the expected answer, kept in the header.
    """

    file: Path | None = None
    gold: str | None = None

    def __post_init__(self) -> None:
        if self.file is None and self.gold is not None:
            raise UsageError("`--gold` is kept in a trace, and none is recorded", "add `--record FILE`")
        if self.gold is not None:
            require_text(self.gold, "`--gold`", "it takes UTF-8 text")
        if self.file is not None and str(self.file) == "-":
            raise UsageError(
                "`--record` takes the name of a file", "`localdiff run --events -` writes events to stdout instead"
            )


class TraceFile:
    """An open file that a recorder can write to."""

    def __init__(self, file: RunFile, options: RecordOptions) -> None:
        self._file = file
        self._options = options

    def observer(
        self,
        engine: Engine,
        prompt: str,
        options: GenerateOptions,
        progress: Callable[[int, int], None],
        *,
        noise: Literal["paired"] | None = None,
    ) -> Observer:
        """The observer that records the run that is about to begin.

        Args:
            progress: called with the bytes of the weights hashed so far, and with their total.
            noise: how the noise is derived from the seed, if not as the options say.
        """
        digests = digests_of(engine.identity, progress)
        messages = conversation([{"role": "user", "content": prompt}], options.system)

        def header(started: RunStarted) -> Header:
            return header_of(engine, messages, options, started, digests=digests, gold=self._options.gold, noise=noise)

        return self.recorder(engine, header)

    def recorder(self, engine: Engine, header: Callable[[RunStarted], Header]) -> Observer:
        """The observer that records a run under this header, replacing the contents of the file."""
        recorder = Recorder(self._file.file, header_of=header, pieces=engine.tokenizer)
        return FileObserver(self._file, recorder)


@contextmanager
def trace_file(
    options: RecordOptions, output: Output, *, folder: str | None = None, others: OtherFiles = ()
) -> Iterator[TraceFile | None]:
    """Open the file of `--record`, for its owner alone; None without the option.

    Args:
        output: takes a remark about the finished trace.
        folder: the option that names the trace's folder, if not `--record`; the run is then useless without its trace.

    Raises:
        UsageError: the file cannot be opened for writing, or another option names it too.
        ResourceError: it could not be written.
    """
    if options.file is None:
        yield None
        return
    needed = folder is not None
    hint = f"`{folder}` takes a folder that you may write to" if needed else "`--record` takes the name of a file"
    elsewhere = f"`{folder}` may name one on another disk" if needed else None
    with run_file(
        folder or "--record", options.file, hint=hint, elsewhere=elsewhere, trace=True, needed=needed, others=others
    ) as file:
        yield TraceFile(file, options)
        if file.begun and file.failure is None and output.notes:
            output.stderr.write(f"The trace is in {printable(str(options.file))}; it contains the prompt.\n")


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
    identity, settings = engine.identity, engine.settings.override(options)
    return Header(
        trace=VERSION,
        schema=SCHEMA_VERSION,
        created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        model=Model(
            name=identity.model,
            revision=identity.revision,
            recipe=identity.recipe,
            dtype=identity.dtype,
            activations=identity.activations,
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
    """The messages as a header holds them, the system prompt first."""
    before = () if system is None else (Message(role="system", content=system),)
    return (*before, *(Message(role=message["role"], content=message["content"]) for message in messages))
