"""A job before it starts: which shards are made from which files, what that needs, and its summary.

Knows plans, disks and what encodes; starts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from localdiff import __version__, paths
from localdiff.checkpoints.verification_record import recorded_damage
from localdiff.checkpoints.weight_hashes import Show
from localdiff.hub.cache import unfinished_file
from localdiff.hub.downloads import WORKERS, fetching_bytes, require_transferable
from localdiff.hub.problems import UnreachableError
from localdiff.machine.disk_space import Mount, freed_by, mounts
from localdiff.machine.host_memory import host_memory
from localdiff.quantizing.card import documents
from localdiff.quantizing.memory_to_run import accounts, alternative_recipe, gpu_to_run_on
from localdiff.quantizing.origin import Origin
from localdiff.quantizing.plan_summary import Download, PlanSummary
from localdiff.quantizing.request import QuantizeRequest
from localdiff.sizes import counted, shown_size
from quant import MANIFEST_FILE
from quant.files.disk import Disk
from quant.files.source import SourceFile
from quant.jobs.job import Job
from quant.jobs.output import OutputDirectory
from quant.jobs.pool import available_workers
from quant.names import PARTIAL, SCRATCH, partial_directory
from quant.planning.encoder import Encoder
from quant.planning.plan import Plan, PlannedShard, working_bytes

TOOL = f"localdiff {__version__}"

_DOCUMENT_BYTES = 2_000_000
"""Manifest, index, notes, card and licence, a generous estimate."""

_PROCESS_BYTES = 600_000_000
"""Memory of the interpreter, torch and a tokenizer that is checked; 0.31 GB in all were resident at the peak of a job
at full width with a small vocabulary, and reading one of 262,144 tokens takes 0.28 GB."""

_STREAM_INSTEAD = "`--stream` takes less disk: beside the result, only one file of the download at a time."
_STREAMED_FILE = "`--stream` also needs disk for one file of the download, whose size is not known here."


@dataclass(frozen=True, kw_only=True)
class PlannedJob:
    """A job that can be started.

    Attributes:
        origin: where the weights are.
        plan: how each tensor is stored.
        streams: whether fetched files are deleted once read.
        force: whether a finished output may be replaced.
        damaged: files of a finished output that are not sound: name → what is wrong.
        encoder: the device that encodes the weights.
        show: shows how far weight files have been read, to see whether an unfinished job began with them.
    """

    origin: Origin
    plan: Plan
    target: Path
    streams: bool
    force: bool
    damaged: Mapping[str, str]
    encoder: Encoder
    show: Show

    @cached_property
    def job(self) -> Job:
        """The job, except for what only a run can open: weight files, and small files of the Hub being fetched."""
        return Job(
            plan=self.plan,
            output=self.target,
            open_source=_not_open,
            hash_sources=partial(self.origin.hash_sources, show=self.show),
            tool=TOOL,
            model=self.origin.model,
            revision=self.origin.revision,
            files={
                **{name: partial(self.origin.read, name) for name in self.origin.small_files},
                **documents(self.origin, self.plan, accounts(self.plan, self.origin.config), TOOL),
            },
            workers=available_workers(self.encoder.device),
            device=self.encoder.device,
            damaged=frozenset(self.damaged),
            force=self.force,
        )

    @property
    def _output(self) -> OutputDirectory:
        return OutputDirectory(self.job, Disk())

    def require_possible(self) -> None:
        """Refuse what the job itself would refuse once it runs, as far as that is known in advance.

        Raises:
            OutputError: the job would raise it.
            WeightsError: a file cannot be downloaded with the packages that are here.
        """
        self._output.require_possible()
        if self.origin.repository is not None:
            require_transferable(self.origin.repository, self.to_fetch)

    @cached_property
    def unfinished(self) -> tuple[PlannedShard, ...]:
        """Shards that are still to be made."""
        if self.damaged:
            return tuple(shard for shard in self.plan.shards if shard.file in self.damaged)
        finished = self._output.finished()
        return tuple(shard for shard in self.plan.shards if shard.file not in finished)

    @cached_property
    def to_fetch(self) -> dict[str, int]:
        """Weight files that have to be fetched, and how many bytes of them."""
        if self.origin.repository is None:
            return {}
        files = [self.origin.repository.files[shard.source.name] for shard in self.unfinished]
        if self.streams:
            return {file.name: file.nbytes for file in files if file.local_path is None}
        return {file.name: file.missing for file in files if file.local_path is None and not file.is_stored}

    @property
    def _fetchers(self) -> int:
        """Processes that fetch: one if each file is deleted before the next one arrives."""
        return min(len(self.to_fetch), 1 if self.streams else WORKERS)

    @property
    def scratch(self) -> Path:
        """Folder of files that are deleted once read."""
        return partial_directory(self.target) / SCRATCH

    @cached_property
    def mounts(self) -> tuple[Mount, ...]:
        """What must fit on each disk, less what is freed or overwritten of an earlier run's files."""
        written = sum(shard.nbytes for shard in self.unfinished) + self.origin.small_bytes + _DOCUMENT_BYTES
        if self.streams:  # one file at a time
            written += max(self.to_fetch.values(), default=0)
        needs = [(self.target, max(0, written - sum(map(freed_by, self._left()))))]
        if self.to_fetch and not self.streams:
            needs.append((paths.hub_cache_dir(), sum(self.to_fetch.values())))
        return mounts(needs)

    def _left(self) -> set[Path]:
        """What an earlier run has left that this one deletes or overwrites."""
        directory, left = partial_directory(self.target), {*self._output.dropped()}
        if directory in left:  # another job's
            return left
        left |= {directory / (shard.file + PARTIAL) for shard in self.unfinished}
        if self.streams and self.origin.repository is not None:  # downloads go on from these
            files = [self.origin.repository.files[name] for name in self.to_fetch]
            left |= {self.scratch / file.name for file in files}
            left |= {unfinished_file(self.scratch, file.sha256) for file in files if file.sha256}
        return left

    def summary(self) -> PlanSummary:
        """The plan to be shown."""
        commit = f" @ {self.origin.revision[:8]}" if self.origin.revision else ""
        title = self.origin.reference + commit
        return replace(
            _summary_without_files(
                title, self.plan, self.target, self.origin.config, self.encoder, fetchers=self._fetchers
            ),
            download=self._download(),
            mounts=self.mounts,
            finished=len(self.plan.shards) - len(self.unfinished),
            remarks=self._remarks(),
        )

    def _download(self) -> Download | None:
        if self.origin.repository is None:
            return None
        return Download(
            files=len(self.plan.shards),
            nbytes=self.plan.source_bytes,
            missing=len(self.to_fetch),
            missing_bytes=sum(self.to_fetch.values()),
            place=self.scratch if self.streams else paths.hub_cache_dir(),
            streamed=self.streams,
        )

    def _remarks(self) -> Sequence[str]:
        remarks = [f"Damaged, will be rebuilt: {problem}." for problem in self.damaged.values()]
        if self.origin.repository is not None and self.origin.repository.offline_reason is not None:
            remarks.append("The Hub was not asked: this is the model as it is in the cache.")
        if (self.target / MANIFEST_FILE).is_file() and not self.damaged:
            remarks.append(
                f"`{self.target}` exists and will be replaced once the new one is verified."
                if self.force
                else self._left_to_the_run()
            )
        return remarks

    def _left_to_the_run(self) -> str:
        """What a dry run, which reads no weights, says of a finished output."""
        found = recorded_damage(self.target)
        known = "exists" if found is None else f"is damaged, as it was found to be when last read: {found}"
        return (
            f"`{self.target}` {known}. Without `--dry-run` only what is damaged is rebuilt; `--force` rebuilds it all."
        )


