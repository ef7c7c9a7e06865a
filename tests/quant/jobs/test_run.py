"""A job from weight files to a verified directory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, load_file, save_file

from quant.codecs import CODECS
from quant.codecs.codec import Encoded
from quant.errors import DamagedError, SourceError
from quant.files.manifest import read_manifest
from quant.files.reader import row_slices
from quant.files.source import SourceFile, read_source
from quant.jobs.events import BytesDone, JobFinished, JobStarted, ShardStarted, ShardWritten, TensorDone
from quant.jobs.run import run
from quant.jobs.verify import verify
from quant.planning.plan import make_plan
from quant.recipe import RECIPES
from tests.checkpoints.quantized import SHARDS, finish, tree
from tests.checkpoints.weights import small_weights, write_small_weights
from tests.quant.jobs.conftest import count, make_job


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
    now = 5000.0

    @contextmanager
    def slow_to_open(file: SourceFile) -> Iterator[Path]:
        nonlocal now
        now += 1000.0
        yield source / file.name
        now += 7.5

    events = list(run(make_job(source, tmp_path / "out", open_source=slow_to_open), clock=lambda: now))
    assert isinstance(events[-1], JobFinished)
    assert events[-1].seconds == 15.0


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


@pytest.mark.parametrize("value", [3e19, 1e37])  # the squares of the second value's error overflow, too
def test_a_weight_with_a_flipped_bit_in_its_exponent_is_named(source: Path, tmp_path: Path, value: float) -> None:
    """It dwarfs everything else: the error would be 0 relative to infinity, or NaN, and so within every limit."""
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
    monkeypatch.setattr(CODECS["nf4"], "error_limit", 0.001)
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


def test_a_job_without_workers_or_files_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="workers"):
        make_job(source, tmp_path / "out", workers=0)
    job = make_job(source, tmp_path / "out")
    with pytest.raises(ValueError, match="weight files"):
        replace(job, plan=replace(job.plan, shards=()))
