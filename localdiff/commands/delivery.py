"""Where the answer of a run goes when the run is over: into the file of `-o`, or else to stdout or a file beside it.

Knows the file, the streams and what is said about them; knows nothing about how the answer came about. An answer that
took minutes is never dropped while there is a place for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from localdiff.commands.output_file import OutputFile, free_path, output_file
from localdiff.commands.run_file import FileObserver
from localdiff.errors import ResourceError, UsageError
from localdiff.quoting import printable
from localdiff.ui.output import Output, Stream
from localdiff.ui.terminal import takes_output
from localdiff.view.sanitize import safe_text

Wording: TypeAlias = Callable[[bool], str]
"""The text to deliver; the argument says whether JSON in it must be ASCII, for example for a terminal."""

_PATIENCE = 0.2


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    """The file of `-o`, and stdout.

    Attributes:
        output: the streams.
        name: the file's name as the user gave it.
        file: the file.
        events: writes the events to stdout, where no text may come between them; None where they do not go to stdout.
        hurried: whether the process was told to end, and must not wait for a terminal that is held with Ctrl-S.
    """

    output: Output
    name: Path
    file: OutputFile
    events: FileObserver | None
    hurried: bool = False

    def whole(self, text: Wording) -> None:
        """Write the file, or else print the text.

        Raises:
            ResourceError: the file could not be written; the message says where the text is.
            BrokenPipeError: nobody reads the file, which is a pipe, and nobody reads stdout.
        """
        try:
            self.file.save(text(False), waits=not self.hurried)
        except ResourceError as error:
            place = self._on_stdout(text, "text")
            error.message += "; the text is lost" if place is None else f", so {place}"
            raise
        except BrokenPipeError as error:
            place = self._on_stdout(text, "text")
            if place is None:
                raise  # the file may be stdout by another name
            raise ResourceError(f"`{self.name}` was closed by its reader, so {place}") from error

    def part(self, text: Wording) -> None:
        """Keep the finished part of a stopped run: in a new file, but not in place of an older one.

        Raises:
            ResourceError: as for `whole`.
        """
        if not self.file.replaces:
            self.whole(text)
            self.note("has the finished part.")
            return
        place = self._on_stdout(text, "finished part") or self._beside(text)
        if takes(self.output.stderr, hurried=self.hurried):
            say = self.output.error if place is None else self.output.warning
            say(f"`{self.name}` is unchanged; {place or 'the finished part is lost'}")

    def nothing(self) -> None:
        """Say what became of the file if the run was stopped before anything was finished."""
        self.note(f"{'is unchanged' if self.file.replaces else 'was not written'}: nothing was finished.")

    def note(self, words: str) -> None:
        """Print a remark about the file, if remarks are wanted."""
        if self.output.notes and takes(self.output.stderr, hurried=self.hurried):
            self.output.stderr.write(f"{printable(str(self.name))} {words}\n")

    def _on_stdout(self, text: Wording, what: str) -> str | None:
        """Print the text, unless the events on stdout have it, and say where it is; None where stdout has neither."""
        if self.events is not None:
            return None if self.events.failed else f"the events on stdout have the {what}"
        stdout = self.output.stdout
        if stdout.missing or not takes(stdout, hurried=self.hurried):
            return None
        exact = text(stdout.escapes_json)
        shown = safe_text(exact) if stdout.terminal else exact
        try:
            stdout.write(shown + "\n" if shown and not shown.endswith("\n") else shown)
        except OSError:  # nobody reads it, the terminal is gone, or the disk is full
            return None
        return f"stdout has the {what}"

    def _beside(self, text: Wording) -> str | None:
        """Write the text to a new file beside the older one, and name that file; None if it cannot be written."""
        path = free_path(self.name.with_name(f"{self.name.name}.unfinished"))
        try:
            output_file(path).save(text(False))
        except (UsageError, ResourceError):
            return None
        return f"`{path}` has the finished part"


def takes(stream: Stream, *, hurried: bool) -> bool:
    """Whether to write to a stream: when in a hurry, not to a terminal that takes no output now."""
    return not hurried or not stream.terminal or takes_output(stream.file, patience=_PATIENCE)
