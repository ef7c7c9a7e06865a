"""What was found when all bytes of a quantized model were last read.

Knows one small file for each model, and when it is still valid; reads no weights, and needs no torch. No file is
shared, so that processes that record at the same moment lose none of each other's results.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from localdiff import paths
from localdiff.checkpoint_files import read_small
from localdiff.checkpoints.directory_record import read_record, write_record
from quant import MANIFEST_FILE


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """What tells two versions of a model apart without reading it all: hashes, None where there is nothing to hash.

    Attributes:
        manifest: hash of the manifest.
        files: hash of the sizes and times of the files that the manifest lists.
    """

    manifest: str | None
    files: str | None


def state_of(directory: Path) -> State:
    """The state that a model is in, to be taken before the first of its bytes is read."""
    manifest = files = None
    with suppress(OSError):
        manifest = _manifest_hash(directory)
    with suppress(OSError, ValueError, TypeError, AttributeError, RecursionError):
        files = _files_hash(directory)
    return State(manifest=manifest, files=files)


def record_finding(
    directory: Path,
    problem: str | None = None,
    *,
    since: State | None = None,
    now: datetime | None = None,
) -> bool:
    """Record what was found when all bytes of a model were read, and return whether it was recorded.

    Args:
        problem: its damage, which counts until it is rebuilt or verified again; None where it was intact.
        since: its state before its bytes were read. If it has changed, what was read may not be what is there now, and
            nothing is recorded. None where nobody else can have written to the model.

    Raises:
        OSError: the record cannot be written.
    """
    found = {"manifest": _manifest_hash(directory)}
    if problem is None:
        found |= {"files": _files_hash(directory), "at": (now or datetime.now(UTC)).isoformat(timespec="seconds")}
    else:
        found["problem"] = problem
    if since is not None and since != state_of(directory):
        return False
    write_record(_folder(), directory, found, is_there=_is_model)
    return True


def verified_at(directory: Path) -> datetime | None:
    """When all bytes of a model were last verified; None if not known, or a file was written since."""
    found = _found(directory)
    try:
        return datetime.fromisoformat(found["at"]) if found["files"] == _files_hash(directory) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def recorded_damage(directory: Path) -> str | None:
    """A model's damage when all of its bytes were last read; None if there was none, or they never were read.

    Unlike the time of a verification, it outlives changes to files: a file written since may still be damaged.
    """
    problem = _found(directory).get("problem")
    return problem if isinstance(problem, str) else None


def listed_files(directory: Path) -> Iterator[tuple[str, object]]:
    """Every file that a readable manifest lists, and what the manifest says about it."""
    manifest = json.loads(_manifest(directory))
    for section in ("shards", "files"):
        entries = manifest.get(section)
        yield from entries.items() if isinstance(entries, dict) else ()


def _folder() -> Path:
    return paths.state_dir() / "verified"


def _found(directory: Path) -> dict[str, Any]:
    """What is recorded about a model, if its manifest has not changed since."""
    record = read_record(_folder(), directory)
    try:
        return record if record["manifest"] == _manifest_hash(directory) else {}
    except (OSError, KeyError):
        return {}


def _is_model(directory: str) -> bool:
    return os.path.isfile(os.path.join(directory, MANIFEST_FILE))


def _manifest(directory: Path) -> bytes:
    return read_small(directory / MANIFEST_FILE)


def _manifest_hash(directory: Path) -> str:
    return hashlib.sha256(_manifest(directory)).hexdigest()


def _files_hash(directory: Path) -> str:
    """A hash of the sizes and times of the files that a manifest lists; it changes once a file is written."""
    states = {name: (directory / name).stat() for name, _ in listed_files(directory)}
    lines = [f"{state.st_size} {state.st_mtime_ns} {name}\n" for name, state in states.items()]
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogatepass")).hexdigest()
