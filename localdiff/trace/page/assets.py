"""The asset files of pages, and hashes for the content security policy of a page's own script and style."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent


@cache
def read(name: str) -> str:
    """Text of a file beside this one."""
    return (_FOLDER / name).read_text(encoding="utf-8")


@cache
def script(*names: str) -> str:
    """Files as one script, isolated from the page around it."""
    body = "\n".join(map(read, names))
    return f'(() => {{\n"use strict";\n{body}\n}})();\n'


@cache
def style(*names: str) -> str:
    """Files as one style sheet."""
    return "\n".join(map(read, names))


def policy_hash(text: str) -> str:
    """The hash by which a content security policy knows an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
