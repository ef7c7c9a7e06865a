"""Damage to a finished output is found, named and repaired."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quant import MANIFEST_FILE
from quant.errors import DamagedError, OutputError, SourceError
from quant.files.disk import Disk
from quant.files.manifest import read_manifest
from quant.files.reader import row_slices
from quant.files.source import read_source
from quant.jobs.events import FileChecked, JobEvent, JobStarted, ShardStarted
from quant.jobs.run import run
from quant.jobs.verify import verify, worst_tensors
from tests.checkpoints.quantized import SHARDS, damaged_files, finish, tree
from tests.checkpoints.weights import write_small_weights
from tests.quant.jobs.conftest import begin, count, make_job


def first(events: list[JobEvent], kind: type[JobEvent]) -> JobEvent:
    return next(event for event in events if isinstance(event, kind))


def test_each_kind_of_damage_is_found(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    finish(make_job(source, output))
    assert [checked.problem for checked in verify(output)] == [None] * 5
    for name, before in tree(output).items():
        for position in range(0, len(before), len(before) // 15 + 1):
            damaged = bytearray(before)
            damaged[position] ^= 1 << position % 8
            (output / name).write_bytes(damaged)
            if name == "quant.json":
                with pytest.raises(DamagedError):
                    list(verify(output))
            else:
                assert [checked.file for checked in verify(output) if checked.problem] == [name], position
        (output / name).write_bytes(before)


def test_missing_and_shortened_files_are_named(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    finish(make_job(source, output))
    for name in (SHARDS[0], "config.json"):
        before = (output / name).read_bytes()
        (output / name).write_bytes(before[:-1])
        assert [checked.problem for checked in verify(output) if checked.problem and name in checked.problem]
        (output / name).unlink()
        assert f"`{name}` is missing" in [checked.problem for checked in verify(output)]
        (output / name).write_bytes(before)


def test_files_that_cannot_be_read_are_named(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that this user may not read may be sound; one that the disk cannot read is not."""
    output = tmp_path / "out"
    errors = {SHARDS[1]: PermissionError(13, "Permission denied"), "config.json": OSError(5, "Input/output error")}
    finish(make_job(source, output))
    real = Path.open

    def refuse(path: Path, *arguments: Any, **options: Any) -> Any:
        if path.name in errors:
            raise errors[path.name]
        return real(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", refuse)
    assert [(checked.problem, checked.is_barred) for checked in verify(output) if checked.problem] == [
        (f"`{SHARDS[1]}` cannot be read: Permission denied", True),
        ("`config.json` cannot be read: Input/output error", False),
    ]


def test_what_the_disk_did_not_keep_is_not_published(source: Path, tmp_path: Path) -> None:
    class Forgetful(Disk):
        def rename(self, old: Path, new: Path) -> None:
            super().rename(old, new)
            if new.name == SHARDS[0]:
                with new.open("r+b") as file:
                    file.seek(-1, os.SEEK_END)
                    file.write(b"\x11")

    with pytest.raises(DamagedError, match=SHARDS[0]):
        list(run(make_job(source, tmp_path / "out"), disk=Forgetful()))
    assert not (tmp_path / "out").exists()


def test_a_rerun_rebuilds_only_the_damaged_shard(source: Path, tmp_path: Path) -> None:
    job, output = make_job(source, tmp_path / "out"), tmp_path / "out"
    finish(job)
    before = tree(output)
    path = output / SHARDS[1]
    damaged = bytearray(path.read_bytes())
    damaged[-9] ^= 4
    path.write_bytes(damaged)
    assert damaged_files(output) == {SHARDS[1]}
    events = finish(replace(job, damaged=damaged_files(output)))
    assert not any(isinstance(event, FileChecked) for event in events[: events.index(first(events, JobStarted))])
    assert [event.shard for event in events if isinstance(event, ShardStarted)] == [SHARDS[1]]
    assert tree(output) == before


def test_a_repair_refuses_weights_that_are_not_those_of_the_rest(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    finish(make_job(source, output))
    (output / SHARDS[1]).write_bytes(b"x")
    write_small_weights(source, seed=1)
    job = make_job(source, output, damaged=damaged_files(output))
    for _ in range(2):  # the second run notices it from the unfinished directory
        with pytest.raises(SourceError, match="SHA-256"):
            finish(job)
        assert not (tmp_path / "out.partial" / MANIFEST_FILE).exists()


def test_a_rerun_repairs_a_small_file(source: Path, tmp_path: Path) -> None:
    job, output = make_job(source, tmp_path / "out"), tmp_path / "out"
    finish(job)
    before = tree(output)
    (output / "config.json").write_text("{}")
    events = finish(replace(job, damaged=frozenset({"config.json"})))
    assert count(events, ShardStarted) == 0
    assert tree(output) == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"error": 0.2}, "`model.decoder.layers.1.experts.down_proj` has a relative error of 0.2, over the limit 0.13"),
        ({"shape": (2, 3)}, "cannot hold what its manifest lists (shape=[2, 3]"),  # for its codec
        ({"shape": (1, 64)}, "does not hold the tensors that its manifest lists"),
    ],
    ids=str,
)
def test_a_manifest_that_says_what_is_not_so_does_not_verify(
    source: Path, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    output = tmp_path / "out"
    finish(make_job(source, output))
    manifest = read_manifest(output)
    name = "model.decoder.layers.1.experts.down_proj"
    tensors = dict(manifest.tensors) | {name: replace(manifest.tensors[name], **change)}
    (output / "quant.json").write_bytes(replace(manifest, tensors=tensors).to_text().encode())
    (problem,) = [checked.problem for checked in verify(output) if checked.problem]
    assert words in problem


@pytest.mark.parametrize(
    "damage",
    [
        b'{"shard": {"bytes": 1e999, "sha256": "%s", "source": "s"}}' % (b"0" * 64),
        b'{"shard": {"bytes": 1, "sha256": "%s", "source": "s"}, "source": {"bytes": 1, "sha256": "%s"}, "tensors": []}'
        % (b"0" * 64, b"0" * 64),
        b"[" * 100_000,
        b"{",
    ],
    ids=lambda damage: damage[:30].decode(),
)
def test_a_shard_with_a_damaged_note_is_made_again(source: Path, tmp_path: Path, damage: bytes) -> None:
    job = make_job(source, tmp_path / "out")
    note = begin(job) / f"{SHARDS[0]}.json"
    assert note.exists()
    note.write_bytes(damage)
    assert count(finish(job), ShardStarted) == len(SHARDS)


def test_a_shard_whose_note_may_not_be_read_is_made_again(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note is like that of a job that another user began."""
    job = make_job(source, tmp_path / "out")
    begin(job)
    read = Path.read_bytes

    def refusing(path: Path) -> bytes:
        if path.name == f"{SHARDS[0]}.json":
            raise PermissionError(13, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refusing)
    assert count(finish(job), ShardStarted) == len(SHARDS)


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: os.truncate(path, 100)], ids=["gone", "cut short"])
def test_a_shard_that_a_note_speaks_of_is_made_again_if_it_is_not_there_whole(
    source: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    job = make_job(source, tmp_path / "out")
    damage(begin(job) / SHARDS[0])
    assert count(finish(job), ShardStarted) == len(SHARDS)


@pytest.mark.parametrize("part", ["model.decoder.norm.weight", "model.decoder.embed_tokens.weight.scales"])
def test_a_shard_that_was_written_with_values_that_are_not_finite_does_not_verify(
    source: Path, tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def halves(shape: Sequence[int], itemsize: int) -> Iterator[slice]:
        """Two halves, of which one has NaN."""
        return row_slices(shape, itemsize, limit=math.prod(shape) * itemsize // 2)

    monkeypatch.setattr("quant.files.reader.row_slices", halves)
    output = tmp_path / "out"
    finish(make_job(source, output))
    (tensor,) = [tensor for file in read_source(output) for tensor in file.tensors if tensor.name == part]
    path = output / tensor.file
    damaged = bytearray(path.read_bytes())
    damaged[tensor.start + 2 : tensor.start + 4] = b"\xc0\x7f"  # NaN in bf16
    path.write_bytes(damaged)
    manifest = read_manifest(output)
    digest = hashlib.sha256(damaged).hexdigest()
    shards = dict(manifest.shards) | {path.name: replace(manifest.shards[path.name], sha256=digest)}
    (output / "quant.json").write_bytes(replace(manifest, shards=shards).to_text().encode())
    problems = [checked.problem for checked in verify(output) if checked.problem]
    assert problems == [f"`{path.name}` holds values that are not finite, in `{part}`"]


def test_the_worst_tensors_are_those_nearest_to_the_limit_of_their_codec(source: Path, tmp_path: Path) -> None:
    finish(make_job(source, tmp_path / "out"))
    manifest = read_manifest(tmp_path / "out")
    nf4, int8 = (
        [name for name, tensor in manifest.tensors.items() if tensor.scheme == scheme][:2] for scheme in ("nf4", "int8")
    )
    errors = {nf4[0]: 0.1, nf4[1]: 0.12, int8[0]: 0.018, int8[1]: 0.019}
    tensors = {name: replace(tensor, error=errors.get(name, 0.0)) for name, tensor in manifest.tensors.items()}
    worst = worst_tensors(replace(manifest, tensors=tensors))[:4]  # at 95, 92, 90 and 77 % of their limits
    assert [name for name, _, _ in worst] == [int8[1], nf4[1], int8[0], nf4[0]]


def test_an_output_is_not_repaired_in_the_place_of_an_unfinished_job(source: Path, tmp_path: Path) -> None:
    output, unfinished = tmp_path / "out", tmp_path / "out.partial"
    finish(make_job(source, output))
    list(run(make_job(source, output, "int8", force=True), cancelled=lambda: True))
    (output / SHARDS[1]).write_bytes(b"x")
    before = tree(output), tree(unfinished)
    with pytest.raises(OutputError, match="is damaged, and .* holds an unfinished job"):
        finish(make_job(source, output, damaged=damaged_files(output)))
    assert (tree(output), tree(unfinished)) == before
