"""Errors about stored weights, with the messages that users see.

Knows exit codes and the form of messages; knows nothing about where an error is raised. Messages have the form in which
the program shows them: one sentence without a final period, and a separate hint.
"""

from __future__ import annotations

import json


class QuantError(Exception):
    """Base of every error of this package that a user can meet.

    Attributes:
        message: one sentence, no final period.
        hint: what the user can do about it, or None.
        exit_code: status that a command ends with.
    """

    exit_code: int = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class RecipeError(QuantError):
    """A recipe does not fit the tensors it is applied to, or does not exist."""

    exit_code = 2


class SourceError(QuantError):
    """Weights that are to be read are missing or damaged."""

    exit_code = 3


class SpaceError(QuantError):
    """There is not enough disk space for what is to be written."""

    exit_code = 4


class OutputError(QuantError):
    """A place to write to is taken, belongs to another job, or cannot be written."""

    exit_code = 2


class DamagedError(QuantError):
    """Stored weights do not match their manifest."""

    exit_code = 5


class FormError(ValueError):
    """A file's content does not have the required form; the message is a reason that users see."""


def reason(error: Exception) -> str:
    """Why the content of a file cannot be used, for users; Python's own messages are for programmers."""
    match error:
        case FormError():
            return str(error)
        case json.JSONDecodeError():
            return f"it is not JSON in line {error.lineno}, column {error.colno}"
        case UnicodeDecodeError():
            return "it is not text in UTF-8"
        case RecursionError():
            return "it is nested too deeply"
    return "it does not have the required form"
