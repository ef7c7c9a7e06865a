"""`localdiff quantize` if an output of that name exists, finished or not, and may be of other weights."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localdiff.checkpoints import model_store, stored_model, weight_hashes
from localdiff.commands.quantize import flow
from localdiff.quantizing import planned_job
from localdiff.quantizing.planned_job import TOOL
from quant.files.manifest import read_manifest
from quant.jobs import identity
from quant.jobs.events import JobEvent, ShardWritten
from quant.jobs.job import Job
from quant.jobs.run import run
from tests.checkpoints.quantized import SHARDS, tree
from tests.checkpoints.weights import write_small_text, write_small_weights
from tests.screens.processes import Cli

LONG_AGO = 1_600_000_000


def age(directory: Path) -> None:
    for path in directory.iterdir():
        os.utime(path, (LONG_AGO, LONG_AGO))


def damage(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 8]))


@pytest.mark.parametrize("damaged", [False, True])
def test_other_weights_of_the_same_name_and_sizes_are_not_taken_for_those_it_was_made_from(
    cli: Cli, source: Path, output: Path, tmp_path: Path, damaged: bool
) -> None:
    other = write_small_text(write_small_weights(tmp_path / "b" / "small", seed=1))
    age(other)
    assert cli("quantize", str(source), "--yes", stdin=b"").code == 0
    if damaged:
        damage(output / SHARDS[0])
    before = tree(output)
    result = cli("quantize", str(other), "--yes", stdin=b"")
    assert (result.code, result.stdout) == (2, "")
    changed = min(other.glob("*.safetensors"))
    assert f"`{output}` already exists, and was made before `{changed}` changed" in result.stderr
    assert "rebuilt" not in result.stderr
    assert tree(output) == before
    # a copy of the source is as good as the source
    copy = shutil.copytree(source, tmp_path / "c" / "small")
    assert cli("quantize", str(copy), "--yes", stdin=b"").code == 0


def test_a_directory_called_demo_is_not_taken_for_the_demo_model(cli: Cli, home: Path, tmp_path: Path) -> None:
    mine = write_small_text(write_small_weights(tmp_path / "demo"))
    result = cli("quantize", str(mine), "--yes", stdin=b"")
    directory = home / "models" / "demo-4bit"
    assert (result.code, result.stdout) == (0, f"{directory}\n")
    assert read_manifest(directory).model == "./demo"
    assert "license:" not in (directory / "README.md").read_text()
    assert not stored_model.is_demo(directory)
    assert model_store.default_model() == "demo-4bit"
    result = cli("quantize", "demo", "--yes", stdin=b"")
    assert (result.code, "was made from `./demo`, not from `demo`" in result.stderr) == (2, True)


def test_weights_copied_in_place_with_their_times_are_found(
    cli: Cli, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_hashes, "_SETTLED_NS", 0)
    age(source)
    other = write_small_weights(tmp_path / "other", seed=1)
    age(other)
    for _ in range(2):
        assert cli("quantize", str(source), "--yes", stdin=b"").code == 0
    for file in other.glob("*.safetensors"):
        shutil.copy2(file, source / file.name)
    result = cli("quantize", str(source), "--yes", stdin=b"")
    assert (result.code, result.stdout) == (2, "")
    assert f"was made before `{min(source.glob('*.safetensors'))}` changed" in result.stderr


def test_what_is_refused_is_refused_before_anybody_is_asked(
    cli: Cli, source: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("quantize", str(source), "--yes", stdin=b"").code == 0
    damage(output / SHARDS[0])
    with monkeypatch.context() as patch:  # a later version that would store the same weights differently
        patch.setattr(identity, "ENCODING", 2)
        result = cli("quantize", str(source), "--yes", stdin=b"")
    assert (result.code, result.stdout) == (2, "")
    assert result.stderr.endswith(
        f"error: `{output}` already exists, and was made by {TOOL}, which encodes otherwise\n"
        "hint: another `--output` makes a second one, `--force` rebuilds it\n"
    )
    assert "will be rebuilt" not in result.stderr
    # a later version that would store them in the same way repairs it
    monkeypatch.setattr(planned_job, "TOOL", "localdiff 99")
    assert cli("quantize", str(source), "--yes", stdin=b"").code == 0
    assert read_manifest(output).tool == "localdiff 99"


def test_weights_in_other_files_are_found(cli: Cli, source: Path) -> None:
    assert cli("quantize", str(source), "--yes", stdin=b"").code == 0
    first = min(source.glob("*.safetensors"))
    shutil.copy2(first, source / "model.safetensors")  # from now on it is read in place of the others
    result = cli("quantize", str(source), "--yes", stdin=b"")
    assert result.code == 2
    assert " changed\n" in result.stderr
    (source / "model.safetensors").unlink()
    first.unlink()
    result = cli("quantize", str(source), "--yes", stdin=b"")
    assert (result.code, f"was made while there was `{first}`" in result.stderr) == (2, True)


def stopped_after_a_shard(job: Job, *, cancelled: Callable[[], bool]) -> Iterator[JobEvent]:
    """A job that is told to stop when its first shard is written."""
    written: list[JobEvent] = []
    for event in run(job, cancelled=lambda: bool(written) or cancelled()):
        if isinstance(event, ShardWritten):
            written.append(event)
        yield event


@pytest.fixture
def unfinished(cli: Cli, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_hashes, "_SETTLED_NS", 0)
    with monkeypatch.context() as patch:
        patch.setattr(flow, "run", stopped_after_a_shard)
        result = cli("quantize", str(source), "--yes", stdin=b"")
    assert (result.code, "1 of 2 output files are finished" in result.stderr) == (130, True)


@pytest.mark.usefixtures("unfinished")
def test_other_weights_of_the_same_times_do_not_continue_an_unfinished_job(
    cli: Cli, source: Path, tmp_path: Path
) -> None:
    other = write_small_text(write_small_weights(tmp_path / "b" / "small", seed=1))
    for path in other.iterdir():
        os.utime(path, ns=((source / path.name).stat().st_mtime_ns,) * 2)
    result = cli("quantize", str(other), "--yes", stdin=b"")
    assert (result.code, result.stdout) == (2, "")
    assert "holds an unfinished job, begun before `model-00001-of-00003.safetensors` changed" in result.stderr
    assert cli("quantize", str(other), "--yes", "--force", stdin=b"").code == 0


@pytest.mark.usefixtures("unfinished")
def test_a_copy_of_the_weights_continues_an_unfinished_job(cli: Cli, source: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(source, tmp_path / "b" / "small")
    age(copy)
    result = cli("quantize", str(copy), "--yes", stdin=b"")
    assert (result.code, "; 1 of them is finished" in result.stderr) == (0, True)


@pytest.mark.usefixtures("unfinished")
def test_what_an_unfinished_job_has_read_is_not_read_again(
    cli: Cli, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_hashes, "file_sha256", read_in_vain)
    assert cli("quantize", str(source), "--yes", stdin=b"").code == 0


def read_in_vain(path: Path, progress: object) -> str:
    raise AssertionError(f"{path} is read")


def test_a_source_that_nobody_touched_is_not_read_again(
    cli: Cli, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_hashes, "_SETTLED_NS", 0)
    assert cli("quantize", str(source), "--yes", stdin=b"").code == 0
    monkeypatch.setattr(weight_hashes, "file_sha256", read_in_vain)
    assert cli("quantize", str(source), "--yes", stdin=b"").code == 0
