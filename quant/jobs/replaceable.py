"""What an output may take the place of, and what is deleted for it: nothing that is not a job's.

Knows the names of all that jobs write; deletes nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from quant.errors import DamagedError, OutputError
from quant.files.manifest import read_manifest
from quant.files.source import INDEX_FILE
from quant.jobs.unfinished import is_unfinished
from quant.names import JOB_FILE, MANIFEST_FILE, NOTE, PARTIAL, SCRATCH
from quant.planning.plan import is_shard_name

_WRITTEN = (".safetensors", ".safetensors" + NOTE, PARTIAL)
"""How the names of shards, of their notes, and of files that are being written end."""
_LITTER = {".DS_Store", "Thumbs.db", "desktop.ini"}
"""Files that desktops leave in folders."""


def require_free(output: Path, *, force: bool, names: Collection[str] | None = None) -> None:
    """Refuse a path that is taken by something other than a quantized model, or that lies in one.

    Args:
        force: whether what is there will be replaced; it may then hold nothing that is not the model's.
        names: files of the model beside its weights, for one whose manifest cannot be read; None where they are not
            known yet, so that folders alone are seen to be another's.

    Raises:
        OutputError: it exists and is not a quantized model, or not only one, or is part of one.
    """
    if any((folder / MANIFEST_FILE).exists() for folder in output.absolute().parents):
        raise OutputError(f"`{output}` is inside a quantized model", "choose a directory beside it")
    if is_occupied(output) and not (output / MANIFEST_FILE).exists():
        raise OutputError(f"`{output}` exists and is not a quantized model", "choose another directory")
    if force and (foreign := _foreign(output, names)):
        raise OutputError(
            f"`{foreign[0]}` in `{output}` is not the model's, and would be deleted with it",
            "move it elsewhere, or choose another directory",
        )


def require_deletable(directory: Path, names: Collection[str]) -> None:
    """Refuse to delete a directory that is no job's, and has anything that jobs do not write.

    That is told by names, since it may have been deleted in part.

    Args:
        names: files of the model beside its weights.

    Raises:
        OutputError: it has such a thing.
    """
    if is_unfinished(directory):
        return
    own = {MANIFEST_FILE, JOB_FILE, INDEX_FILE, SCRATCH, *names, *_LITTER}
    with suppress(DamagedError):
        own |= read_manifest(directory).files.keys()
    entries = sorted(directory.iterdir()) if directory.is_dir() else [directory]
    for path in entries:
        written = path.name.endswith(_WRITTEN) and not path.is_dir()
        if path.name not in own and not written:
            raise OutputError(
                f"`{path}` was not written by `localdiff quantize`, and would be deleted",
                "move it elsewhere, or choose another directory",
            )


def is_occupied(path: Path) -> bool:
    """Whether something is in the way of a rename, as a link that leads nowhere is, and an empty directory is not."""
    return (path.exists() or path.is_symlink()) and (not path.is_dir() or any(path.iterdir()))


def _foreign(output: Path, names: Collection[str] | None) -> list[str]:
    """Names in a quantized model's directory that are not the model's."""
    entries = sorted(output.iterdir()) if output.is_dir() else []
    folders = [path.name for path in entries if path.is_dir()]
    files = [path.name for path in entries if not path.is_dir()]
    try:
        manifest = read_manifest(output)
        own = {MANIFEST_FILE, *manifest.shards, *manifest.files} | _LITTER
    except DamagedError:
        if names is None:
            return folders
        own = {MANIFEST_FILE, INDEX_FILE, *names, *filter(is_shard_name, files)} | _LITTER
    # A refresh that was killed leaves one of them half written, under the name that it has until then.
    return folders + [name for name in files if name.removesuffix(PARTIAL) not in own]
