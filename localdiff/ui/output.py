"""The two output streams and what may be written to them, decided once.

Knows whether a stream is a terminal, how wide it is, whether it takes colour, and who asked for quiet; knows nothing
about generations. Everything is injectable, so that tests need no terminal.
"""

from __future__ import annotations

import io
import json
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TextIO, TypeAlias

from localdiff.errors import UsageError
from localdiff.quoting import printable
from localdiff.ui.console import is_terminal
from localdiff.ui.region import ERASE_REST_OF_ROW
from localdiff.ui.terminal import is_in_background, moves_cursor, terminal_size
from localdiff.view.columns import folded

Color: TypeAlias = Literal["auto", "always", "never"]
AskUser: TypeAlias = Callable[[str], bool]
"""Asks the user a question, and returns whether they said yes. Where nobody can answer, None takes its place."""

STDOUT_NAME = "stdout"
"""What errors call stdout."""

_READER_SECONDS = 0.05
"""How long the reader of a pipe gets to print the end of an answer, before anything is printed below it."""
_COLUMNS = re.compile(r"[0-9]{1,6}")

DIM, BOLD, GREEN, YELLOW, RED, CYAN = "2", "1", "32", "33", "1;31", "36"
"""Styles as parameters of SGR, for everything but canvases, which have palettes."""


