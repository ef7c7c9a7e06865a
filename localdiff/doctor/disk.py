"""Free space on the disks that weights go to.

Knows two directories, free bytes, and what each recipe writes; imports no torch, which planning would need.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from localdiff import paths
from localdiff.doctor.finding import Finding
from localdiff.sizes import shown_size
from quant.released import DTYPE_BYTES, released_shapes

OUTPUT_BYTES: Mapping[str, int] = {
    "4bit": 15_393_510_520,
    "4bit-small": 13_809_521_784,
    "mixed": 18_438_575_224,
    "int8": 26_051_236_984,
    "bf16": 50_501_973_624,
}
"""Bytes that each recipe writes for the released weights."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """Bytes that a recipe would write, to all disks or to one: the download and the output."""

    recipe: str
    download: int
    output: int


def need_of(recipe: str) -> Need:
    """The disk space that making a recipe of the released weights needs."""
    download = DTYPE_BYTES * sum(math.prod(shape) for shape in released_shapes().values())
    return Need(recipe=recipe, download=download, output=OUTPUT_BYTES[recipe])


def check_disk(need: Need | None, env: Mapping[str, str]) -> list[Finding]:
    """Free bytes where quantized models and downloads go, and whether a recipe could still be made.

    Args:
        need: that of the recipe; None where a quantized model is here already.
    """
    folders = models, downloads = paths.models_dir(env), paths.hub_cache_dir(env)
    places = list(map(paths.nearest, folders))
    disks, rights = {place.stat().st_dev for place in places}, {os.access(place, os.W_OK) for place in places}
    if len(disks) == len(rights) == 1 and not any(map(paths.obstacle, folders)):
        return [_finding("models and downloads", models, need, env)]
    return [
        _finding("models", models, need and replace(need, download=0), env),
        _finding("downloads", downloads, need and replace(need, output=0), env),
    ]


def _not_writable(what: str, why: str, *, advice: str, facts: Mapping[str, object]) -> Finding:
    text = f"{what} cannot be written"
    return Finding(
        subject="disk",
        status="warn",
        text=f"{text} ({why})",
        public=text,
        advice=f"{advice}; or `LOCALDIFF_HOME` and `HF_HOME` choose other folders",
        facts=facts,
    )


def _finding(what: str, folder: Path, need: Need | None, env: Mapping[str, str]) -> Finding:
    if (obstacle := paths.obstacle(folder)) is not None:
        why = f"`{paths.shown(obstacle, env)}` is not a folder"
        return _not_writable(what, why, advice="move it elsewhere", facts={"what": what})
    directory = paths.nearest(folder)
    free = shutil.disk_usage(directory).free
    needed_bytes = None if need is None else need.download + need.output
    facts = {"what": what, "free_bytes": free, "needed_bytes": needed_bytes}
    there = f" ({paths.shown(directory, env)})"
    text = f"{shown_size(free)} free for {what}"
    if not os.access(directory, os.W_OK):
        return _not_writable(what, paths.shown(directory, env), advice="make it writable", facts=facts)
    finding = partial(Finding, subject="disk", facts=facts)
    if needed_bytes is None or need is None:
        return finding(status="ok", text=text + there, public=text)
    make = f"localdiff quantize --recipe {need.recipe}"
    command = f"`{make}` takes {shown_size(needed_bytes)}"
    if free >= needed_bytes:
        return finding(status="ok", text=f"{text}{there}; {command} of it", public=f"{text}; {command} of it")
    advice = "`LOCALDIFF_HOME` and `HF_HOME` choose other disks"
    if need.download and free > need.output:
        kept = f"{shown_size(need.output)} and " if need.output else ""
        advice = f"`{make} --stream` takes less: {kept}one file of the download at a time; {advice}"
    return finding(status="warn", text=f"{text}{there}, and {command}", public=f"{text}, and {command}", advice=advice)
