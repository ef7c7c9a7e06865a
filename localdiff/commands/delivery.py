"""Where the answer of a run goes when the run is over: into the file of `-o`, or to stdout in its place.

Knows the file, the streams and what is said about them; knows nothing about how the answer came about. What took
minutes to make is never dropped while there is a place for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from localdiff.commands.output_file import OutputFile
from localdiff.errors import ResourceError
from localdiff.quoting import printable
from localdiff.ui.output import Output, Stream
from localdiff.ui.terminal import takes_output
from localdiff.ui.text_writer import TextWriter

Wording: TypeAlias = Callable[[bool], str]
"""The text to deliver; the argument says whether it is for a terminal, on which JSON has to be ASCII."""

_PATIENCE = 0.2


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    """The file of `-o`, and stdout.

    Attributes:
        output: the streams.
        name: what the user called the file.
        file: the file.
        events: whether stdout has the events, and no text may come between them.
        hurried: whether the process was told to end, and must not wait for a terminal that is held with Ctrl-S.
    """

    output: Output
    name: Path
    file: OutputFile
    events: bool
    hurried: bool = False

    def whole(self, text: Wording) -> None:
        """Write the file, or else print the text.

        Raises:
            ResourceError: it could not be written; the message says where the text is.
        """
        try:
            self.file.save(text(False))
        except ResourceError as error:
            if self._print(text):
                error.message += ", so stdout has the text"
            raise

    def part(self, text: Wording) -> None:
        """Keep what was finished of a run that was stopped: in a new file, but not in place of an older one.

        Raises:
            ResourceError: as for `whole`.
            OSError: stdout cannot be written.
        """
        if not self.file.replaces:
            self.whole(text)
            self.note("has the finished part.")
            return
        where = "the finished part is lost"
        try:
            if self.events:
                where = "the events on stdout have the finished part"
            elif self._print(text):
                where = "stdout has the finished part"
        finally:
            if takes(self.output.stderr, hurried=self.hurried):
                self.output.warning(f"`{self.name}` is unchanged; {where}")

    def nothing(self) -> None:
        """Say what became of the file of a run that was stopped before anything was finished."""
        self.note(f"{'is unchanged' if self.file.replaces else 'was not written'}: nothing was finished.")

    def note(self, words: str) -> None:
        """Say something about the file, where remarks belong."""
        if self.output.notes and takes(self.output.stderr, hurried=self.hurried):
            self.output.stderr.write(f"{printable(str(self.name))} {words}\n")

    def _print(self, text: Wording) -> bool:
        """Print the text if stdout takes it; whether it did."""
        stdout = self.output.stdout
        if self.events or stdout.missing or not takes(stdout, hurried=self.hurried):
            return False
        answer = TextWriter(stdout, whole_lines=False, ends_line=True)
        answer.add(text(stdout.terminal))
        answer.end()
        return True


def takes(stream: Stream, *, hurried: bool) -> bool:
    """Whether to write to a stream: where there is a hurry, not to a terminal that takes nothing now."""
    return not hurried or not stream.terminal or takes_output(stream.file, patience=_PATIENCE)
