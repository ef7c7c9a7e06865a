"""The output of `--events`: a file or stdout, one event per line.

Knows how the file is opened and how its errors are worded; knows nothing about the events themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from localdiff.commands.file_observer import FileObserver, OtherFiles, refuse_shared
from localdiff.errors import UsageError
from localdiff.paths import expanded
from localdiff.ui.jsonl import JsonLines
from localdiff.ui.observer import Observer
from localdiff.ui.output import Output

STDOUT = "-"


@contextmanager
def event_recorders(events: str | None, output: Output, *, others: OtherFiles = ()) -> Iterator[list[Observer]]:
    """Open the file of `--events`, and yield the observers that write there: one, or none without the option.

    Args:
        events: the file, or `-` for stdout.
        output: the streams.
        others: other options that name files, and what they name.

    Raises:
        UsageError: the file cannot be written, or another option names it too.
    """
    if events is None:
        yield []
        return
    if events == STDOUT:
        yield [JsonLines(output.stdout.file, escaped=output.stdout.terminal)]
        return
    path = expanded(events)
    refuse_shared("--events", events, others)
    try:
        file = open(path, "w", encoding="utf-8", newline="\n")  # noqa: SIM115
    except OSError as error:
        raise UsageError(
            f"`{events}` cannot be written: {error.strerror}", "`--events` takes the name of a file, or `-`"
        ) from error
    try:
        yield [FileObserver(JsonLines(file), events, "--events")]
    finally:
        with suppress(OSError):  # every line has been flushed; only what already failed can fail again
            file.close()
