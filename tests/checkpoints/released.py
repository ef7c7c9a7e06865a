"""What can be known of the released 26B checkpoint without its weights: names, shapes and configuration.

Knows `tests/data/`; knows nothing about localdiff.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_DATA = Path(__file__).parents[1] / "data"
_FULL = (5, 11, 17, 23, 29)
_LAYERS = {
    "all": tuple(range(30)),
    "full": _FULL,
    "sliding": tuple(index for index in range(30) if index not in _FULL),
    "vision": tuple(range(27)),
}


def released_tensors() -> dict[str, tuple[int, ...]]:
    """Name → shape of every tensor, vision included."""
    tensors = {}
    for line in (_DATA / "released_tensors.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        name, shape = line.split()
        for concrete in _expand(name):
            tensors[concrete] = tuple(int(size) for size in shape.split("x"))
    return tensors


def released_config() -> dict[str, Any]:
    """The published `config.json`, without its vision part."""
    config: dict[str, Any] = json.loads((_DATA / "released_config.json").read_text())
    return config


def _expand(name: str) -> list[str]:
    for group, layers in _LAYERS.items():
        if f"{{{group}}}" in name:
            return [name.replace(f"{{{group}}}", str(layer)) for layer in layers]
    return [name]