@dataclass(slots=True, eq=False)
class Line:
    """The line that a stream has reached.

    Attributes:
        is_open: whether something is on it.
    """

    is_open: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Stream:
    """One output stream.

    Attributes:
        file: where the text goes.
        name: what errors call it.
        terminal: whether it is a terminal.
        color: whether colour escape codes may be written.
        moving: whether a line may be rewritten in place.
        width: columns at start-up.
        missing: whether the process was started without this stream; what is written is lost.
        expendable: whether output that cannot be written, to a full disk or a reader that is gone, is dropped without
            an error.
        beside: the other stream, if texts of both may come together, on one screen or in one file; a line that it left
            open is ended before anything is written here.
        line: the line that has been reached.
    """

    file: TextIO
    name: str = ""
    terminal: bool = False
    color: bool = False
    moving: bool = False
    width: int = 80
    missing: bool = False
    expendable: bool = False
    beside: Stream | None = None
    line: Line = field(default_factory=Line)

    @property
    def columns(self) -> int:
        """Columns now: a window may have been resized since start-up."""
        try:
            return os.get_terminal_size(self.file.fileno()).columns or self.width
        except (OSError, ValueError):
            return self.width

    @property
    def room(self) -> int | None:
        """Columns that a line has; None if the stream is not a terminal, and lines may be of any length."""
        return self.columns if self.terminal else None

    @property
    def background(self) -> bool:
        """Whether it is a terminal that another job now has, so that no line on it may be rewritten."""
        return self.terminal and is_in_background(self.file)

    @property
    def piped(self) -> bool:
        """Whether a program reads what is written, which may print it anywhere."""
        try:
            return stat.S_ISFIFO(os.fstat(self.file.fileno()).st_mode)
        except (OSError, ValueError):
            return False

    @property
    def escapes_json(self) -> bool:
        """Whether JSON is written in ASCII: on a terminal, which names must not control, and in an encoding that
        lacks characters, which would get Python's escapes.
        """
        return self.terminal or not self.encodes("\U0010ffff")

    def require(self) -> None:
        """Refuse to go on without this stream, before doing anything whose outcome nobody could see.

        Raises:
            UsageError: it is missing.
        """
        if self.missing:
            raise UsageError(f"{self.name} is closed, so nothing would be seen", "`> FILE` writes it to a file")

    def write(self, text: str) -> None:
        """Write and flush at once, for a reader that follows."""
        if not self.expendable:
            self.require()
        if not text:
            return
        text = self._line_start() + text
        self.line.is_open = not text.endswith("\n")
        try:
            self.file.write(text)
            self.file.flush()
        except OSError as error:
            if not self.expendable:
                error.filename = error.filename or self.name or None
                raise

    def say(self, text: str, style: str = "") -> None:
        """Write sentences, broken between words to fit the terminal."""
        lines = [part for line in text.split("\n") for part in folded(line, self.room)]
        self.write("".join(f"{self.styled(line, style) if style else line}\n" for line in lines))

    def write_json(self, value: object) -> None:
        """Write an object as lines of JSON.

        A byte of a name that is not UTF-8, in Python a lone surrogate, is escaped on every stream.
        """
        text = json.dumps(value, indent=2, ensure_ascii=self.escapes_json, allow_nan=False)
        self.write(text.encode(errors="backslashreplace").decode() + "\n")

    def write_utf8(self, text: str) -> None:
        """Write a text that declares itself UTF-8, as a page does; the stream stays in that encoding."""
        if isinstance(self.file, io.TextIOWrapper):
            self.file.reconfigure(encoding="utf-8", errors="strict", newline="\n")
        self.write(text)

    def write_path(self, path: Path) -> None:
        """Write a path and a newline: its exact bytes, which need not be text, but nothing that controls a terminal."""
        if self.terminal:
            self.write(f"{printable(str(path))}\n")
        elif isinstance(self.file, io.TextIOWrapper):
            self.file.flush()
            self.file.buffer.write(os.fsencode(path) + b"\n")
            self.file.flush()
        else:
            self.write(f"{path}\n")

    def styled(self, text: str, style: str) -> str:
        """The text in a style given as SGR parameters, or unchanged where there is no colour."""
        return f"\x1b[{style}m{text}\x1b[0m" if self.color and text else text

    def dot(self) -> str:
        """The separator of status and footer, as far as the stream can encode it."""
        return "·" if self.encodes("·") else "-"

    def encodes(self, text: str) -> bool:
        """Whether the stream's encoding has every character of a text."""
        try:
            text.encode(getattr(self.file, "encoding", None) or "utf-8")
        except UnicodeEncodeError:
            return False
        return True

    def _line_start(self) -> str:
        """What starts a line, if the stream beside this one has left its own open.

        Where a pipe's reader prints that one's text on this terminal, it is unknown where it has left the cursor. These
        blanks stay on an empty line, and run over the end of any other; a terminal whose cursor cannot be moved gets a
        new line.
        """
        if self.beside is None or not self.beside.line.is_open:
            return ""
        self.beside.line.is_open = False
        if self.terminal:
            time.sleep(_READER_SECONDS)
        return " " * (self.columns - 1) + "\r" + ERASE_REST_OF_ROW if self.moving else "\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """Both streams and how much may be said on them.

    Attributes:
        stdout: for the answer alone.
        stderr: for everything else.
        quiet: errors only.
        verbose: report progress on stderr, even where it is not a terminal.
        stats: print the footer even where stderr is not a terminal.
        yields: the terminal of stderr is left to whoever reads stdout, a pager for example.
        ask: asks the user whether to go on; an empty answer means yes.
    """

    stdout: Stream
    stderr: Stream
    quiet: bool = False
    verbose: bool = False
    stats: bool = False
    yields: bool = False
    ask: AskUser | None = None

    @property
    def mixes(self) -> bool:
        """Whether texts of both streams may come together: while both are written, each gets whole lines."""
        return self.stderr.beside is not None

    @property
    def logs(self) -> bool:
        """Whether plain log lines belong on stderr."""
        return self.verbose or (self.stdout.terminal and not self.stderr.terminal and not self.quiet)

    @property
    def notes(self) -> bool:
        """Whether remarks to the user belong on stderr."""
        return not self.quiet and (self.logs or (self.stderr.terminal and not self.yields))

    def error(self, message: str, hint: str | None = None) -> None:
        """Print an error and a hint in the form that all errors have."""
        self._say("error:", RED, message)
        if hint is not None:
            self.hint(hint)

    def warning(self, text: str) -> None:
        """Print a warning, unless only errors are asked for: programs that read stderr need it too."""
        if not self.quiet:
            self._say("warning:", YELLOW, text)

    def hint(self, text: str) -> None:
        """Print a hint."""
        self._say("hint:", CYAN, text)

    def _say(self, label: str, style: str, text: str) -> None:
        """Print a label and one line, or on a narrower terminal several, broken between words."""
        lines = "\n".join(folded(printable(text), self.stderr.room, start=f"{label} "))
        self.stderr.write(f"{self.stderr.styled(label, style)}{lines.removeprefix(label)}\n")


def decide(
    color: Color | None = None,
    *,
    quiet: bool = False,
    verbose: bool = False,
    stats: bool = False,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
    env: Mapping[str, str] = os.environ,
) -> Output:
    """Look at the streams and the environment once.

    stderr is expendable: a remark or an error that nobody can read affects neither the answer nor the exit code.
    Colour follows the flag, then `LOCALDIFF_COLOR`, `NO_COLOR`, `FORCE_COLOR`; else all but dumb terminals get it.
    """
    out = _stream(STDOUT_NAME, stdout or sys.stdout, color, env, exact=True)
    err = _stream("stderr", stderr or sys.stderr, color, env, exact=False)
    if (err.terminal and (out.terminal or out.piped)) or _is_same_file(out.file, err.file):
        err = replace(err, beside=out)
    return Output(stdout=out, stderr=err, quiet=quiet, verbose=verbose, stats=stats)


def _is_same_file(one: TextIO, other: TextIO) -> bool:
    """Whether two streams write to one file or pipe, as after `2>&1`; Windows does not tell its pipes apart."""
    try:
        status = os.fstat(one.fileno())
        return os.path.samestat(status, os.fstat(other.fileno())) and status.st_ino != 0
    except (OSError, ValueError):
        return False


def _stream(name: str, file: TextIO | None, color: Color | None, env: Mapping[str, str], *, exact: bool) -> Stream:
    missing = file is None  # the process was started with this stream closed
    if file is None:
        file = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    terminal = is_terminal(file)
    if isinstance(file, io.TextIOWrapper):
        if exact and not terminal and "PYTHONIOENCODING" not in env:
            file.reconfigure(encoding="utf-8", errors="strict", newline="\n")
        else:
            file.reconfigure(errors="backslashreplace")
    moving = moves_cursor(file, env)
    return Stream(
        file=file,
        name=name,
        terminal=terminal,
        color=_colored(color, env, moving),
        moving=moving,
        width=_width(file, env) if terminal else 80,
        missing=missing,
        expendable=not exact,
    )


def _colored(color: Color | None, env: Mapping[str, str], capable: bool) -> bool:
    mode = color or env.get("LOCALDIFF_COLOR") or "auto"
    if mode in ("always", "never"):
        return mode == "always"
    if env.get("NO_COLOR"):
        return False
    if env.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return capable


def _width(file: TextIO, env: Mapping[str, str]) -> int:
    if _COLUMNS.fullmatch(columns := env.get("COLUMNS", "")) and int(columns) > 0:
        return int(columns)
    return terminal_size(file).columns
