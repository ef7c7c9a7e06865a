"""Whether a finished output that exists before a run is the one requested.

Knows what a manifest says of its source and what can be seen of that source without the Hub; whether the output is
sound is decided in `commands.quantize.verification`.
"""

from __future__ import annotations

from pathlib import Path

from localdiff import paths
from localdiff.model_reference import resolve_local
from localdiff.model_store import DEMO
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
    return None if changed is None else f"was made before `{paths.shown(changed)}` changed"


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
