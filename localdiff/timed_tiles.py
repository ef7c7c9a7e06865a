"""The file of tiles that `localdiff tune` has timed on a GPU.

It is valid for GPUs of the same name, with the same version of Triton and the same kernels. Knows where the file is
and when it is valid; knows nothing about how tiles are timed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

import torch

import localdiff.kernels
import quant.cuda
from localdiff.errors import ResourceError
from localdiff.kernels.attention import AttentionTile
from localdiff.machine.private_file import make_private_folder, write_private
from localdiff.paths import shown, state_dir
from localdiff.strict_json import Malformed, decode, parse
from quant.cuda.switches import is_plain
from quant.cuda.tiles import ExpertTile, Tile
from quant.cuda.timed import Product, use_timed

AnyTile: TypeAlias = Tile | ExpertTile | AttentionTile

AGAIN = "`localdiff tune` times them again, and `localdiff tune --forget` deletes the file"

_log = logging.getLogger(__name__)


class StaleTiles(Exception):
    """Tiles that are no longer valid; the text says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """A product and its tile as stored in a file; the product's kind determines the field that holds the tile."""

    product: Product
    tile: Tile | None = None
    experts: ExpertTile | None = None
    attention: AttentionTile | None = None

    @classmethod
    def of(cls, product: Product, tile: AnyTile) -> Choice:
        """A product's tile."""
        if isinstance(tile, ExpertTile):
            return cls(product=product, experts=tile)
        if isinstance(tile, AttentionTile):
            return cls(product=product, attention=tile)
        return cls(product=product, tile=tile)

    @property
    def pair(self) -> tuple[Product, AnyTile]:
        """The product and its tile.

        Raises:
            Malformed: there is no tile of the product's kind.
        """
        kinds = {"experts": self.experts, "attention": self.attention}
        tile = kinds.get(self.product.kind, self.tile)
        if tile is None:
            raise Malformed(f"a product of kind `{self.product.kind}` has no tile")
        return self.product, tile


@dataclass(frozen=True, kw_only=True, slots=True)
class TimedOn:
    """What tiles were timed on, and are valid for.

    Attributes:
        gpu: its name.
        triton: its version.
        kernels: a hash of their sources.
    """

    gpu: str
    triton: str
    kernels: str

    def require(self, device: torch.device) -> None:
        """Raises StaleTiles if `device` is another GPU, or Triton or the kernels have changed."""
        if self.triton != _triton():
            raise StaleTiles(f"they were timed with Triton {self.triton}")
        if self.gpu != torch.cuda.get_device_name(device) or self.kernels != _kernels():
            raise StaleTiles("they were timed with other kernels")


@dataclass(frozen=True, kw_only=True, slots=True)
class _File(TimedOn):
    tiles: tuple[Choice, ...]


def tiles_file(device: torch.device) -> Path:
    """Where the tiles of a GPU are kept, by its name."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", torch.cuda.get_device_name(device)).strip("-")
    return state_dir() / "tiles" / f"{name}.json"


def take_timed_tiles(device: torch.device) -> int:
    """Makes a GPU's kernels use the tiles that were timed there, or the tables' where no timed ones are valid.

    Other devices have none.

    Returns:
        How many were timed.

    Raises:
        SwitchError: an environment variable has an invalid value.
    """
    tiles: Mapping[Product, AnyTile] = {}
    if device.type == "cuda" and not is_plain("tiles"):
        try:
            tiles = read_timed_tiles(device)
        except StaleTiles as error:
            _log.warning("timed tiles are not taken: %s; %s", error, AGAIN)
    use_timed(device, tiles)
    if tiles:
        _log.info("tiles: %d were timed on this GPU by `localdiff tune`", len(tiles))
    return len(tiles)


def read_timed_tiles(device: torch.device) -> dict[Product, AnyTile]:
    """The tiles of a GPU's file, or none if there is no such file.

    Raises:
        StaleTiles: it cannot be read, or is no longer valid.
    """
    file = tiles_file(device)
    try:
        content = decode(_File, parse(file.read_bytes()), "tiles")
        tiles = dict(choice.pair for choice in content.tiles)
    except FileNotFoundError:
        return {}
    except (OSError, Malformed) as error:
        raise StaleTiles(f"`{shown(file)}` cannot be read ({error})") from error
    content.require(device)
    return tiles


def keep_timed_tiles(device: torch.device, tiles: Mapping[Product, AnyTile]) -> Path | None:
    """Keeps tiles for later runs, replacing all in the GPU's file.

    Returns:
        The file; None where there are no tiles, and no file is left.

    Raises:
        ResourceError: the file cannot be written or deleted.
    """
    choices = tuple(Choice.of(product, tile) for product, tile in tiles.items())
    file = tiles_file(device)
    content = dataclasses.asdict(_File(**what_counts(device), tiles=choices))
    write_tiles(file, json.dumps(content, indent=1) if choices else None)
    return file if choices else None


def write_tiles(file: Path, content: str | None) -> None:
    """Writes a file in the folder of tiles, or deletes it if there is nothing to write.

    Raises:
        ResourceError: it cannot be written or deleted.
    """
    try:
        if content is None:
            file.unlink(missing_ok=True)
        else:
            make_private_folder(file.parent)
            write_private(file, content.encode())
    except OSError as error:
        raise _not_written(file, error) from error


def what_counts(device: torch.device) -> dict[str, str]:
    """The fields of `TimedOn`, for what is timed now."""
    return {"gpu": torch.cuda.get_device_name(device), "triton": _triton(), "kernels": _kernels()}


def require_writable(device: torch.device) -> None:
    """Checks that tiles can be kept; changes nothing that is kept.

    Raises:
        ResourceError: the file cannot be written.
    """
    file = tiles_file(device)
    try:
        make_private_folder(file.parent)
        tempfile.TemporaryFile(dir=file.parent).close()
    except OSError as error:
        raise _not_written(file, error) from error


def _not_written(file: Path, error: OSError) -> ResourceError:
    return ResourceError(f"`{shown(file)}` cannot be written: {error.strerror or error}")


def _triton() -> str:
    """Triton's version; empty where it is missing or does not load, and no kernel takes a tile."""
    try:
        from triton import __version__
    except ImportError:  # also where only its folder is left, which has no version
        return ""
    return str(__version__)


@cache
def _kernels() -> str:
    """A hash of the kernels' sources."""
    folders = [Path(package.__file__ or "").parent for package in (quant.cuda, localdiff.kernels)]
    sources = [file for folder in folders for file in sorted(folder.glob("*_kernels.py"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()
