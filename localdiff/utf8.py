"""Text from files, pipes and the command line: UTF-8, or an error that says where it is not.

Knows bytes; knows nothing about what a text is for.
"""

from __future__ import annotations

from typing import BinaryIO

from localdiff.errors import UsageError

MAX_BYTES = 16_000_000
"""Maximum of one text: more than any context holds, and little enough to read before that is known."""


def read_bytes(file: BinaryIO, what: str) -> bytes:
    """The rest of a file or a pipe, which may be endless.

    Args:
        what: where the bytes are from, for the message.

    Raises:
        UsageError: there are more of them than any context holds.
    """
    data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise too_long(what)
    return data


def too_long(what: str) -> UsageError:
    """The error about more bytes than any context holds."""
    amount = f"more than {MAX_BYTES / 1e6:,.0f} MB"
    return UsageError(f"{what} has {amount}, more than any context holds", "send the part that matters")


def decoded(data: bytes, what: str, hint: str) -> str:
    """The text, without a byte order mark.

    Args:
        what: where the bytes are from, for the message.
        hint: what is expected there.

    Raises:
        UsageError: they contain a null byte, or are not UTF-8.
    """
    if b"\0" in data:
        raise UsageError(f"{what} is not text: it contains a null byte", hint)
    try:
        return data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{what} is not text: byte {error.start} is not UTF-8", f"{hint}; `iconv` converts other encodings"
        ) from None


def require_text(text: str, what: str, hint: str) -> None:
    """Refuse a text with lone surrogates, which in arguments and file names stand for bytes that are not UTF-8.

    Args:
        what: what it is, for the message.
        hint: what is expected there.

    Raises:
        UsageError: it has one.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{what} is not text: its character {error.start + 1} is not UTF-8", hint) from None
