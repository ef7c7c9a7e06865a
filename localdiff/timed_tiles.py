"""The file of tiles that `localdiff tune` has timed on a GPU.

It counts for GPUs of the same name, with the same version of Triton and the same kernels. Knows where the file is and
when it counts; knows nothing about how tiles are timed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
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
from localdiff.paths import shown, state_dir
from localdiff.private_file import make_private_folder, write_private
from localdiff.strict_json import Malformed, decode, parse
from quant.cuda.switches import is_plain
from quant.cuda.tiles import ExpertTile, Tile
from quant.cuda.timed import Product, use_timed

AnyTile: TypeAlias = Tile | ExpertTile | AttentionTile

AGAIN = "`localdiff tune` times them again, and `localdiff tune --forget` deletes the file"

_log = logging.getLogger(__name__)


class StaleTiles(Exception):
    """Tiles that no longer count; the text says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Choice:
    """A product and its tile, of the class that its kind has."""

    product: Product
    tile: Tile | None = None
    experts: ExpertTile | None = None
    attention: AttentionTile | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _File:
    gpu: str
    triton: str
    kernels: str
    tiles: tuple[_Choice, ...]


def tiles_file(device: torch.device) -> Path:
    """Where the tiles of a GPU are kept, by its name."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", torch.cuda.get_device_name(device)).strip("-")
    return state_dir() / "tiles" / f"{name}.json"


def take_timed_tiles(device: torch.device) -> int:
    """Has a GPU's kernels take the tiles that were timed there, or the tables' where there are none that count.

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
        StaleTiles: it cannot be read, or no longer counts.
    """
    file = tiles_file(device)
    try:
        content = decode(_File, parse(file.read_bytes()), "tiles")
        tiles = dict(_chosen(choice) for choice in content.tiles)
    except FileNotFoundError:
        return {}
    except (OSError, Malformed) as error:
        raise StaleTiles(f"`{shown(file)}` cannot be read ({error})") from error
    if content.triton != _triton():
        raise StaleTiles(f"they were timed with Triton {content.triton}")
    if content.gpu != torch.cuda.get_device_name(device) or content.kernels != _kernels():
        raise StaleTiles("they were timed with other kernels")
    return tiles


def keep_timed_tiles(device: torch.device, tiles: Mapping[Product, AnyTile]) -> Path | None:
    """Keeps tiles for later runs, in place of all that the GPU's file had.

    Returns:
        The file; None where there are no tiles, and no file is left.

    Raises:
        ResourceError: the file cannot be written or deleted.
    """
    file = tiles_file(device)
    try:
        if not tiles:
            file.unlink(missing_ok=True)
            return None
        make_private_folder(file.parent)
        write_private(file, json.dumps(dataclasses.asdict(_content(device, tiles)), indent=1).encode())
    except OSError as error:
        raise _not_written(file, error) from error
    return file


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


def _content(device: torch.device, tiles: Mapping[Product, AnyTile]) -> _File:
    return _File(
        gpu=torch.cuda.get_device_name(device),
        triton=_triton(),
        kernels=_kernels(),
        tiles=tuple(_choice(product, tile) for product, tile in tiles.items()),
    )


def _chosen(choice: _Choice) -> tuple[Product, AnyTile]:
    kinds = {"experts": choice.experts, "attention": choice.attention}
    tile = kinds.get(choice.product.kind, choice.tile)
    if tile is None:
        raise Malformed(f"a product of kind `{choice.product.kind}` has no tile")
    return choice.product, tile


def _choice(product: Product, tile: AnyTile) -> _Choice:
    if isinstance(tile, ExpertTile):
        return _Choice(product=product, experts=tile)
    if isinstance(tile, AttentionTile):
        return _Choice(product=product, attention=tile)
    return _Choice(product=product, tile=tile)


def _triton() -> str:
    """Triton's version; empty where it is missing, and no kernel takes a tile."""
    if importlib.util.find_spec("triton") is None:
        return ""
    import triton

    return str(triton.__version__)


@cache
def _kernels() -> str:
    """A hash of the kernels' sources."""
    folders = [Path(package.__file__ or "").parent for package in (quant.cuda, localdiff.kernels)]
    sources = [file for folder in folders for file in sorted(folder.glob("*_kernels.py"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()
