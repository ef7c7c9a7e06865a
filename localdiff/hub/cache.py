"""The names that the Hub's cache gives to files, how one is found by them, and how one is deleted.

Knows how the cache is laid out; asks nobody.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from localdiff.errors import WeightsError
from localdiff.model_reference import KINDS

MAIN = "main"
"""The branch that is meant where none is named."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


def is_sha256(name: str) -> bool:
    """Whether a name is that of a large file, which is its SHA-256; small ones have git's hash, which is shorter."""
    return _SHA256.fullmatch(name) is not None


def linked_sha256(file: Path) -> str | None:
    """The SHA-256 by which the cache names a large file; None where the file is small, or no link into the cache."""
    if not file.is_symlink():
        return None
    name = os.path.basename(os.readlink(file))  # which may be a link itself, to what several repositories share
    return name if is_sha256(name) else None


def folder_of(repository: str) -> Path:
    """Where the cache has what belongs to a repository: `blobs`, `snapshots`, `refs`."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    return Path(constants.HF_HUB_CACHE, repo_folder_name(repo_id=repository, repo_type="model"))


def cached_path(repository: str, name: str, revision: str | None) -> Path | None:
    """Where the cache has a file of a repository at a branch, tag or commit; None where it has not.

    Raises:
        WeightsError: no repository can have this name, or the cache is damaged.
    """
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        path = try_to_load_from_cache(repository, name, revision=revision)
    except HFValidationError as error:
        raise WeightsError(f"`{repository}` cannot be a Hub id", KINDS) from error
    except UnicodeDecodeError as error:
        ref = folder_of(repository) / "refs" / (revision or MAIN)
        raise WeightsError(
            f"`{ref}` is damaged: it is not text", "delete it, then run the same command again"
        ) from error
    return Path(path) if isinstance(path, str) else None


def unfinished_file(folder: Path, sha256: str) -> Path:
    """Where a large file is until it is whole; the name ends as those do that `hf cache prune` deletes."""
    return folder / f"{sha256}.localdiff.incomplete"


def size_of(file: Path) -> int:
    """Bytes of a file; none where there is no such file."""
    return file.stat().st_size if file.is_file() else 0


def delete(file: Path) -> None:
    """Delete a file of the cache: what it links to, and the link."""
    file.resolve().unlink(missing_ok=True)
    file.unlink(missing_ok=True)


def delete_hint(file: Path) -> str:
    """The hint for a damaged file of the cache: were its link alone deleted, the client would make it again."""
    return f"delete `{file.resolve()}`, then run the same command again"


def delete_abandoned(file: Path) -> None:
    """Delete what downloads of a file have left that were killed, those of the client among them; it is here by now."""
    stored = file.resolve()
    for unfinished in stored.parent.glob(f"{stored.name}.*.incomplete"):
        with suppress(OSError):  # another user's, or open on Windows: nobody misses the space more than the file
            unfinished.unlink()
