"""A job from weight files to a verified directory."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, load_file, save_file

from quant import MANIFEST_FILE
from quant.codecs import CODECS
from quant.codecs.codec import Encoded
from quant.errors import DamagedError, OutputError, SourceError
from quant.files.disk import Disk
from quant.files.manifest import read_manifest
from quant.files.reader import row_slices
from quant.files.source import SourceFile, read_source
from quant.jobs.events import (
    BytesDone,
    FileChecked,
    JobEvent,
    JobFinished,
    JobStarted,
    JobStopped,
    ShardStarted,
    ShardWritten,
    TensorDone,
)
from quant.jobs.job import Job
from quant.jobs.output import Output
from quant.jobs.run import run
from quant.jobs.verify import verify, worst_tensors
from quant.planning.plan import make_plan
from quant.recipe import RECIPES
from tests.checkpoints.quantized import SHARDS, damaged_files, finish, tree
from tests.checkpoints.quantized import make_job as job_of
from tests.checkpoints.weights import small_weights, write_small_weights


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_small_weights(tmp_path / "model")


def make_job(source: Path, output: Path, recipe: str = "4bit", **changes: object) -> Job:
    files = {"config.json": (source / "config.json").read_bytes, "NOTICE": b"changed"}
    return job_of(source, output, recipe, **({"model": "org/model", "files": files} | changes))


def first(events: list[JobEvent], kind: type[JobEvent]) -> JobEvent:
    return next(event for event in events if isinstance(event, kind))


def count(events: list[JobEvent], kind: type[JobEvent]) -> int:
    return sum(isinstance(event, kind) for event in events)


def test_the_output_has_exactly_the_specified_files(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    finish(make_job(source, output))
    assert set(tree(output)) == {*SHARDS, "model.safetensors.index.json", "quant.json", "config.json", "NOTICE"}
    assert {path.name for path in tmp_path.iterdir()} == {"model", "out"}
    assert (output / "config.json").read_bytes() == (source / "config.json").read_bytes()


@pytest.mark.parametrize("recipe", RECIPES)
def test_stored_tensors_are_what_the_codecs_make_of_the_source(
    source: Path, tmp_path: Path, recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quant.files.reader.row_slices", partial(row_slices, limit=2000))  # several for most tensors
    output = tmp_path / "out"
    finish(make_job(source, output, recipe))
    manifest = read_manifest(output)
    stored = {name: value for shard in manifest.shards for name, value in load_file(output / shard).items()}
    seen = set()
    for name, weight in ((name, value) for file in small_weights().values() for name, value in file.items()):
        if name in manifest.dropped:
            continue
        entry = manifest.tensors[name]
        if entry.scheme == "keep":
            seen.add(name)
            assert torch.equal(stored[name], weight)
            continue
        seen |= {f"{name}.codes", f"{name}.scales"}
        encoded = Encoded(codes=stored[f"{name}.codes"], scales=stored[f"{name}.scales"])
        expected = CODECS[entry.scheme].encode(weight)
        assert torch.equal(encoded.codes, expected.codes)
        assert torch.equal(encoded.scales, expected.scales)
        decoded = CODECS[entry.scheme].decode(encoded)
        error = float((decoded - weight.float()).norm() / weight.float().norm())
        assert entry.error == pytest.approx(error, abs=2e-6)
    assert seen == set(stored)


def test_the_manifest_tells_where_everything_came_from(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    job = make_job(source, output, revision="abc")
    finish(job)
    manifest = read_manifest(output)
    assert (manifest.tool, manifest.model, manifest.revision) == ("test", "org/model", "abc")
    assert manifest.recipe == job.plan.recipe
    assert {name: entry.sha256 for name, entry in manifest.sources.items()} == {
        name: hashlib.sha256((source / name).read_bytes()).hexdigest()
        for name in ("model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors")
    }
    assert manifest.nbytes == sum((output / shard).stat().st_size for shard in SHARDS)


def test_the_index_names_the_shard_of_every_stored_tensor(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    finish(make_job(source, output))
    index = json.loads((output / "model.safetensors.index.json").read_text())
    assert index["weight_map"] == {name: shard for shard in SHARDS for name in load_file(output / shard)}


def test_the_plans_sizes_are_the_real_ones(source: Path, tmp_path: Path) -> None:
    job = make_job(source, tmp_path / "out")
    finish(job)
    for shard in job.plan.shards:
        assert (tmp_path / "out" / shard.file).stat().st_size == shard.nbytes
    loaded = [value for shard in SHARDS for value in load_file(tmp_path / "out" / shard).values()]
    assert job.plan.stored_bytes == sum(value.nbytes for value in loaded)


def test_two_runs_give_the_same_bytes_whatever_the_number_of_workers(source: Path, tmp_path: Path) -> None:
    finish(make_job(source, tmp_path / "one"))
    finish(make_job(source, tmp_path / "three", workers=3))
    assert tree(tmp_path / "one") == tree(tmp_path / "three")


def test_torch_has_its_threads_back_afterwards(source: Path, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    finish(make_job(source, tmp_path / "out"))
    assert torch.get_num_threads() == before


def test_events_account_for_every_byte_and_tensor(source: Path, tmp_path: Path) -> None:
    job = make_job(source, tmp_path / "out")
    events = finish(job)
    assert events[0] == JobStarted(source_bytes=job.plan.source_bytes)
    assert [event.shard for event in events if isinstance(event, ShardStarted)] == list(SHARDS)
    assert count(events, ShardWritten) == len(SHARDS)
    stored = [tensor for tensor in job.plan.tensors if tensor.scheme != "drop"]
    assert count(events, TensorDone) == len(stored)
    done = sum(event.source_bytes for event in events if isinstance(event, BytesDone))
    assert done == sum(tensor.source.nbytes for tensor in stored)
    last = events[-1]
    assert isinstance(last, JobFinished)
    assert last.source_bytes == job.plan.source_bytes
    assert last.nbytes == sum((tmp_path / "out" / shard).stat().st_size for shard in SHARDS)


def test_the_time_of_waiting_for_a_source_file_does_not_count(source: Path, tmp_path: Path) -> None:
    now = 0.0

    @contextmanager
    def slow_to_open(file: SourceFile) -> Iterator[Path]:
        nonlocal now
        now += 1000.0
        yield source / file.name
        now += 7.5

    events = list(run(make_job(source, tmp_path / "out", open_source=slow_to_open), clock=lambda: now))
    assert isinstance(events[-1], JobFinished)
    assert events[-1].seconds == 15.0


def stop_after(calls: int) -> Callable[[], bool]:
    asked = iter(range(10_000))
    return lambda: next(asked) >= calls


def test_a_cancelled_job_keeps_what_is_finished_and_is_continued(source: Path, tmp_path: Path) -> None:
    job, output = make_job(source, tmp_path / "out"), tmp_path / "out"
    slices = count(finish(make_job(source, tmp_path / "whole")), BytesDone)
    events = list(run(job, cancelled=stop_after(slices - 3)))
    assert events[-1] == JobStopped(finished=1)
    assert not output.exists()
    again = finish(job)
    assert again[0] == JobStarted(source_bytes=job.plan.shards[1].source.nbytes)
    assert tree(output) == tree(tmp_path / "whole")


def test_a_file_that_is_not_needed_any_more_is_not_opened(source: Path, tmp_path: Path) -> None:
    job = make_job(source, tmp_path / "out")
    slices = count(finish(make_job(source, tmp_path / "whole")), BytesDone)
    list(run(job, cancelled=stop_after(slices - 3)))
    opened = []

    @contextmanager
    def open_source(file: SourceFile) -> Iterator[Path]:
        opened.append(file.name)
        yield source / file.name

    finish(replace(job, open_source=open_source))
    assert opened == ["model-00003-of-00003.safetensors"]


def begin(job: Job) -> None:
    """Stop a job after its first shard."""
    next(event for event in run(job) if isinstance(event, ShardWritten))


def test_another_recipe_does_not_continue_an_unfinished_job(source: Path, tmp_path: Path) -> None:
    begin(make_job(source, tmp_path / "out"))
    with pytest.raises(OutputError, match="unfinished"):
        finish(make_job(source, tmp_path / "out", "int8"))
    finish(make_job(source, tmp_path / "out", "int8", force=True))
    assert read_manifest(tmp_path / "out").recipe.name == "int8"


def test_nothing_is_left_of_an_unfinished_job_that_another_one_replaces(source: Path, tmp_path: Path) -> None:
    list(run(make_job(source, tmp_path / "out", files={"OLD": b"old"}), cancelled=lambda: True))
    (tmp_path / "out.partial" / "OLD").write_bytes(b"old")
    finish(make_job(source, tmp_path / "out", "int8", force=True))
    finish(make_job(source, tmp_path / "fresh", "int8"))
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    ("folder", "files"),
    [
        ("out.discarded", {"thesis.txt": "precious"}),
        ("out.partial", {"quant.json": "{}", "thesis.txt": "precious"}),
        ("out.partial", {"job.json": '{"my": "file"}', "thesis.txt": "precious"}),
        ("out.partial", {"job.json": "[1, 2]", "thesis.txt": "precious"}),
    ],
)
def test_what_no_job_wrote_is_not_deleted(
    source: Path, tmp_path: Path, folder: str, files: dict[str, str], force: bool
) -> None:
    (tmp_path / folder).mkdir()
    for name, text in files.items():
        (tmp_path / folder / name).write_text(text)
    with pytest.raises(OutputError):
        finish(make_job(source, tmp_path / "out", force=force))
    assert {path.name: path.read_text() for path in (tmp_path / folder).iterdir()} == files


def test_a_file_or_a_folder_in_the_place_of_what_is_deleted_is_not_deleted(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out.discarded").write_text("precious")
    with pytest.raises(OutputError, match="is not of a quantization"):
        finish(make_job(source, tmp_path / "out"))
    assert (tmp_path / "out.discarded").read_text() == "precious"
    (tmp_path / "out.discarded").unlink()
    (tmp_path / "out.discarded" / "folder.safetensors").mkdir(parents=True)
    with pytest.raises(OutputError, match="is not of a quantization"):
        finish(make_job(source, tmp_path / "out"))


def test_what_was_left_of_a_deletion_is_deleted(source: Path, tmp_path: Path) -> None:
    finish(make_job(source, tmp_path / "out"))
    (tmp_path / "out").rename(tmp_path / "out.discarded")
    (tmp_path / "out.discarded" / "quant.json").unlink()
    finish(make_job(source, tmp_path / "out"))
    assert not (tmp_path / "out.discarded").exists()


def test_another_revision_says_how_the_first_is_finished(source: Path, tmp_path: Path) -> None:
    begin(make_job(source, tmp_path / "out", revision="abc"))
    with pytest.raises(OutputError, match="unfinished") as caught:
        finish(make_job(source, tmp_path / "out", revision="def"))
    assert caught.value.hint == "`--revision abc` continues it, or `--force` starts over"
    finish(make_job(source, tmp_path / "out", revision="abc"))


def test_a_job_of_which_nothing_is_finished_is_in_nobodys_way(source: Path, tmp_path: Path) -> None:
    list(run(make_job(source, tmp_path / "out", revision="abc"), cancelled=lambda: True))
    job = make_job(source, tmp_path / "out", revision="def")
    Output(job, Disk()).require_possible()
    finish(job)
    assert read_manifest(tmp_path / "out").revision == "def"


def test_a_finished_output_is_refused_and_left_alone(source: Path, tmp_path: Path) -> None:
    job, output = make_job(source, tmp_path / "out"), tmp_path / "out"
    finish(job)
    before = tree(output)
    with pytest.raises(OutputError, match="already exists") as caught:
        finish(job)
    assert "--force" in (caught.value.hint or "")
    assert tree(output) == before
    assert {path.name for path in tmp_path.iterdir()} == {"model", "out"}


def test_force_replaces_a_finished_output(source: Path, tmp_path: Path) -> None:
    finish(make_job(source, tmp_path / "out"))
    finish(make_job(source, tmp_path / "out", "int8", force=True))
    assert read_manifest(tmp_path / "out").recipe.name == "int8"
    assert {path.name for path in tmp_path.iterdir()} == {"model", "out"}


def test_an_unfinished_replacement_leaves_the_old_output_in_place(source: Path, tmp_path: Path) -> None:
    finish(make_job(source, tmp_path / "out"))
    before = tree(tmp_path / "out")
    list(run(make_job(source, tmp_path / "out", "int8", force=True), cancelled=lambda: True))
    assert tree(tmp_path / "out") == before


def test_a_directory_of_something_else_is_refused_even_with_force(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "diary.txt").write_text("dear")
    with pytest.raises(OutputError, match="not a quantized model"):
        finish(make_job(source, tmp_path / "out", force=True))
    assert tree(tmp_path / "out") == {"diary.txt": b"dear"}


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("when", ["before the next run", "while it runs"])
def test_a_directory_that_appears_meanwhile_is_left_alone(source: Path, tmp_path: Path, when: str, force: bool) -> None:
    output = tmp_path / "out"
    events = run(make_job(source, output, force=force))
    next(event for event in events if isinstance(event, FileChecked))  # all that is missing is its final name
    if when == "before the next run":
        events.close()
        events = run(make_job(source, output, force=force))
    output.mkdir()
    (output / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputError, match="exists and is not a quantized model"):
        list(events)
    assert tree(output) == {"thesis.txt": b"years of work"}
    (output / "thesis.txt").unlink()
    finish(make_job(source, output, force=force))


def test_a_finished_output_that_appears_meanwhile_is_replaced_only_by_force(source: Path, tmp_path: Path) -> None:
    output, other = tmp_path / "out", tmp_path / "other"
    finish(make_job(source, other, "4bit-small"))
    events = run(make_job(source, output))
    next(event for event in events if isinstance(event, FileChecked))
    other.rename(output)
    before = tree(output)
    with pytest.raises(OutputError, match="already exists"):
        list(events)
    with pytest.raises(OutputError, match="already exists"):
        next(run(make_job(source, output)))  # before anything is read again
    assert tree(output) == before
    finish(make_job(source, output, force=True))
    assert read_manifest(output).recipe.name == "4bit"


@pytest.mark.parametrize("name", ["notes.txt", "another model"])
def test_force_deletes_nothing_that_is_not_the_models(source: Path, tmp_path: Path, name: str) -> None:
    output = tmp_path / "out"
    finish(make_job(source, output))
    (output / ".DS_Store").touch()  # a desktop's
    kept = output / name if "." in name else output / name / "quant.json"
    kept.parent.mkdir(exist_ok=True)
    kept.write_text("mine")
    with pytest.raises(OutputError, match=f"`{name}` in .* is not the model's"):
        finish(make_job(source, output, "int8", force=True))
    assert kept.read_text() == "mine"


def test_nor_does_it_where_the_manifest_is_damaged(source: Path, tmp_path: Path) -> None:
    """It tells no longer what is the model's; the names of shards and of this job's files do."""
    output = tmp_path / "out"
    job = make_job(source, output, force=True)
    finish(job)
    (output / MANIFEST_FILE).write_text("{")
    for name in ("notes.txt", "adapter_model.safetensors"):
        (output / name).write_text("mine")
        with pytest.raises(OutputError, match=f"`{name}` in .* is not the model's"):
            finish(job)
        assert (output / name).read_text() == "mine"
        (output / name).unlink()
    finish(job)


def test_no_model_is_made_inside_another(source: Path, tmp_path: Path) -> None:
    finish(make_job(source, tmp_path / "out"))
    with pytest.raises(OutputError, match="is inside a quantized model"):
        finish(make_job(source, tmp_path / "out" / "in" / "it"))
    assert not (tmp_path / "out" / "in").exists()


def test_an_empty_directory_is_used(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    finish(make_job(source, tmp_path / "out"))
    assert (tmp_path / "out" / MANIFEST_FILE).is_file()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["model.decoder.norm.weight", "model.decoder.embed_tokens.weight"])
def test_weights_that_are_not_finite_are_named(source: Path, tmp_path: Path, name: str, value: float) -> None:
    path = source / "model-00001-of-00003.safetensors"
    tensors = load(path.read_bytes())  # a file that is mapped cannot be written over on Windows
    tensors[name].view(-1)[3] = value
    save_file(tensors, path)
    with pytest.raises(SourceError, match=name):
        finish(make_job(source, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("value", [3e19, 1e37])  # the squares of the second's error overflow, too
def test_a_weight_with_a_flipped_bit_in_its_exponent_is_named(source: Path, tmp_path: Path, value: float) -> None:
    """Beside it everything else vanishes: its error would be 0 of infinity, or no number, and over no limit."""
    path = source / "model-00001-of-00003.safetensors"
    tensors = load(path.read_bytes())  # a file that is mapped cannot be written over on Windows
    tensors["model.decoder.embed_tokens.weight"].view(-1)[3] = value
    save_file(tensors, path)
    with pytest.raises(SourceError, match=r"`model\.decoder\.embed_tokens\.weight` in .* far too large"):
        finish(make_job(source, tmp_path / "out"))


def test_a_source_that_does_not_hash_to_what_was_published_never_becomes_a_shard(source: Path, tmp_path: Path) -> None:
    name = "model-00001-of-00003.safetensors"
    files = [replace(file, sha256="0" * 64) if file.name == name else file for file in read_source(source)]
    plan = make_plan(RECIPES["4bit"], files)
    with pytest.raises(SourceError, match=name):
        finish(make_job(source, tmp_path / "out", plan=plan))
    assert not list((tmp_path / "out.partial").glob("*.safetensors"))


def test_a_source_whose_header_changed_since_the_plan_is_refused(source: Path, tmp_path: Path) -> None:
    job = make_job(source, tmp_path / "out")
    path = source / "model-00001-of-00003.safetensors"
    save_file({name: value.flip(0) for name, value in load_file(path).items()}, path)  # same header, other values
    list(run(job, cancelled=lambda: True))
    content = path.read_bytes()
    path.write_bytes(content.replace(b"model.decoder.norm.weight", b"model.decoder.norm.wieght"))
    with pytest.raises(SourceError, match="changed since the plan was made"):
        finish(job)


def test_a_tensor_that_a_codec_cannot_keep_ends_the_job_at_once(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codec = replace(CODECS["nf4"], error_limit=0.001)  # type: ignore[type-var]
    monkeypatch.setattr("quant.jobs.shard.CODECS", {**CODECS, "nf4": codec})
    with pytest.raises(DamagedError, match="experts.*loses .* as nf4, where 0% is the limit") as caught:
        finish(make_job(source, tmp_path / "out"))
    assert "`int8`" in (caught.value.hint or "")
    assert not (tmp_path / "out").exists()


def test_other_files_may_be_fetched_when_they_are_needed(source: Path, tmp_path: Path) -> None:
    finish(make_job(source, tmp_path / "out", files={"tokenizer.json": lambda: b"fetched"}))
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == b"fetched"
    assert not [checked.problem for checked in verify(tmp_path / "out") if checked.problem]


def test_fp32_sources_are_quantized_and_kept_in_fp32(tmp_path: Path) -> None:
    source = write_small_weights(tmp_path / "model")
    for name, tensors in small_weights().items():
        save_file({tensor: value.float() for tensor, value in tensors.items()}, source / name)
    finish(make_job(source, tmp_path / "out"))
    stored = load_file(tmp_path / "out" / SHARDS[0])
    assert stored["model.decoder.norm.weight"].dtype == torch.float32
    weight = small_weights()["model-00001-of-00003.safetensors"]["model.decoder.embed_tokens.weight"]
    assert torch.equal(stored["model.decoder.embed_tokens.weight.codes"], CODECS["int8"].encode(weight).codes)


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
    output = tmp_path / "out"
    finish(make_job(source, output))
    real = Path.open

    def refuse(path: Path, *arguments: Any, **options: Any) -> Any:
        if path.name in (SHARDS[1], "config.json"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", refuse)
    assert [checked.problem for checked in verify(output) if checked.problem] == [
        f"`{SHARDS[1]}` cannot be read: Permission denied",
        "`config.json` cannot be read: Permission denied",
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
    for _ in range(2):  # the second run knows it from the unfinished directory
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
    for event in run(job):
        if isinstance(event, ShardWritten):
            break
    note = tmp_path / "out.partial" / f"{SHARDS[0]}.json"
    assert note.exists()
    note.write_bytes(damage)
    assert count(finish(job), ShardStarted) == len(SHARDS)


def test_a_shard_whose_note_may_not_be_read_is_made_again(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a job that another user began."""
    job = make_job(source, tmp_path / "out")
    for event in run(job):
        if isinstance(event, ShardWritten):
            break
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
    for event in run(job):
        if isinstance(event, ShardWritten):
            break
    damage(tmp_path / "out.partial" / SHARDS[0])
    assert count(finish(job), ShardStarted) == len(SHARDS)


@pytest.mark.parametrize("part", ["model.decoder.norm.weight", "model.decoder.embed_tokens.weight.scales"])
def test_a_shard_that_was_written_with_values_that_are_not_finite_does_not_verify(
    source: Path, tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def halves(shape: Sequence[int], itemsize: int) -> Iterator[slice]:
        """Of which one holds them."""
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


def test_a_job_without_workers_or_files_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="workers"):
        make_job(source, tmp_path / "out", workers=0)
    job = make_job(source, tmp_path / "out")
    with pytest.raises(ValueError, match="weight files"):
        replace(job, plan=replace(job.plan, shards=()))
