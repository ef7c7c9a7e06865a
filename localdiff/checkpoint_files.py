"""The files of a checkpoint: the names of those beside its weights, and how any of its files is read.

Knows names, and what keeps a file from being read; knows nothing about its content. Weight files are named in
`quant.files.source`.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

from localdiff.errors import WeightsError, one_line

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
CHAT_TEMPLATE = "chat_template.jinja"
TEXT_FILES = (CONFIG, GENERATION_CONFIG, TOKENIZER, TOKENIZER_CONFIG, CHAT_TEMPLATE)
"""All of the above: what is downloaded, and copied beside quantized weights."""

CHECK_PERMISSIONS = "check its permissions"
MAX_SMALL = 100_000_000
"""Bytes of the largest file that is read as a whole; tokenizers of hundreds of thousands of tokens are smaller."""


def refusal(path: Path) -> str | None:
    """Why this user may not read a file, or not even see whether it exists; None where that is not the problem."""
    try:
        if stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would wait
            with open(path, "rb"):
                pass
    except PermissionError as error:
        return error.strerror
    except (OSError, ValueError):
        return None
    return None


def require_readable(path: Path) -> None:
    """Refuse a file of a model that this user may not read: libraries take some of these for missing or damaged.

    A device or a pipe in its place is refused as well: it may be endless, or block until somebody writes to it.

    Raises:
        WeightsError: it may not be read, or is a device or a pipe.
    """
    if (why := refusal(path)) is not None:
        raise WeightsError(f"`{path}` cannot be read: {why}", CHECK_PERMISSIONS)
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise WeightsError(f"`{path}` is a device or a pipe, not a file", "fetch it again")


def read_small(path: Path) -> bytes:
    """The content of an untrusted file, which is small if it is what its name says.

    Raises:
        OSError: it cannot be read, is larger than any such file, or is a device or a pipe.
    """
    status = os.stat(path)
    if stat.S_ISREG(status.st_mode) and status.st_size > MAX_SMALL:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise OSError(errno.EINVAL, "a device or a pipe, not a file", str(path))
    return path.read_bytes()


def read_object(path: Path, remedy: str) -> dict[str, Any]:
    """The JSON object in a small file.

    Args:
        remedy: the hint where it is damaged.

    Raises:
        FileNotFoundError: there is no such file.
        WeightsError: it cannot be read, or holds something else.
    """
    require_readable(path)
    try:
        value = json.loads(read_small(path).decode())
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise WeightsError(f"`{path}` cannot be read as JSON ({one_line(error)})", remedy) from error
    if not isinstance(value, dict):
        raise WeightsError(f"`{path}` is not a JSON object", remedy)
    return value


def require_utf8(path: Path, hint: str) -> None:
    """Refuse a weight file whose path is not UTF-8, which safetensors cannot open.

    Raises:
        WeightsError: the path is not UTF-8.
    """
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError as error:
        raise WeightsError(f"`{path}` is not a name in UTF-8, and safetensors opens no other", hint) from error
