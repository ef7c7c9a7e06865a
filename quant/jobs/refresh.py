"""Replaces small files of a finished output without touching its weights.

Knows how a manifest lists files; does not know what is in them. A refresh that is stopped leaves at worst a file that
does not match the manifest, and the job that made the directory repairs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from quant.errors import OutputError
from quant.files.disk import Disk, write_atomically
from quant.files.manifest import FileEntry, Manifest, read_manifest
from quant.names import MANIFEST_FILE


def stale(manifest: Manifest, contents: Mapping[str, bytes]) -> tuple[str, ...]:
    """Names of the contents that the manifest lists differently or not at all."""
    return tuple(name for name, content in contents.items() if manifest.files.get(name) != FileEntry.of(content))


def refresh(directory: Path, contents: Mapping[str, bytes], disk: Disk | None = None) -> None:
    """Write files beside the weights, and list them in the manifest, which is written last.

    Args:
        directory: a finished output.
        contents: name → what the file will hold; other files stay as they are.

    Raises:
        DamagedError: the manifest cannot be read.
        OutputError: a file that is not the model's has one of the names.
        SpaceError: the disk is full.
    """
    disk = disk or Disk()
    manifest = read_manifest(directory)
    for name, content in contents.items():
        path = directory / name
        if name not in manifest.files and path.exists() and path.read_bytes() != content:
            raise OutputError(f"`{path}` is not the model's, and would be replaced", "move it elsewhere")
    for name, content in contents.items():
        write_atomically(disk, directory / name, content)
    entries = {name: FileEntry.of(content) for name, content in contents.items()}
    renewed = replace(manifest, files={**manifest.files, **entries})
    write_atomically(disk, directory / MANIFEST_FILE, renewed.to_text().encode())
