"""Whether a finished output that exists before a run is the one requested.

Knows what a manifest says of its source and what can be seen of that source without the Hub; whether the output is
sound is decided in `commands.quantize.verification`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from localdiff import paths
from localdiff.checkpoint_files import CONFIG, TEXT_FILES
from localdiff.checkpoints.model_reference import resolve_local
from localdiff.checkpoints.weight_hashes import Show, hashes
from localdiff.quantizing.origin import name_of, read_text_file, small_files
from localdiff.quantizing.request import QuantizeRequest
from quant.files.manifest import Manifest
from quant.files.source import read_source
from quant.hashing import file_sha256
from quant.jobs.identity import Difference, Identity, SourceState


def difference(manifest: Manifest, request: QuantizeRequest, show: Show = lambda done, total: None) -> str | None:
    """How a finished output differs from the one requested, as the end of a sentence about it; or None.

    Whether the Hub has a newer revision by now is not checked.

    Args:
        show: shows how far the source has been read, where that is needed.

    Raises:
        LocaldiffError: what is to be quantized is missing.
        SourceError: it is no whole checkpoint.
    """
    other = recipe_difference(manifest, request.recipe)
    other = other or source_difference(manifest, request.model, request.revision, show)
    if other is not None or (local := resolve_local(request.model, revision=request.revision)) is None:
        return other
    return _changed_texts(manifest, local.directory)


def recipe_difference(manifest: Manifest, recipe: str) -> str | None:
    """How the recipe of an output differs from the one of that name, in the form of `difference`; or None."""
    made = Identity.of_manifest(manifest)
    return _words(made.difference(replace(made, recipe=recipe)))


def source_difference(manifest: Manifest, model: str, revision: str | None, show: Show) -> str | None:
    """How the weights that an output was made from differ from a model's, in the form of `difference`; or None.

    Args:
        model: `demo`, a directory or a Hub id.
        revision: that of a model on the Hub; None for any.
        show: as for `difference`.

    Raises:
        LocaldiffError: the model is missing.
        SourceError: it is no whole checkpoint.
    """
    local = resolve_local(model, revision=revision)
    name = model if local is None else name_of(model, local.directory)
    made = Identity.of_manifest(manifest)
    other = made.difference(replace(made, model=name, revision=revision or made.revision))
    if other is None and local is not None:
        return _changed_weights(manifest, local.directory, show)
    return _words(other)


def copied_files(request: QuantizeRequest) -> dict[str, bytes]:
    """Name → content of the files that a job would copy from a directory; none where the source is the Hub's."""
    local = resolve_local(request.model, revision=request.revision)
    if local is None:
        return {}
    names = small_files(path.name for path in local.directory.iterdir() if path.is_file())
    return {name: read_text_file(local.directory, name) for name in names}


def _changed_texts(manifest: Manifest, source: Path) -> str | None:
    """How an output differs if `config.json`, which says what the weights mean, has changed, or a file is gone.

    None if neither is so. Nothing is deleted for a file that is gone: the output may be the only copy.
    """
    config = source / CONFIG
    if config.is_file() and CONFIG in manifest.files and file_sha256(config) != manifest.files[CONFIG].sha256:
        return f"was made before `{paths.shown(config)}` changed"
    return _lost(source, [name for name in TEXT_FILES if name in manifest.files])


def _lost(source: Path, names: Iterable[str]) -> str | None:
    """How an output differs if its source has lost one of these files; or None."""
    lost = [source / name for name in names if not (source / name).exists()]
    return f"was made while there was `{paths.shown(lost[0])}`" if lost else None


def _changed_weights(manifest: Manifest, source: Path, show: Show) -> str | None:
    """How the weight files of a directory differ from those that the output was made from; or None.

    Other weights may have the same names and sizes, and older times: only hashes tell them apart.
    """
    if (lost := _lost(source, manifest.sources)) is not None:
        return lost
    made, dropped = Identity.of_manifest(manifest), set(manifest.dropped)
    files = [file for file in read_source(source) if not {tensor.name for tensor in file.tensors} <= dropped]
    there = replace(made, sources={file.name: SourceState(file.nbytes) for file in files})
    read = partial(hashes, source, show=show)
    return _words(made.difference(there, lambda name: paths.shown(source / name), read))


def _words(difference: Difference | None) -> str | None:
    return None if difference is None else f"was made {difference.words}"
