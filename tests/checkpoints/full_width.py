"""`python -m tests.checkpoints.full_width DIRECTORY [--layers N]`: random weights in the released layout at full width.

Knows the published names, shapes and configuration through their descriptions; the last layer is a full one, the others
slide. One file per layer, 1.7 GB each, and 1.5 GB for the rest; the vision tower is left out. The vocabulary has the
released size, but text is read and written through the demo model's tokenizer. For measuring memory, speed, resume and
size without the released weights: what such a model says means nothing.
"""

from __future__ import annotations

import argparse
import copy
import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from localdiff.checkpoints.model_reference import DEMO_DIRECTORY
from quant.files.disk import Disk
from quant.files.reader import row_slices
from quant.files.source import HeaderEntry
from quant.files.writer import Layout, ShardWriter
from quant.released import Shape, released_shapes
from tests.checkpoints.released import released_config

SPREAD = 0.02
_FULL = 5
_BORROWED = ("generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def full_width_shapes(layers: int) -> dict[str, Shape]:
    """Name → shape of the text tensors of a model with that many layers, the last of them full."""
    shapes = {}
    for name, shape in released_shapes(_FULL + 1).items():
        before, layer, after = _split(name)
        if "vision" in name:
            continue
        if layer is None:
            shapes[name] = shape
        elif layer == _FULL:
            shapes[f"{before}.layers.{layers - 1}.{after}"] = shape
        elif layer == 0:
            shapes |= {f"{before}.layers.{number}.{after}": shape for number in range(layers - 1)}
    return shapes


def full_width_config(layers: int) -> dict[str, Any]:
    """The published configuration with that many layers."""
    config = copy.deepcopy(released_config())
    kinds = ["sliding_attention"] * (layers - 1) + ["full_attention"]
    config["text_config"] |= {"layer_types": kinds, "num_hidden_layers": layers}
    return config


def write_full_width(directory: Path, layers: int, only: str = "") -> dict[str, Shape]:
    """Write a checkpoint, or only the tensors whose name contains `only`; returns their shapes."""
    directory.mkdir(parents=True, exist_ok=True)
    shapes = {name: shape for name, shape in full_width_shapes(layers).items() if only in name}
    files: dict[str, dict[str, Shape]] = {}
    for name, shape in shapes.items():
        files.setdefault(_group(name), {})[name] = shape
    weight_map = {}
    for number, tensors in enumerate(files.values(), 1):
        file = f"model-{number:05d}-of-{len(files):05d}.safetensors"
        _write(directory / file, tensors, seed=number)
        weight_map |= dict.fromkeys(tensors, file)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (directory / "config.json").write_text(json.dumps(full_width_config(layers), indent=2))
    for file in _BORROWED:
        shutil.copy(DEMO_DIRECTORY / file, directory)
    return shapes


def _split(name: str) -> tuple[str, int | None, str]:
    before, _, rest = name.partition(".layers.")
    number, _, after = rest.partition(".")
    return before, int(number) if number else None, after


def _group(name: str) -> str:
    before, layer, _ = _split(name)
    return before.partition(".")[0] if layer is None else str(layer)


def _write(path: Path, tensors: Mapping[str, Shape], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with ShardWriter(Disk(), path, Layout.of(_parts(tensors))) as writer:
        for name, shape in tensors.items():
            element = 0
            for part in row_slices(shape, 2):
                values = torch.randn(part.stop - part.start, shape[-1], generator=generator).mul_(SPREAD)
                if len(shape) == 1:
                    values += 1
                writer.write(name, element, values.to(torch.bfloat16))
                element += values.numel()
        writer.finish()


def _parts(tensors: Mapping[str, Shape]) -> Iterable[HeaderEntry]:
    return (HeaderEntry(name=name, dtype="BF16", shape=shape) for name, shape in tensors.items())


def main() -> None:
    """Write a checkpoint to the given directory."""
    parser = argparse.ArgumentParser(prog="python -m tests.checkpoints.full_width", description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--layers", type=int, default=2)
    arguments = parser.parse_args()
    write_full_width(arguments.directory, arguments.layers)


if __name__ == "__main__":
    main()
