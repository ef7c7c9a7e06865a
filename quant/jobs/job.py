"""The description of a quantization job.

Knows everything that determines the output; knows nothing about the disk. What two jobs must have in common for one to
continue the other is said in `quant.jobs.identity`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import torch

from quant.files.source import SourceFile
from quant.planning.plan import Plan

Content: TypeAlias = bytes | Callable[[], bytes]
"""A file's content, or a function that fetches it and may raise `SourceStoppedError`."""
HashSources: TypeAlias = Callable[[Sequence[str]], Mapping[str, str]]
"""Gives the SHA-256, in hex, of weight files by their names."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """Everything that determines the output, and how it is made.

    Attributes:
        plan: what is stored how.
        output: directory for the result.
        open_source: gives a weight file's path while its shard is made; raises `SourceStoppedError` if the job
            is stopped before the file has arrived.
        hash_sources: hashes weight files whose hash the plan does not know; called for those that an earlier run read.
        tool: name and version of the program, for the manifest.
        model, revision: where the weights came from, for the manifest.
        files: the other files of the output.
        inspect: called with their contents before any weight is read; may refuse them with an error of its own.
        workers: slices that are encoded in parallel.
        device: where slices are encoded; each run of a job may use another one.
        damaged: files of a finished output that `verify` found damaged; if empty, the output is not touched.
        force: replace a finished output, and drop an unfinished other job, of the same directory.
    """

    plan: Plan
    output: Path
    open_source: Callable[[SourceFile], AbstractContextManager[Path]]
    tool: str
    hash_sources: HashSources = lambda names: {}
    model: str | None = None
    revision: str | None = None
    files: Mapping[str, Content] = field(default_factory=dict)
    inspect: Callable[[Mapping[str, bytes]], None] = lambda contents: None
    workers: int = 1
    device: torch.device = torch.device("cpu")
    damaged: frozenset[str] = frozenset()
    force: bool = False

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ValueError(f"{self.workers=} should be at least 1")
        if not self.plan.shards:
            raise ValueError("a plan without weight files cannot be carried out")
