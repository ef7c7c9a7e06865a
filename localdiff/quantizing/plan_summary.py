"""The summary of a plan: what is shown before a job starts.

Knows wording and columns; computes no sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from localdiff import paths
from localdiff.machine.disk_space import Mount
from localdiff.memory_account import MemoryAccount
from localdiff.sizes import counted, shown_size
from localdiff.view.columns import aligned, folded
from quant.planning.encoder import Gpu
from quant.planning.plan import Plan


@dataclass(frozen=True, kw_only=True, slots=True)
class Download:
    """What has to be fetched.

    Attributes:
        files: weight files that are needed; 0 where that is unknown.
        nbytes: their size.
        missing: how many of them are not here.
        missing_bytes: the size of those.
        place: where they go.
        streamed: whether each is deleted once read.
    """

    files: int
    nbytes: int
    missing: int
    missing_bytes: int
    place: Path
    streamed: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanSummary:
    """What a job would download, write and need.

    Attributes:
        title: model and commit.
        plan: how each tensor is stored.
        output: where the result goes.
        download: None where nothing is fetched.
        mounts: disks and what must fit on them.
        finished: shards that an earlier run has finished.
        working: peak of memory while working.
        device: what encodes the weights, in words.
        accounts: context → memory to run.
        gpu: the GPU that the result will run on; without one, a CPU does.
        host_free: free bytes of host memory; None where they are unknown.
        others: how many more GPUs the result may use.
        alternative: a recipe that fits the GPU if this one does not.
        remarks: sentences that must not be missed.
    """

    title: str
    plan: Plan
    output: Path
    download: Download | None = None
    mounts: Sequence[Mount] = ()
    finished: int = 0
    working: int
    device: str
    accounts: Mapping[int, MemoryAccount]
    gpu: Gpu | None
    host_free: int | None = None
    others: int = 0
    alternative: str | None = None
    remarks: Sequence[str] = ()

    def lines(self, width: int | None = None) -> list[str]:
        """The summary as lines.

        Args:
            width: columns of the terminal, at which lines are broken between words; None elsewhere.
        """
        rows = [
            ("download", self._download()),
            ("write", self._write()),
            *[("disk", _disk(mount)) for mount in self.mounts],
            ("device", self.device),
            ("memory", f"about {shown_size(self.working)} while working"),
            ("to run", f"GPU memory of {_needs({context: one.total for context, one in self.accounts.items()})}"),
            ("", self._fit()),
            ("", self._on_cpu()),
        ]
        return [
            *folded(f"{self.title} → {self.plan.recipe.name}", width),
            "",
            *(line for label, text in rows if text for line in folded(text, width, start=f"  {label:<10} ", indent=13)),
            "",
            *_table(self.plan, self.accounts, width),
            *([""] if self.remarks else []),
            *(line for remark in self.remarks for line in folded(remark, width)),
        ]

    def _download(self) -> str:
        download = self.download
        if download is None:
            return "nothing: the weights are in a local directory"
        total = shown_size(download.nbytes) + (f" in {counted(download.files, 'file')}" if download.files else "")
        if not download.missing and download.files:
            return f"{total}, all here already"
        text = f"{total} into {paths.shown(download.place)}"
        if download.missing < download.files:
            here = f"{download.files - download.missing} here already"
            fetched = f"{download.missing} to fetch ({shown_size(download.missing_bytes)})"
            text = f"{total}: {here}, {fetched} into {paths.shown(download.place)}"
        return text + (", each deleted after it is read" if download.streamed else ", where they stay")

    def _write(self) -> str:
        shards = self.plan.shards
        text = shown_size(sum(shard.nbytes for shard in shards) or self.plan.stored_bytes)
        text += f" in {counted(len(shards), 'file')}" if shards else ""
        text += f" into {paths.shown(self.output)}"
        if self.finished:
            text += f"; {self.finished} of them {'is' if self.finished == 1 else 'are'} finished"
        return text

    def _on_cpu(self) -> str:
        """What a CPU takes, mapped files included, where there is no GPU."""
        if self.gpu is not None:
            return ""
        needed = {context: account.total - account.slack for context, account in self.accounts.items()}
        text = f"a CPU runs it too, slowly: memory of {_needs(needed)}"
        if self.host_free is None:
            return text
        rest = "" if self.host_free >= min(needed.values()) else "; the rest is read from the disk in every pass"
        return f"{text} ({shown_size(self.host_free)} are free{rest})"

    def _fit(self) -> str:
        if self.gpu is None:
            return "there is no GPU here that torch can use, as `localdiff doctor` explains"
        gpu = f"{self.gpu.device} ({self.gpu.name}, {shown_size(self.gpu.free)} of {shown_size(self.gpu.total)} free)"
        fitting = [context for context, account in self.accounts.items() if account.fits(self.gpu.free)]
        if len(fitting) == len(self.accounts):
            return f"fits {gpu}"
        if fitting:
            return f"fits {gpu} up to {_context(max(fitting))} context, not beyond"
        if self.alternative is not None:
            return f"does not fit {gpu}; recipe `{self.alternative}` does"
        where = "go to other GPUs, or stay in host memory" if self.others else "stay in host memory"
        return f"does not fit {gpu}; some layers will {where}, which is slower"


def _disk(mount: Mount) -> str:
    text = f"{mount.path} needs {shown_size(mount.needed)}, {shown_size(mount.free)} free"
    return text + (": not enough" if mount.short else "")


def _table(plan: Plan, accounts: Mapping[int, MemoryAccount], width: int | None) -> list[str]:
    """A table of tensor classes, then of what a GPU holds besides weights."""
    head = ["", "tensors", "published", plan.recipe.name, *(f"GPU at {_context(context)}" for context in accounts)]
    rows = [head]
    for label, total in plan.by_class().items():
        stored = shown_size(total.stored_bytes) if total.stored_bytes else "-"
        rows.append([label, f"{total.tensors:,}", shown_size(total.source_bytes), stored, *([stored] * len(accounts))])
    for label, part in (
        ("keys and values", "cache"),
        ("buffers of a step", "buffers"),
        ("driver, allocator", "slack"),
        ("all", "total"),
    ):
        amounts = [shown_size(getattr(account, part)) for account in accounts.values()]
        whole = [shown_size(sum(tensor.source.nbytes for tensor in plan.tensors)), shown_size(plan.stored_bytes)]
        rows.append([label, *(["", *whole] if part == "total" else ["", "", ""]), *amounts])
    room = width and width - 2
    return [f"  {line}" for line in aligned(rows, "<" + ">" * (len(head) - 1), width=room, headed=True)]


def _needs(nbytes: Mapping[int, int]) -> str:
    """Bytes at each context, in words."""
    return " or ".join(f"{shown_size(size)} at {_context(context)}" for context, size in nbytes.items()) + " context"


def _context(positions: int) -> str:
    return f"{positions // 1024}k" if positions % 1024 == 0 else f"{positions:,}"
