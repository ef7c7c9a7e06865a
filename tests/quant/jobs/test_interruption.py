"""A job that is stopped after any operation on the disk is continued by the same job, to the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, TypeAlias

import pytest
import torch
from safetensors.torch import save_file

from quant import MANIFEST_FILE
from quant.errors import OutputError
from quant.files.disk import Disk
from quant.files.manifest import read_manifest
from quant.files.source import SourceFile
from quant.jobs.job import Job
from quant.jobs.run import run
from quant.jobs.verify import verify
from quant.names import SCRATCH, partial_directory
from quant.recipe import Recipe, Rule
from tests.checkpoints.quantized import SHARDS, tree
from tests.checkpoints.quantized import make_job as job_of

RECIPE = Recipe(
    name="x",
    rules=(
        Rule(pattern="vision", scheme="drop"),
        Rule(pattern="*norm", scheme="keep"),
        Rule(pattern="a*", scheme="nf4"),
        Rule(pattern="b*", scheme="int8"),
    ),
)
OTHER = replace(RECIPE, rules=(Rule(pattern="vision", scheme="drop"), Rule(pattern="*", scheme="keep")))


class Stopped(BaseException):
    """An exception that no handler catches, to resemble a killed process."""


class StoppingDisk(Disk):
    """A disk that does `operations` operations and then stops the process, perhaps halfway through one more.

    Attributes:
        halved: whether that last operation can be done by half, and was.
    """

    def __init__(self, operations: int, by_half: bool) -> None:
        self._left = operations
        self._by_half = by_half
        self.halved = False

    def _count(self, half: Callable[[], object] | None = None) -> None:
        if self._left == 0:
            if self._by_half and half is not None:
                half()
                self.halved = True
            raise Stopped
        self._left -= 1

    def make_directory(self, path: Path) -> None:
        self._count()
        super().make_directory(path)

    def create(self, path: Path) -> BinaryIO:
        self._count(lambda: path.write_bytes(b""))
        return super().create(path)

    def write(self, file: BinaryIO, offset: int, data: bytes | memoryview) -> None:
        self._count(lambda: super(StoppingDisk, self).write(file, offset, memoryview(data)[: len(data) // 2]))
        super().write(file, offset, data)

    def sync(self, file: BinaryIO) -> None:
        self._count()
        super().sync(file)

    def rename(self, old: Path, new: Path) -> None:
        self._count()
        super().rename(old, new)

    def remove(self, path: Path) -> None:
        def one_child() -> None:
            for child in sorted(path.iterdir())[:1] if path.is_dir() else ():
                child.unlink()

        self._count(one_child)
        super().remove(path)


def make_job(source: Path, output: Path, recipe: Recipe = RECIPE, **changes: object) -> Job:
    return job_of(source, output, recipe, **({"files": {"config.json": b"{}"}} | changes))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    generator = torch.Generator().manual_seed(0)
    save_file(
        {"a": torch.randn(2, 64, generator=generator), "a.norm": torch.ones(3), "vision": torch.ones(5)},
        directory / "1.safetensors",
    )
    save_file({"b": torch.randn(2, 2, 64, generator=generator), "b.norm": torch.ones(3)}, directory / "2.safetensors")
    (directory / "model.safetensors.index.json").write_text(
        '{"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}'
    )
    return directory


def fresh(source: Path, output: Path) -> Job:
    return make_job(source, output)


def replacing(source: Path, output: Path) -> Job:
    list(run(make_job(source, output, OTHER)))
    return make_job(source, output, force=True)


def replacing_beside_an_unfinished_job(source: Path, output: Path) -> Job:
    list(run(make_job(source, output, OTHER)))
    list(run(make_job(source, output, OTHER, tool="older", force=True), cancelled=lambda: True))
    return make_job(source, output, force=True)


def repairing(source: Path, output: Path) -> Job:
    list(run(make_job(source, output)))
    shard = output / SHARDS[1]
    shard.write_bytes(shard.read_bytes()[:-1] + b"!")
    return make_job(source, output, damaged=frozenset({shard.name}))


class Streaming:
    """Provides source files as a stream does: each is fetched next to the output, and deleted once it has been read."""

    def __init__(self, source: Path, scratch: Path) -> None:
        self.disk = Disk()
        self._source, self._scratch = source, scratch

    @contextmanager
    def open(self, file: SourceFile) -> Iterator[Path]:
        path = self._scratch / file.name
        self.disk.make_directory(self._scratch)
        with self.disk.create(path) as stream:
            self.disk.write(stream, 0, (self._source / file.name).read_bytes())
        yield path
        self.disk.remove(path)


def streaming(source: Path, output: Path) -> Job:
    stream = Streaming(source, partial_directory(output) / SCRATCH)
    return make_job(source, output, open_source=stream.open)


Scenario: TypeAlias = Callable[[Path, Path], Job]


@pytest.mark.parametrize("by_half", [False, True], ids=["between", "by half"])
@pytest.mark.parametrize(
    "scenario",
    [
        fresh,
        pytest.param(replacing, marks=pytest.mark.slow),
        replacing_beside_an_unfinished_job,
        repairing,
        streaming,
    ],
    ids=lambda value: value.__name__,
)
def test_every_point_of_interruption_is_continued(
    source: Path, tmp_path: Path, scenario: Scenario, by_half: bool
) -> None:
    list(run(make_job(source, tmp_path / "whole")))
    expected = tree(tmp_path / "whole")
    interruptions = 0
    while True:
        place = tmp_path / str(interruptions)
        place.mkdir()
        output = place / "out"
        job = scenario(source, output)
        disk = StoppingDisk(interruptions, by_half)
        if isinstance(stream := getattr(job.open_source, "__self__", None), Streaming):
            stream.disk = disk
        try:
            list(run(job, disk=disk))
        except Stopped:
            interruptions += 1
        else:
            break
        if by_half and not disk.halved:
            continue  # it stopped between two operations, which the other parameter tests
        if isinstance(stream, Streaming):
            stream.disk = Disk()
        require_nothing_half_loadable(output, damaged=scenario is repairing)
        finish(job, output)
        assert tree(place) == {f"out/{name}": content for name, content in expected.items()}
    assert interruptions > 20
    assert tree(output) == expected


def require_nothing_half_loadable(output: Path, damaged: bool) -> None:
    """Whatever has the output's name is whole, unless it was damaged before."""
    if (output / MANIFEST_FILE).exists() and not damaged:
        assert not [checked for checked in verify(output) if checked.problem]
    elif output.exists() and not damaged:
        assert not list(output.iterdir())


