"""The errors that a user can meet: one sentence, a hint, an exit code.

Knows wording and exit codes; knows nothing about where an error is raised. Messages follow one form: a single sentence
without a final period, things to type in back-ticks, and a separate `hint` that says what to do next.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Callable, Mapping

INTERRUPTED = 130
"""Exit code of a command that the user stopped, or said no to: 128 + SIGINT, as in shells."""


class LocaldiffError(Exception):
    """Base of every error that is shown as a sentence instead of a traceback.

    Attributes:
        message: one sentence, no final period.
        hint: what the user can do about it, or None.
        exit_code: the status of the process.
    """

    exit_code: int = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message  # `message` may have been reworded since

    @property
    def hint(self) -> str | None:
        """As above; a traceback shows it as a note below the message."""
        return self._hint

    @hint.setter
    def hint(self, hint: str | None) -> None:
        self._hint = hint
        self.__notes__ = [] if hint is None else [f"hint: {hint}"]


class UsageError(LocaldiffError):
    """What the user typed, or gave as a prompt, cannot be used."""

    exit_code = 2


class ArgumentError(UsageError):
    """A value that an argument cannot take, or cannot take together with another argument.

    Its message says `steps=0`, as in Python. The command line, which knows what was typed, makes that `--steps 0`.

    Args:
        form: the message, with `{steps}` where the argument and its value belong.
        hint: as for all errors.
        values: name → value of every argument in `form`.
    """

    def __init__(self, form: str, hint: str | None = None, **values: object) -> None:
        self._form = form
        self._names: dict[str, str] = {}
        self._values = values
        super().__init__(self._worded(_as_in_python), hint)

    @property
    def values(self) -> dict[str, object]:
        """Name → value of every argument in the message."""
        return {self._names.get(name, name): value for name, value in self._values.items()}

    def say(self, wording: Callable[[str, object], str]) -> None:
        """Rewords the message; `wording` makes each argument's text from its name and its value."""
        self.message = self._worded(wording)

    def rename(self, names: Mapping[str, str]) -> None:
        """Renames arguments, in the message too."""
        self._names.update(names)
        self.say(_as_in_python)

    def _worded(self, wording: Callable[[str, object], str]) -> str:
        return self._form.format(
            **{name: wording(self._names.get(name, name), value) for name, value in self._values.items()}
        )


def _as_in_python(name: str, value: object) -> str:
    return f"{name}={value!r}"


class ContextError(UsageError):
    """A prompt that leaves no room for an answer."""


class WeightsError(LocaldiffError):
    """Weights are missing, unreadable, or belong to another model."""

    exit_code = 3


class ResourceError(LocaldiffError):
    """A device is missing or fails, or there is too little memory or disk space."""

    exit_code = 4


class TraceError(LocaldiffError):
    """A trace is damaged, was changed, or has a version that this program does not know."""

    exit_code = 5


def kind_of(value: object) -> str:
    """The type of a value with its article, for a message about a wrong type."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIO' else 'a'} `{name}`"


def one_line(error: BaseException) -> str:
    """The message of an error whose text may come from a downloaded file: one printable line without a period.

    A system error is reduced to its text, without its number and the path, which our own messages name.
    """
    words = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
    text = "".join(c if c.isprintable() else " " for c in without_password(words))
    return " ".join(text.split())[:200].rstrip(".")


def without_password(text: str) -> str:
    """A text with `****` for the user name and the password in each URL, such as a mirror's or a proxy's."""
    return re.sub(r"(?<=://)[^\s/]*@", "****@", text)


def print_traceback(error: BaseException) -> None:
    """Prints an error's traceback to stderr, without passwords in URLs."""
    print(without_password("".join(traceback.format_exception(error))), end="", file=sys.stderr)
