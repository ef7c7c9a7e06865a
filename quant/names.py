"""Names of what a job writes: the directory of a quantized model, finished or not, and the files that tell which it is.

Knows names; looks at no disk, and needs no torch.
"""

from __future__ import annotations

from pathlib import Path

MANIFEST_FILE = "quant.json"
"""The manifest; a directory with one holds a quantized model."""
JOB_FILE = "job.json"
"""Present only in an unfinished output."""
NOTE = ".json"
"""Suffix that turns the name of a shard into the name of its note."""
SCRATCH = "source.partial"
"""Directory in the unfinished output where `Job.open_source` may keep files that it fetched."""
PARTIAL, DISCARDED = ".partial", ".discarded"
"""Suffixes of a file or directory that is being written, and of a directory that is being deleted."""


def partial_directory(output: Path) -> Path:
    """Where an output lies while it is unfinished."""
    return output.with_name(output.name + PARTIAL)


def discarded_directory(output: Path) -> Path:
    """The name of an output, or of what was to become one, that is being deleted."""
    return output.with_name(output.name + DISCARDED)


def output_directory(directory: Path) -> Path:
    """The name that a directory has, or would have had, as a finished output."""
    return directory.with_name(directory.name.removesuffix(DISCARDED).removesuffix(PARTIAL))
