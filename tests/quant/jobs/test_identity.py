"""When two jobs, or a job and an output, are the same, and the message if they are not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quant.errors import DamagedError, OutputError
from quant.files.disk import Disk
from quant.files.manifest import Manifest, read_manifest
from quant.files.source import read_source
from quant.hashing import file_sha256
from quant.jobs import identity
from quant.jobs.events import FileChecked, JobStarted, ShardStarted
from quant.jobs.identity import Identity, SourceState
from quant.jobs.job import HashSources, Job
from quant.jobs.output import OutputDirectory
from quant.jobs.run import run
from quant.names import JOB_FILE
from quant.planning.plan import make_plan
from quant.recipe import RECIPES
from tests.checkpoints.manifest import MANIFEST
from tests.checkpoints.quantized import SHARDS, finish
from tests.checkpoints.weights import write_small_weights
from tests.quant.jobs.conftest import begin, make_job

MADE = Identity(
    tool="localdiff 0.1.0",
    encoding=1,
    recipe="4bit",
    rules=(("*", "nf4"),),
    model="a",
    revision=None,
    sources={"x": SourceState(10, "ab"), "y": SourceState(10)},
)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"tool": "localdiff 9"}, None),
        ({"recipe": "int8", "rules": ()}, "as `4bit`, not as `int8`"),
        ({"rules": (("*", "int8"),)}, "by localdiff 0.1.0, with other rules than those of `4bit` here"),
        ({"model": "b"}, "from `a`, not from `b`"),
        ({"revision": "c"}, "from revision None"),
        ({"encoding": 2}, "by localdiff 0.1.0, which encodes otherwise"),
        ({"sources": {"x": SourceState(10), "y": SourceState(10)}}, None),
        ({"sources": {"x": SourceState(10), "y": SourceState(10, "cd")}}, None),
        ({"sources": {"x": SourceState(11), "y": SourceState(10)}}, "before `x` changed"),
        ({"sources": {"x": SourceState(10, "ac"), "y": SourceState(10)}}, "before `x` changed"),
        ({"sources": {"x": SourceState(10)}}, "before `y` changed"),
        ({"sources": {**MADE.sources, "z": SourceState(1)}}, "before `z` changed"),
    ],
)
def test_what_differs_is_said(changes: dict[str, Any], words: str | None) -> None:
    wanted = replace(MADE, **changes)
    difference = MADE.difference(wanted)
    assert (None if difference is None else difference.words) == words
    assert Identity.from_json(json.loads(json.dumps(wanted.to_json()))) == wanted


def test_a_hash_that_is_known_stays_where_no_other_is_found() -> None:
    assert MADE.with_hashes({"y": "cd"}).sources == {"x": SourceState(10, "ab"), "y": SourceState(10, "cd")}


def test_only_what_nothing_but_a_hash_tells_apart_is_read() -> None:
    asked: list[Sequence[str]] = []

    def read(sha256: str) -> HashSources:
        def hashes(names: Sequence[str]) -> dict[str, str]:
            asked.append(names)
            return dict.fromkeys(names, sha256)

        return hashes

    wanted = replace(MADE, sources={"x": SourceState(10), "y": SourceState(10)})
    other = MADE.difference(wanted, hash_sources=read("cd"))
    assert other is not None and other.words == "before `x` changed"
    assert MADE.difference(wanted, hash_sources=read("ab")) is None
    assert asked == [["x"], ["x"]]
    assert MADE.difference(MADE, hash_sources=read("cd")) is None
    assert MADE.difference(replace(wanted, encoding=2), hash_sources=read("cd")) is not None
    assert asked == [["x"], ["x"]]


def test_a_job_is_what_its_manifest_says(source: Path, tmp_path: Path) -> None:
    job = make_job(source, tmp_path / "out")
    finish(job)
    assert Identity.of_manifest(read_manifest(tmp_path / "out")).difference(Identity.of_job(job)) is None


@pytest.fixture
def reading(source: Path) -> HashSources:
    return lambda names: {name: file_sha256(source / name) for name in names}


def keep_times(directory: Path, write: Callable[[], object]) -> None:
    times = {path: path.stat() for path in directory.iterdir()}
    write()
    for path, status in times.items():
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_other_weights_do_not_continue_what_was_begun_with_these(
    source: Path, tmp_path: Path, reading: HashSources
) -> None:
    job = make_job(source, tmp_path / "out", hash_sources=reading)
    begin(job)
    keep_times(source, lambda: write_small_weights(source, seed=1))
    assert OutputDirectory(job, Disk()).finished() == set()
    for refusal in (OutputDirectory(job, Disk()).require_possible, lambda: finish(job)):
        with pytest.raises(OutputError, match=r"begun before `model-00001-of-00003.safetensors` changed") as caught:
            refusal()
        assert caught.value.hint == "`--force` starts over"


def test_the_same_weights_written_at_another_time_continue(source: Path, tmp_path: Path, reading: HashSources) -> None:
    begin(make_job(source, tmp_path / "out"))
    for path in source.iterdir():
        os.utime(path, (1_600_000_000, 1_600_000_000))
    events = finish(make_job(source, tmp_path / "out", hash_sources=reading))
    assert isinstance(events[0], JobStarted)
    assert sum(isinstance(event, ShardStarted) for event in events) == 1


def test_weights_that_nobody_has_read_yet_may_change(source: Path, tmp_path: Path, reading: HashSources) -> None:
    begin(make_job(source, tmp_path / "out"))
    first = "model-00001-of-00003.safetensors"
    read = (source / first).read_bytes()
    write_small_weights(source, seed=1)
    (source / first).write_bytes(read)
    finish(make_job(source, tmp_path / "out", hash_sources=reading))
    assert {name: entry.sha256 for name, entry in read_manifest(tmp_path / "out").sources.items()} == reading(
        [first, "model-00003-of-00003.safetensors"]
    )


def test_a_whole_output_that_was_not_put_in_its_place_is_not_that_of_other_weights(
    source: Path, tmp_path: Path, reading: HashSources
) -> None:
    job = make_job(source, tmp_path / "out", hash_sources=reading)
    begin(job, until=FileChecked)
    write_small_weights(source, seed=1)
    with pytest.raises(OutputError, match="begun before `model-00001-of-00003.safetensors` changed"):
        finish(job)
    assert isinstance(finish(replace(job, force=True))[0], JobStarted)


def test_weights_that_change_while_a_whole_output_is_verified_do_not_delete_it(
    source: Path, tmp_path: Path, reading: HashSources
) -> None:
    job = make_job(source, tmp_path / "out", hash_sources=reading)
    directory = begin(job, until=FileChecked)
    events = run(job)
    assert isinstance(next(events), FileChecked)
    write_small_weights(source, seed=1)
    with pytest.raises(OutputError, match="begun before `model-00001-of-00003.safetensors` changed"):
        list(events)
    assert {path.name for path in directory.glob("*.safetensors")} == {*SHARDS}


def test_another_version_of_the_program_goes_on(source: Path, tmp_path: Path) -> None:
    job = make_job(source, tmp_path / "out", tool="localdiff 1")
    begin(job)
    events = finish(replace(job, tool="localdiff 2"))
    assert isinstance(events[0], JobStarted)
    assert sum(isinstance(event, ShardStarted) for event in events) == 1
    assert read_manifest(tmp_path / "out").tool == "localdiff 2"


def test_another_encoding_goes_on_with_nothing(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_job(source, tmp_path / "out", tool="localdiff 1")
    damaged = replace(job, output=tmp_path / "damaged")
    begin(job)
    finish(damaged)
    (tmp_path / "damaged" / SHARDS[0]).unlink()
    damaged = replace(damaged, damaged=frozenset({SHARDS[0]}))
    monkeypatch.setattr(identity, "ENCODING", 2)
    for other, words, hint in (
        (
            job,
            "holds an unfinished job, begun by localdiff 1, which",
            "that version can finish it, or `--force` starts",
        ),
        (damaged, "already exists, and was made by localdiff 1, which encodes otherwise", "`--force` rebuilds it"),
    ):
        later = replace(other, tool="localdiff 2")
        for refusal in (
            lambda later=later: OutputDirectory(later, Disk()).require_possible(),
            lambda later=later: finish(later),
        ):
            with pytest.raises(OutputError, match=words) as caught:
                refusal()
            assert hint in (caught.value.hint or "")


def test_an_encoding_is_written_unless_it_is_the_first() -> None:
    assert "encoding" not in MANIFEST.to_text()
    second = replace(MANIFEST, encoding=2)
    assert Manifest.from_text(second.to_text()) == second
    with pytest.raises(DamagedError):
        Manifest.from_text(MANIFEST.to_text().replace('  "files": {', '  "encoding": 1,\n  "files": {', 1))
    with pytest.raises(DamagedError):
        Manifest.from_text(second.to_text().replace('"encoding": 2', '"encoding": true'))


@pytest.mark.parametrize("job", ["{", '{"job": 1, "sources": {}}', '{"job": {"tool": "x"}, "sources": {}}'])
def test_a_job_that_cannot_be_read_is_not_called_another_one(source: Path, tmp_path: Path, job: str) -> None:
    begun = make_job(source, tmp_path / "out")
    (begin(begun) / JOB_FILE).write_text(job)
    with pytest.raises(OutputError, match=r"`job.json` cannot be read") as caught:
        OutputDirectory(begun, Disk()).require_possible()
    assert caught.value.hint == "`--force` starts over"
    finish(replace(begun, force=True))


def test_what_a_job_would_refuse_is_refused_before_it_runs(source: Path, tmp_path: Path) -> None:
    def refuses(job: Job, words: str) -> None:
        with pytest.raises(OutputError, match=words):
            OutputDirectory(job, Disk()).require_possible()
        with pytest.raises(OutputError, match=words):
            finish(job)
        OutputDirectory(replace(job, force=True), Disk()).require_possible()

    job = make_job(source, tmp_path / "out")
    int8 = make_plan(RECIPES["int8"], read_source(source))
    OutputDirectory(job, Disk()).require_possible()
    finish(job)
    (tmp_path / "out" / SHARDS[0]).unlink()
    job = replace(job, damaged=frozenset({SHARDS[0]}))
    OutputDirectory(job, Disk()).require_possible()
    refuses(replace(job, plan=int8), "already exists, and was made as `4bit`, not as `int8`")
    refuses(replace(job, model="org/other"), "was made from `org/model`, not from `org/other`")
    refuses(replace(job, revision="c"), "was made from revision None")
    begin(replace(job, force=True))
    refuses(job, "holds an unfinished job")
    (tmp_path / "out").rename(tmp_path / "elsewhere")
    OutputDirectory(job, Disk()).require_possible()
    refuses(replace(job, plan=int8), "an unfinished job, begun as `4bit`, not as `int8`")
    (tmp_path / "out.partial" / JOB_FILE).unlink()
    with pytest.raises(OutputError, match="exists and is not an unfinished quantized model"):
        OutputDirectory(job, Disk()).require_possible()
