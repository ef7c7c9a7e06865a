"""`docs/format.md` says what the code does."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

from quant.codecs import CODECS
from quant.codecs.nf4 import LEVELS
from quant.files.manifest import FIRST_ENCODING, VERSION
from quant.recipe import Scheme
from tests.checkpoints.manifest import MANIFEST

PAGE = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")


def test_levels() -> None:
    pairs = re.findall(r"\| (\d+) \| (-?[\d.]+) ", PAGE)
    assert {int(code): float(level) for code, level in pairs} == dict(enumerate(LEVELS))


def test_version() -> None:
    assert f"Version {VERSION}." in PAGE
    assert f"| `version` | `{VERSION}`; " in PAGE


def test_schemes() -> None:
    section = PAGE[PAGE.index("| Scheme |") : PAGE.index("`NAME` is")]
    assert {*re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)} == {*get_args(Scheme)}


def test_keys_of_the_manifest() -> None:
    section = PAGE[PAGE.index("## The manifest") :]
    manifest = replace(MANIFEST, encoding=FIRST_ENCODING + 1)  # the first one is not written
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == set(json.loads(manifest.to_text()))


def test_error_limits() -> None:
    limits = ", ".join(f"{codec.name} {codec.error_limit:g}" for codec in CODECS.values())
    assert f"({limits})" in PAGE
