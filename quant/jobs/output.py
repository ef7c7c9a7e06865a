"""The output directory of a job, from its unfinished to its published state.

Knows the output directory in all its states; knows nothing about codecs. `prepare` can resume from every state between
two operations:

    (nothing) ─► NAME.partial/ with job.json ─► + shards and notes ─► + index, manifest ─► NAME/
                       ▲                                                     │ damaged
                       └──────────── sound shards keep their notes ◄─────────┘
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from contextlib import suppress
from pathlib import Path

from quant.errors import DamagedError, OutputError
from quant.files.disk import Disk, write_atomically
from quant.files.manifest import Manifest, read_manifest
from quant.jobs.events import FileChecked
from quant.jobs.identity import Difference, Identity
from quant.jobs.job import Job
from quant.jobs.replaceable import is_occupied, require_deletable, require_free
from quant.jobs.unfinished import Begun, Note, job_bytes, read_job
from quant.jobs.verify import verify
from quant.names import (
    JOB_FILE,
    MANIFEST_FILE,
    NOTE,
    PARTIAL,
    SCRATCH,
    discarded_directory,
    partial_directory,
)


class OutputDirectory:
    """The output directory of a job, finished or not.

    Attributes:
        directory: the unfinished one.
        notes: the finished shards, once `prepare` has run.
        source_hashes: SHA-256 of the source files, from the manifest of an output under repair.
    """

    def __init__(self, job: Job, disk: Disk) -> None:
        self._job, self._disk = job, disk
        self._target = job.output
        self._garbage = discarded_directory(job.output)
        self.directory = partial_directory(job.output)
        self.notes: dict[str, Note] = {}
        self.source_hashes: dict[str, str] = {}

    def finished(self) -> frozenset[str]:
        """Shards that need not be made again, as far as can be told without reading them; changes nothing."""
        return self._kept() or frozenset()

    def dropped(self) -> tuple[Path, ...]:
        """Directories that `prepare` deletes: what an earlier run was deleting; with `force`, that of another job."""
        is_dropped = self._job.force and self._kept() is None
        return (self._garbage, self.directory) if is_dropped else (self._garbage,)

    @property
    def _is_whole(self) -> bool:
        """Whether the unfinished directory has everything, and may be verified and renamed."""
        return (self.directory / MANIFEST_FILE).exists()

    def _kept(self) -> frozenset[str] | None:
        """Shards of the unfinished directory that need not be made again; None where it is not this job's."""
        if self._is_whole:
            with suppress(DamagedError):
                if self._is_other(Begun.of_manifest(read_manifest(self.directory))):
                    return None
                shards = (shard.file for shard in self._job.plan.shards)
                return frozenset(shard for shard in shards if (self.directory / shard).exists())
        begun = self._read_job()
        if begun is None or self._is_other(begun):
            return None
        return frozenset(self._finished_notes())

    def require_possible(self) -> None:
        """Refuse what `prepare` would refuse, as far as that is known without reading a shard; changes nothing.

        Raises:
            OutputError: the output was made, or an unfinished job was begun, from something else or in another way.
        """
        self._require_free()
        if self._is_whole:
            self._require_replaceable()
        elif is_occupied(self._target) and not self._job.force:
            self._require_repairable()
        begun = self._begun()
        if begun is None and is_occupied(self.directory) and not self._is_whole:
            self._require_litter()
        if begun is not None:
            self._require_own(begun)

    def prepare(self) -> Iterator[FileChecked]:
        """Make the directory ready to write into, and find out what an earlier run has finished.

        Yields:
            One event for each file of an output that was whole, but not in its place, when an earlier run ended.

        Raises:
            OutputError: the output is there and not known to be damaged, or something else is in the way.
        """
        self.require_possible()
        if self._garbage.exists():
            require_deletable(self._garbage, self._job.files)
            self._disk.remove(self._garbage)
        if self._is_whole:
            yield from self._reopen()
        elif is_occupied(self._target) and not self._job.force:
            self._reopen_target()
        if is_occupied(self.directory):
            self._resume()
        if not (self.directory / JOB_FILE).exists():
            self._disk.make_directory(self.directory)
            self._put_job()

    def note(self, shard: str, note: Note) -> None:
        """Mark a shard as finished."""
        write_atomically(self._disk, self.directory / (shard + NOTE), note.to_bytes())
        self.notes[shard] = note

    def publish(self) -> None:
        """Rename the finished, verified directory to its final name, replacing an old one.

        Raises:
            OutputError: something that may not be replaced has taken that name in the meantime.
        """
        self._require_replaceable()
        for shard in self._job.plan.shards:
            self._disk.remove(self.directory / (shard.file + NOTE))
        self._disk.remove(self.directory / SCRATCH)
        self._disk.remove(self.directory / JOB_FILE)
        if is_occupied(self._target):
            self._disk.rename(self._target, self._garbage)
        self._disk.rename(self.directory, self._target)
        self._disk.remove(self._garbage)

    def _require_free(self) -> None:
        require_free(self._target, force=self._job.force, names=self._job.files)

    def _require_replaceable(self) -> None:
        """Refuse to replace anything but a quantized model, and also a quantized model unless `force` is set."""
        self._require_free()
        if is_occupied(self._target) and not self._job.force:
            raise self._already_there()

    def _already_there(self) -> OutputError:
        return OutputError(f"`{self._target}` already exists", "`--force` replaces it")

    def _reopen_target(self) -> None:
        """Turn a damaged output back into an unfinished one that keeps its sound shards."""
        if not self._job.damaged:
            raise self._already_there()
        manifest = read_manifest(self._target)
        self._disk.rename(self._target, self.directory)
        self._keep(manifest, manifest.shards.keys() - self._job.damaged)

    def _require_repairable(self) -> None:
        """Refuse to repair an output that this job would not write, or beside which a job is unfinished."""
        try:
            manifest = read_manifest(self._target)
        except DamagedError as error:
            raise OutputError(f"`{self._target}` exists, and {error.message}", "`--force` rebuilds it") from error
        if (other := self._difference(Identity.of_manifest(manifest))) is not None:
            raise OutputError(
                f"`{self._target}` already exists, and was made {other.words}",
                "another `--output` makes a second one, `--force` rebuilds it",
            )
        if is_occupied(self.directory):
            raise OutputError(
                f"`{self._target}` is damaged, and `{self.directory}` holds an unfinished job",
                "`--force` finishes that job and puts it in its place",
            )

    def _reopen(self) -> Iterator[FileChecked]:
        """Turn a directory with a manifest back into an unfinished one that keeps its sound shards."""
        try:
            manifest = read_manifest(self.directory)
        except DamagedError:
            if (self.directory / JOB_FILE).exists():
                self._disk.remove(self.directory / MANIFEST_FILE)
            else:
                self._discard(None)
            return
        if self._is_other(begun := Begun.of_manifest(manifest)):
            self._discard(begun)
            return
        sound = set()
        for checked in verify(self.directory):
            sound |= {checked.file} if checked.problem is None else set()
            yield checked
        self._keep(manifest, sound)

    def _keep(self, manifest: Manifest, sound: Set[str]) -> None:
        """Note the sound shards of a directory as finished; without a manifest it is an unfinished one."""
        self.source_hashes = {name: entry.sha256 for name, entry in manifest.sources.items()}
        self._put_job()
        for name in manifest.shards:
            if name in sound:
                self.note(name, Note.of_manifest(manifest, name))
            else:
                self._disk.remove(self.directory / (name + NOTE))
        self._disk.remove(self.directory / MANIFEST_FILE)

    def _resume(self) -> None:
        """Read the notes of an unfinished directory of this job, or delete another's."""
        begun = self._read_job()
        if begun is None or self._is_other(begun):
            self._discard(begun)
        else:
            self.source_hashes = dict(begun.hashes)
            self.notes = self._finished_notes()

    def _require_litter(self) -> None:
        """Refuse what is in the place of an unfinished directory and is more than the beginning of `job.json`."""
        if not self.directory.is_dir() or any(path.suffix != PARTIAL for path in self.directory.iterdir()):
            raise OutputError(
                f"`{self.directory}` exists and is not an unfinished quantized model",
                "move it, or choose another directory",
            )

    def _finished_notes(self) -> dict[str, Note]:
        """Notes of the shards that are finished in the unfinished directory."""
        notes = {}
        for shard in self._job.plan.shards:
            note = Note.read(self.directory / (shard.file + NOTE))
            path = self.directory / shard.file
            if note and path.exists() and path.stat().st_size == shard.nbytes:
                notes[shard.file] = note
        return notes

    def _discard(self, begun: Begun | None) -> None:
        """Delete the unfinished directory of another job; it is renamed first, in case the deletion is interrupted.

        Raises:
            OutputError: it holds what no job wrote, or shards of that job, and `force` is not set.
        """
        if begun is not None:
            self._require_own(begun)  # it was this job's if the source has changed since, as while shards were verified
        require_deletable(self.directory, self._job.files)
        self._disk.rename(self.directory, self._garbage)
        self._disk.remove(self._garbage)

    def _difference(self, made: Identity) -> Difference | None:
        """How what was made or begun differs from what this job makes."""
        return made.difference(Identity.of_job(self._job), hash_sources=self._job.hash_sources)

    def _is_other(self, begun: Begun) -> bool:
        """Whether an unfinished job is not this one."""
        return begun.identity is None or self._difference(begun.identity) is not None

    def _require_own(self, begun: Begun) -> None:
        """Refuse to go on with, or to drop, an unfinished job that is not this one.

        Raises:
            OutputError: it is another one, has shards, and `force` is not set.
        """
        if self._job.force or not any(self.directory.glob("*.safetensors")):
            return
        if begun.identity is None:
            raise OutputError(
                f"`{self.directory}` holds an unfinished job, and its `{JOB_FILE}` cannot be read",
                "`--force` starts over",
            )
        other = self._difference(begun.identity)
        if other is None:
            return
        remedies = {
            "recipe": "finish that one, or ",
            "model": "finish that one, or ",
            "revision": f"`--revision {begun.identity.revision}` continues it, or ",
            "encoding": "that version can finish it, or ",
            "weights": "",
        }
        raise OutputError(
            f"`{self.directory}` holds an unfinished job, begun {other.words}",
            f"{remedies[other.aspect]}`--force` starts over",
        )

    def _put_job(self) -> None:
        content = job_bytes(Identity.of_job(self._job), self.source_hashes)
        write_atomically(self._disk, self.directory / JOB_FILE, content)

    def _begun(self) -> Begun | None:
        """The unfinished job, as its manifest has it, if that can be read; None where there is none."""
        with suppress(DamagedError):
            return Begun.of_manifest(read_manifest(self.directory))
        return self._read_job()

    def _read_job(self) -> Begun | None:
        """The unfinished job, with the hashes of all sources that it has read; None where there is none."""
        begun = read_job(self.directory)
        if begun is None or begun.identity is None:
            return begun
        read = {note.shard.source: note.source.sha256 for note in self._finished_notes().values()}
        return begun._replace(identity=begun.identity.with_hashes({**begun.hashes, **read}))
