"""Reads the prompt, from the argument, a file or standard input, and tells the user while it waits for input.

Knows how the three combine and what is not a prompt; also that whoever must type has to be told, and that a pipe may
never end. Knows nothing about templates or tokens.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import BinaryIO, TypeAlias

from localdiff.checkpoint_files import CHECK_PERMISSIONS
from localdiff.errors import UsageError
from localdiff.paths import expanded
from localdiff.quoting import shell_word
from localdiff.ui.console import is_terminal
from localdiff.ui.output import Output
from localdiff.ui.status import StatusLine
from localdiff.utf8 import decoded, read_bytes, require_text

STDIN = "-"
DELAY = 0.5
"""Seconds until the remark about a pipe; most have ended by then."""

LONG_DELAY = 3.0
"""Seconds until the remark where it cannot be erased again."""

_PATIENCE = 1.0
_SHORT = 60
"""Characters of a prompt that a hint repeats."""
_TEXT = "a prompt is UTF-8 text"
_REST = (
    "the rest of standard input became part of the prompt; "
    "in a loop that reads it, too, put `< /dev/null` after the command"
)
_EMPTY = "Standard input is empty: the model gets the prompt alone."
_GIVEN = "give it in quotes, with `-f FILE`, or through a pipe"


class NoPromptError(UsageError):
    """No prompt was given, and none is piped in."""


Reading: TypeAlias = Callable[[BinaryIO, bool], AbstractContextManager[None]]
"""Tells the user while standard input is read; the argument after it says whether it is added to a prompt."""


@contextmanager
def reading(output: Output, stdin: BinaryIO, adds: bool, *, shown: bool = True) -> Iterator[None]:
    """Says on stderr that standard input is being read: at once where somebody must type, after a while for a pipe.

    A warning tells of a file whose beginning has been read elsewhere: most often it is the list of a shell loop, which
    then ends after its first prompt.

    Args:
        adds: the input is added to an existing prompt. Only then is it said where stderr is not a terminal, for
            example of a command over ssh, whose input never ends, and which nobody meant to be read.
        shown: whether a status line may be shown.
    """
    if is_terminal(stdin):
        if output.notes:
            end = "Ctrl-Z and Enter end it" if sys.platform == "win32" else "Ctrl-D ends it"
            output.stderr.say(f"Reading the prompt from the terminal; {end}.")
        yield
        return
    status = StatusLine(output.stderr, shown=shown and not output.quiet)
    words, say, delay = "reading the prompt from standard input", status.show, DELAY
    if adds:
        words = "reading standard input, too; `< /dev/null` leaves it out"
        if not output.stderr.terminal:
            say, delay = output.warning, LONG_DELAY
    timer = threading.Timer(delay, say, [words])
    timer.daemon = True  # a terminal that is held with Ctrl-S may block it for ever
    begin = _position(stdin) if adds else 0
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join(_PATIENCE)
        status.clear()
    if begin and _position(stdin) > begin:
        output.warning(_REST)


def remark_on_input(output: Output, text: str) -> None:
    """Says something about standard input, where somebody reads remarks."""
    if output.notes:
        output.stderr.say(text)


def _position(stdin: BinaryIO) -> int:
    """How much of a file has been read; 0 of anything else, though a pipe says on Windows that it has a position."""
    try:
        return stdin.tell() if stat.S_ISREG(os.fstat(stdin.fileno()).st_mode) else 0
    except (OSError, ValueError):
        return 0


def _adds_something(stdin: BinaryIO) -> bool:
    """Whether it is a pipe or a file: `/dev/null` and a terminal add nothing, and are not meant to."""
    try:
        mode = os.fstat(stdin.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def read_prompt(
    argument: str | None,
    file: str | None,
    stdin: BinaryIO | None,
    waiting: Reading = lambda _stdin, _adds: nullcontext(),
    check: Callable[[], None] = lambda: None,
    remark: Callable[[str], None] = lambda _text: None,
) -> str:
    """Compose the prompt.

    Args:
        argument: the words on the command line.
        file: a path, or `-` for standard input.
        check: called before standard input is read, which may take minutes; raises what would make that useless.
        remark: gets a sentence for the user where nothing came from a command or a file that was to add something.

    Returns:
        The argument, the file, or standard input; piped input follows an argument or a file after a blank line. Lines
        of files and of standard input end with a line feed alone.

    Raises:
        UsageError: two prompts, an empty one, a missing file, something that is not text, or more than any context
            holds.
        NoPromptError: no prompt at all.
    """
    if argument is not None and file is not None:
        words = shell_word(argument) if len(argument) <= _SHORT and argument.isprintable() else "'…'"
        source = "" if file == STDIN else f" < {shell_word(file)}"
        raise UsageError(
            f"two prompts: the argument and `-f {file}`",
            f"piped input follows an argument, as in `localdiff run {words}{source}`",
        )
    if file == "":
        raise UsageError("`-f` is empty", "it takes the name of a text file, or `-` for standard input")
    text = argument if file in (None, STDIN) else _decode_text(_read_file(file), f"`{file}`")
    is_piped = stdin is not None and not is_terminal(stdin)
    if text is None and file is None and not is_piped:
        raise NoPromptError("no prompt", _GIVEN)
    check()
    if file == STDIN:
        return _decode_text(_read_stdin(stdin, waiting, adds=False), "standard input")
    piped = _read_stdin(stdin, waiting, adds=text is not None) if is_piped else b""
    if text is None:
        if not piped:
            raise UsageError("no prompt, and standard input is empty", _GIVEN)
        return _decode_text(piped, "standard input")
    _require_text(text, "the prompt")
    if not piped.strip():  # `echo` writes an empty line
        if stdin is not None and _adds_something(stdin):
            remark(_EMPTY)
        return text
    before = text if file is None else text.rstrip("\n")  # the end of its last line, not a blank line
    return f"{before}\n\n{_decode_text(piped, 'standard input')}"


def _read_stdin(stdin: BinaryIO | None, waiting: Reading, *, adds: bool) -> bytes:
    if stdin is None:
        return b""
    with waiting(stdin, adds):
        return read_bytes(stdin, "standard input")


def _read_file(path: str) -> bytes:
    try:
        with expanded(path).open("rb") as file:
            return read_bytes(file, f"`{path}`")
    except FileNotFoundError:
        raise UsageError(f"no such file: `{path}`", "the prompt is read from FILE in `-f FILE`") from None
    except IsADirectoryError:
        raise UsageError(f"`{path}` is a directory", "`-f` takes a text file") from None
    except OSError as error:
        hint = CHECK_PERMISSIONS if isinstance(error, PermissionError) else "`-f` takes a text file"
        raise UsageError(f"`{path}` cannot be read: {error.strerror}", hint) from error


def _decode_text(data: bytes, what: str) -> str:
    text = decoded(data, what, _TEXT).replace("\r\n", "\n")  # as in chat: Windows' line ends are other tokens
    _require_text(text, what)
    return text


def _require_text(text: str, what: str) -> None:
    if not text.strip():
        raise UsageError(f"{what} is empty", "a prompt needs at least one word")
    require_text(text, what, _TEXT)
