"""The names that the Hub's cache gives to files, and how a file is found by name and deleted.

Knows how the cache is laid out; sends no requests.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from localdiff.checkpoints.model_reference import KINDS
from localdiff.errors import WeightsError

_SHA256 = re.compile(r"[0-9a-f]{64}")


def is_sha256(name: str) -> bool:
    """Whether a name is a SHA-256, by which large files are named; small files have git's hash, which is shorter."""
    return _SHA256.fullmatch(name) is not None


def linked_sha256(file: Path) -> str | None:
    """The SHA-256 by which the cache names a large file; None if the file is small, or not a link into the cache."""
    if not file.is_symlink():
        return None
    name = os.path.basename(os.readlink(file))  # may be a link itself, to what several repositories share
    return name if is_sha256(name) else None


def folder_of(repository: str) -> Path:
    """The cache's folder of a repository, with `blobs`, `snapshots` and `refs`."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE, "--".join(("models", *repository.split("/"))))


def cached_path(repository: str, name: str, revision: str | None) -> Path | None:
    """Where the cache has a file of a repository at a branch, tag or commit; None if it does not have it.

    Raises:
        WeightsError: no repository can have this name.
    """
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        path = try_to_load_from_cache(repository, name, revision=revision)
    except HFValidationError as error:
        raise WeightsError(f"`{repository}` cannot be a Hub id", KINDS) from error
    return Path(path) if isinstance(path, str) else None


def unfinished_file(folder: Path, sha256: str) -> Path:
    """Where a large file is until it is complete; `hf cache prune` deletes files whose names end like this."""
    return folder / f"{sha256}.localdiff.incomplete"


def size_of(file: Path) -> int:
    """Bytes of a file; 0 if there is no such file."""
    return file.stat().st_size if file.is_file() else 0


def delete(file: Path) -> None:
    """Delete a file of the cache: what it links to, and the link."""
    file.resolve().unlink(missing_ok=True)
    file.unlink(missing_ok=True)


def delete_hint(file: Path) -> str:
    """The hint for a damaged file of the cache: if only its link were deleted, the client would make the link again."""
    return f"delete `{file.resolve()}`, then run the same command again"


def delete_abandoned(file: Path) -> None:
    """Delete what killed downloads of a file have left, those of the client included; the file is complete by now."""
    stored = file.resolve()
    for unfinished in stored.parent.glob(f"{stored.name}.*.incomplete"):
        with suppress(OSError):  # another user's, or open on Windows: its space is not worth an error
            unfinished.unlink()
