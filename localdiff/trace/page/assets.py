"""The asset files of pages: templates, scripts and styles."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from string import Template

_FOLDER = Path(__file__).parent
_SHARED_SCRIPTS = ("decode.js", "colour.js", "draft.js", "charts.js", "table.js", "looks.js", "scrubber.js")


@cache
def read(name: str) -> str:
    """Text of a file beside this one."""
    return (_FOLDER / name).read_text(encoding="utf-8")


def inlined(title: str, own_script: str, *styles: str) -> dict[str, str]:
    """A template's `head` and `script`; the policy in the head allows script and style by their hashes."""
    body = "\n".join(map(read, (*_SHARED_SCRIPTS, own_script)))
    script = f'(() => {{\n"use strict";\n{body}\n}})();\n'  # isolated from the page around it
    style = "\n".join(map(read, styles))
    head = Template(read("head.html")).substitute(
        title=title, script_hash=_hash(script), style=style, style_hash=_hash(style)
    )
    return {"head": head, "script": script}


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
