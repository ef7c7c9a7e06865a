"""Text from files and pipes: UTF-8, or an error that says where it is not.

Knows bytes; knows nothing about what a text is for.
"""

from __future__ import annotations

from localdiff.errors import UsageError


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
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{what} is not text: byte {error.start} is not UTF-8", f"{hint}; `iconv` converts other encodings"
        ) from None
