"""Whether a finished output that exists before a run is the one requested.

Knows what a manifest says of its source and what can be seen of that source without the Hub; whether the output is
sound is decided in `commands.quantize.verification`.
"""

from __future__ import annotations

from pathlib import Path

from localdiff import paths
from localdiff.hub.files import TEXT_FILES
from localdiff.hub.repository import CONFIG
from localdiff.model_reference import resolve_local
from localdiff.model_store import DEMO
from localdiff.quantizing.origin import small_files
from localdiff.quantizing.request import QuantizeRequest
from quant import MANIFEST_FILE
from quant.files.manifest import Manifest
from quant.hashing import file_sha256


def difference(manifest: Manifest, target: Path, request: QuantizeRequest) -> str | None:
    """How a finished output differs from the one requested, as the end of a sentence about it; or None.

    Whether the Hub has a newer revision by now is not checked.

    Args:
        manifest: that of the output.
        target: the output's directory.
        request: what is asked for.

    Raises:
        LocaldiffError: what is to be quantized is missing.
    """
    if manifest.recipe.name != request.recipe:
        return f"is `{manifest.recipe.name}`, not `{request.recipe}`"
    local = resolve_local(request.model, revision=request.revision)
    name = request.model
    if local is not None and request.model != DEMO:
        name = local.directory.resolve().name
    if manifest.model != name:
        return f"was made from `{manifest.model}`, not from `{name}`"
    if request.revision not in (None, manifest.revision):
        return f"was made from revision {manifest.revision}"
    if local is None:
        return None
    changed = _changed(manifest, target, local.directory)
    if changed is not None:
        return _made_before(changed)
    return changed_config(manifest, request) or _lost(manifest, local.directory)


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
    return f"was made while there was `{paths.shown(source / lost[0])}`" if lost else None


def _made_before(path: Path) -> str:
    return f"was made before `{paths.shown(path)}` changed"


def _changed(manifest: Manifest, target: Path, source: Path) -> Path | None:
    """A weight file that is not what the output was made from; only one that is newer than the output is read."""
    made_at = (target / MANIFEST_FILE).stat().st_mtime_ns
    for name, entry in manifest.sources.items():
        path = source / name
        if not path.is_file():
            continue
        newer = path.stat().st_mtime_ns > made_at
        if path.stat().st_size != entry.nbytes or (newer and file_sha256(path) != entry.sha256):
            return path
    return None