def offline_summary(
    request: QuantizeRequest, plan: Plan, encoder: Encoder, error: UnreachableError | None
) -> PlanSummary:
    """The summary for weights that are known only from the built-in description, because the Hub could not be asked.

    Args:
        plan: made from the description.
        encoder: the device that would encode the weights.
        error: why the Hub could not be asked; None where that is said elsewhere.
    """
    streams = request.stream
    place = partial_directory(request.target) / SCRATCH if streams else paths.hub_cache_dir()
    cache = [] if streams else [(place, plan.source_bytes)]
    disks = mounts([(request.target, plan.stored_bytes), *cache])
    may_stream = not streams and any(disk.short for disk in disks)
    return replace(
        _summary_without_files(request.model, plan, request.target, {}, encoder, fetchers=1 if streams else WORKERS),
        download=Download(
            files=0,
            nbytes=plan.source_bytes,
            missing=0,
            missing_bytes=plan.source_bytes,
            place=place,
            streamed=streams,
        ),
        mounts=disks,
        remarks=[
            *([_STREAM_INSTEAD] if may_stream else []),
            *([] if error is None else [f"{error.message[:1].upper()}{error.message[1:]}."]),
            *([_STREAMED_FILE] if streams else []),
            "These figures come from the built-in description of the released weights, not from the Hub.",
        ],
    )


def _summary_without_files(
    title: str, plan: Plan, output: Path, config: Mapping[str, object], encoder: Encoder, *, fetchers: int
) -> PlanSummary:
    """What a summary says of the result and of this machine, wherever the weights are."""
    gpu = gpu_to_run_on(plan, config, encoder)
    return PlanSummary(
        title=title,
        plan=plan,
        output=output,
        working=_PROCESS_BYTES + working_bytes(available_workers(encoder.device)) + fetching_bytes(fetchers),
        device=encoder_words(encoder),
        accounts=accounts(plan, config),
        gpu=gpu,
        host_free=host_memory()[1],
        others=len(encoder.further),
        alternative=alternative_recipe(plan, config, gpu),
    )


def encoder_words(encoder: Encoder) -> str:
    """What encodes the weights, for the plan."""
    cores, gpu = counted(available_workers(encoder.device), "core"), encoder.gpu
    if encoder.device.type == "cuda" and gpu is not None:
        return f"{gpu.device} ({gpu.name}), with {cores}"
    if encoder.requested == "auto" and gpu is not None:
        return f"cpu, {cores}: {gpu.device} has only {shown_size(gpu.free)} free"
    if encoder.requested == "mps":
        return f"cpu, {cores}: weights are not encoded on mps"
    return f"cpu, {cores}; no GPU needed"


def _not_open(file: SourceFile) -> AbstractContextManager[Path]:
    raise AssertionError(f"`{file.name}` is opened by the fetcher of the job")
