"""Whether a finished output that exists before a run is the one requested.

Knows what a manifest says of its source and what can be seen of that source without the Hub; whether the output is
sound is decided in `commands.quantize.verification`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from localdiff import paths
from localdiff.hub.files import TEXT_FILES
from localdiff.hub.repository import CONFIG
from localdiff.model_reference import resolve_local
from localdiff.quantizing.origin import name_of, small_files
from localdiff.quantizing.request import QuantizeRequest
from localdiff.quantizing.source_hashes import hashes
from quant.files.manifest import Manifest
from quant.files.source import read_source
from quant.hashing import file_sha256

Show: TypeAlias = Callable[[int, int], None]
"""Is told the bytes of a source read so far, and the bytes to read."""


def difference(manifest: Manifest, request: QuantizeRequest, show: Show = lambda done, total: None) -> str | None:
    """How a finished output differs from the one requested, as the end of a sentence about it; or None.

    Whether the Hub has a newer revision by now is not checked.

    Args:
        manifest: that of the output.
        request: what is asked for.
        show: shows how far the source has been read, where that is needed.

    Raises:
        LocaldiffError: what is to be quantized is missing.
        SourceError: it is no whole checkpoint.
    """
    other = recipe_difference(manifest, request.recipe)
    other = other or source_difference(manifest, request.model, request.revision, show)
    if other is not None or (local := resolve_local(request.model, revision=request.revision)) is None:
        return other
    return changed_config(manifest, request) or _lost(manifest, local.directory)


def recipe_difference(manifest: Manifest, recipe: str) -> str | None:
    """How the recipe of an output differs from the one of that name, as of `difference`; or None."""
    return None if manifest.recipe.name == recipe else f"is `{manifest.recipe.name}`, not `{recipe}`"


def source_difference(
    manifest: Manifest, model: str, revision: str | None = None, show: Show = lambda done, total: None
) -> str | None:
    """How the weights that an output was made from differ from those of a model, as of `difference`; or None.

    Args:
        manifest: that of the output.
        model: `demo`, a directory or a Hub id.
        revision: that of a model on the Hub; any where it is not given.
        show: as of `difference`.

    Raises:
        LocaldiffError: the model is missing.
        SourceError: it is no whole checkpoint.
    """
    local = resolve_local(model, revision=revision)
    name = model if local is None else name_of(model, local.directory)
    if manifest.model != name:
        return f"was made from `{manifest.model}`, not from `{name}`"
    if revision not in (None, manifest.revision):
        return f"was made from revision {manifest.revision}"
    return None if local is None else _changed_weights(manifest, local.directory, show)


def changed_config(manifest: Manifest, request: QuantizeRequest) -> str | None:
    """The same as `difference`, of a `config.json` that has changed: it says what the weights mean."""
    local = resolve_local(request.model, revision=request.revision)
    if local is None or not (path := local.directory / CONFIG).is_file() or CONFIG not in manifest.files:
        return None
    return None if file_sha256(path) == manifest.files[CONFIG].sha256 else _made_before(path)


def copied_files(request: QuantizeRequest) -> dict[str, bytes]:
    """Name → content of the files that a job would copy from a directory; none where the source is the Hub's."""
    local = resolve_local(request.model, revision=request.revision)
    if local is None:
        return {}
    names = small_files(path.name for path in local.directory.iterdir() if path.is_file())
    return {name: (local.directory / name).read_bytes() for name in names}


def _lost(manifest: Manifest, source: Path) -> str | None:
    """A file of the output that its source no longer has. Nothing is deleted here: the output may be all there is."""
    lost = [name for name in TEXT_FILES if name in manifest.files and not (source / name).exists()]
    return _made_while_there_was(source / lost[0]) if lost else None


def _made_before(path: Path) -> str:
    return f"was made before `{paths.shown(path)}` changed"


def _made_while_there_was(path: Path) -> str:
    return f"was made while there was `{paths.shown(path)}`"


def _changed_weights(manifest: Manifest, source: Path, show: Show) -> str | None:
    """How the weight files of a directory are not those that the output was made from.

    Other weights may have the same names and sizes, and older times: only their hashes tell.
    """
    lost = [name for name in manifest.sources if not (source / name).is_file()]
    if lost:
        return _made_while_there_was(source / lost[0])
    dropped = set(manifest.dropped)
    files = {file.name: file for file in read_source(source) if not {tensor.name for tensor in file.tensors} <= dropped}
    if others := sorted(files.keys() ^ manifest.sources.keys()):
        return _made_before(source / others[0])
    for name, entry in manifest.sources.items():
        if files[name].nbytes != entry.nbytes:
            return _made_before(source / name)
    found = hashes(source, manifest.sources, show)
    changed = [name for name, entry in manifest.sources.items() if found[name] != entry.sha256]
    return _made_before(source / changed[0]) if changed else None
