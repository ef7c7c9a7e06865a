"""The asset files of pages: templates, scripts and styles."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent
_SHARED_SCRIPTS = ("decode.js", "colour.js", "draft.js", "charts.js", "table.js", "looks.js", "scrubber.js")


@cache
def read(name: str) -> str:
    """Text of a file beside this one."""
    return (_FOLDER / name).read_text(encoding="utf-8")


@cache
def inlined(own_script: str, *styles: str) -> dict[str, str]:
    """What a template has as `script` and `style`, and the hashes by which its content security policy knows them."""
    body = "\n".join(map(read, (*_SHARED_SCRIPTS, own_script)))
    script = f'(() => {{\n"use strict";\n{body}\n}})();\n'  # isolated from the page around it
    style = "\n".join(map(read, styles))
    return {"script": script, "script_hash": _hash(script), "style": style, "style_hash": _hash(style)}


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