def finish(job: Job, output: Path) -> None:
    """Run the same job again; it may have been interrupted when only cleaning up was left."""
    try:
        list(run(replace(job, force=False) if is_done(job, output) else job))
    except OutputError as error:
        assert "already exists" in error.message
        assert is_done(job, output)


def is_done(job: Job, output: Path) -> bool:
    return (output / MANIFEST_FILE).exists() and read_manifest(output).recipe == job.plan.recipe


def test_interruptions_can_follow_each_other(source: Path, tmp_path: Path) -> None:
    list(run(make_job(source, tmp_path / "whole")))
    output, attempts = tmp_path / "out", 0
    while not (output / MANIFEST_FILE).exists():
        attempts += 1
        assert attempts < 40
        try:
            list(run(make_job(source, output), disk=StoppingDisk(18, by_half=True)))
        except Stopped:
            continue
    assert attempts > 2
    assert tree(output) == tree(tmp_path / "whole")


def test_a_stopped_process_leaves_finished_shards_that_are_not_made_again(source: Path, tmp_path: Path) -> None:
    job = make_job(source, tmp_path / "out")
    operations = 0
    while not (tmp_path / "out.partial" / f"{SHARDS[0]}.json").exists():
        operations += 1
        with pytest.raises(Stopped):
            list(run(job, disk=StoppingDisk(operations, by_half=False)))
    shard = tmp_path / "out.partial" / SHARDS[0]
    before = shard.stat().st_ino
    list(run(job))
    assert (tmp_path / "out" / shard.name).stat().st_ino == before
