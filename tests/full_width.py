"""`python -m tests.full_width DIRECTORY [--layers N]`: random weights in the released layout at full width.

Knows the published names and shapes through their description, and writes one file a layer: 1.7 GB each, and 1.5 GB
for the rest. The vision tower is left out. For measuring memory, speed, resume and size without the released weights.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch

from quant.disk import Disk
from quant.released import Shape, released_shapes
from quant.slices import row_slices
from quant.writer import Layout, Part, ShardWriter

SPREAD = 0.02


def write_full_width(directory: Path, layers: int, only: str = "") -> dict[str, Shape]:
    """Write the text tensors of the first `layers` layers whose name contains `only`; returns their shapes."""
    directory.mkdir(parents=True, exist_ok=True)
    shapes = {name: shape for name, shape in released_shapes(layers).items() if "vision" not in name and only in name}
    files: dict[str, dict[str, Shape]] = {}
    for name, shape in shapes.items():
        files.setdefault(_group(name), {})[name] = shape
    weight_map = {}
    for number, tensors in enumerate(files.values(), 1):
        file = f"model-{number:05d}-of-{len(files):05d}.safetensors"
        _write(directory / file, tensors, seed=number)
        weight_map |= dict.fromkeys(tensors, file)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return shapes


def _group(name: str) -> str:
    head, _, tail = name.partition(".layers.")
    return tail.partition(".")[0] if tail else head.partition(".")[0]


def _write(path: Path, tensors: Mapping[str, Shape], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with ShardWriter(Disk(), path, Layout.of(_parts(tensors))) as writer:
        for name, shape in tensors.items():
            element = 0
            for part in row_slices(shape, 2):
                values = torch.randn(part.stop - part.start, shape[-1], generator=generator)
                writer.write(name, element, values.mul_(SPREAD).to(torch.bfloat16))
                element += values.numel()
        writer.finish()


def _parts(tensors: Mapping[str, Shape]) -> Iterable[Part]:
    return (Part(name=name, dtype="BF16", shape=shape) for name, shape in tensors.items())


def main() -> None:
    """Write a checkpoint to the directory that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--layers", type=int, default=2)
    arguments = parser.parse_args()
    write_full_width(arguments.directory, arguments.layers)


if __name__ == "__main__":
    main()
