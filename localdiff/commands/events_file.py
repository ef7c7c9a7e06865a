"""The output of `--events`: a file or stdout, one event per line.

Knows which of the two it is; knows nothing about the events themselves.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager

from localdiff.commands.run_file import FileObserver, OtherFiles, RunFile, run_file
from localdiff.ui.jsonl import JsonLines
from localdiff.ui.observer import Observer
from localdiff.ui.output import Output

STDOUT = "-"


@contextmanager
def event_recorders(events: str | None, output: Output, *, others: OtherFiles, alone: bool) -> Iterator[list[Observer]]:
    """Open the file of `--events`, and yield the observers that write there: one, or none without the option.

    Args:
        alone: whether nothing else takes the answer, so that a stdout that cannot be written ends the run.

    Raises:
        UsageError: the file cannot be opened for writing, or another option names it too.
        ResourceError: it could not be written.
    """
    if events is None:
        yield []
        return
    if events == STDOUT:
        lines = JsonLines(output.stdout.file, escaped=output.stdout.escapes_json)
        stdout = RunFile(output.stdout.file.buffer, output.stdout.name, "give `--events` a file", replaced=False)
        yield [lines if alone else FileObserver(stdout, lines)]
        if stdout.failure is not None:
            raise stdout.failure
        return
    hint = "`--events` takes the name of a file, or `-`"
    with run_file("--events", events, hint=hint, others=others) as file:
        text = io.TextIOWrapper(file.file, encoding="utf-8", newline="\n")
        yield [FileObserver(file, JsonLines(text))]
