"""`localdiff quantize` if its result already exists: it is kept, brought up to date, refused, or replaced."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from localdiff.checkpoints.model_store import find
from localdiff.commands.quantize import verification
from quant.errors import SpaceError
from quant.files.disk import Disk
from quant.jobs.events import FileChecked
from quant.jobs.verify import verify
from tests.checkpoints.quantized import SHARDS, tree
from tests.checkpoints.weights import write_small_text, write_small_weights
from tests.localdiff.commands.quantize.conftest import NAME, flip, refused
from tests.screens.processes import Cli


def test_a_finished_model_is_not_made_again(cli: Cli, source: Path, output: Path) -> None:
    cli("quantize", str(source), "--yes", stdin=b"")
    before = tree(output)
    os.utime(min(source.glob("*.safetensors")))  # newer, but unchanged
    result = cli("quantize", str(source), "--yes", stdin=b"")
    assert (result.code, result.stdout) == (0, f"{output}\n")
    assert "Already here and intact: nothing was made. Run it: localdiff run " in result.stderr
    assert "`--force` rebuilds it" in result.stderr
    assert tree(output) == before
    assert cli("quantize", str(source), stdin=b"").code == 0, "nobody is asked about nothing"
    dry = cli("quantize", str(source), "--dry-run", stdin=b"")
    assert dry.code == 0
    assert f"`{output}` exists. Without `--dry-run` only what is damaged is rebuilt; `--force` " in dry.stdout


def test_a_finished_model_of_something_else_is_refused_without_force(
    cli: Cli, source: Path, output: Path, tmp_path: Path
) -> None:
    def refuses(*arguments: str, because: str) -> None:
        result = cli("quantize", *arguments, "--yes", stdin=b"")
        assert (result.code, result.stdout) == (2, "")
        assert f"`{output}` already exists, and {because}" in result.stderr
        assert "another `--output` makes a second one, `--force` rebuilds it" in result.stderr
        assert tree(output) == before

    cli("quantize", str(source), "--yes", stdin=b"")
    before = tree(output)
    refuses(str(source), "--recipe", "int8", "-o", str(output), because="was made as `4bit`, not as `int8`")
    other = write_small_weights(tmp_path / "other")
    refuses(str(other), "-o", str(output), because="was made from `small`, not from `other`")
    refuses("demo", "-o", str(output), because="was made from `small`, not from `demo`")
    refuses("owner/small", "-o", str(output), because="was made from `small`, not from `owner/small`")
    write_small_weights(source, seed=1)
    changed = min(source.glob("*.safetensors"))
    refuses(str(source), because=f"was made before `{changed}` changed")


def test_a_model_of_something_else_is_refused_before_it_is_read(
    cli: Cli, source: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("quantize", str(source), "--yes", stdin=b"")
    read: list[Path] = []
    monkeypatch.setattr(verification, "verify", lambda directory: read.append(directory) or iter(()))
    result = cli("quantize", str(source), "--yes", "--recipe", "int8", "-o", str(output), stdin=b"")
    assert (result.code, read) == (2, [])
    assert cli("quantize", str(source), "--yes", stdin=b"").code == 0
    assert read == [output]


def test_nothing_is_copied_into_a_model_that_has_taken_the_place_of_the_one_that_was_looked_at(
    cli: Cli, source: Path, output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("quantize", str(source), "--yes", stdin=b"")
    other = write_small_text(write_small_weights(tmp_path / "other", seed=1))
    cli("quantize", str(other), "--yes", "-o", str(tmp_path / "made"), stdin=b"")
    (source / "NOTICE").write_text("new")

    def verify_and_replace(directory: Path) -> Iterator[FileChecked]:
        yield from verify(directory)
        shutil.rmtree(output)
        (tmp_path / "made").rename(output)

    monkeypatch.setattr(verification, "verify", verify_and_replace)
    result = cli("quantize", str(source), "--yes", stdin=b"")
    assert (result.code, result.stdout) == (2, "")
    assert "was made from `other`, not from `small`" in result.stderr
    assert not (output / "NOTICE").exists()


def test_small_files_that_changed_in_the_source_are_copied_again(cli: Cli, source: Path, output: Path) -> None:
    cli("quantize", str(source), "--yes", stdin=b"")
    before = tree(output)
    shards = {shard: (output / shard).stat().st_ino for shard in SHARDS}
    (source / "generation_config.json").write_text('{"eos_token_id": 2, "max_denoising_steps": 7}')
    (source / "NOTICE").write_text("new")
    result = cli("quantize", str(source), stdin=b"")
    assert (result.code, result.stdout) == (0, f"{output}\n")
    assert f"copied again, as changed in `{source}`: `NOTICE`, `generation_config.json`. Run it: " in result.stderr
    after = tree(output)
    assert {name for name in after if after[name] != before.get(name)} == {
        "generation_config.json",
        "NOTICE",
        "CHANGES.md",
        "README.md",
        "quant.json",
    }
    assert after["generation_config.json"] == (source / "generation_config.json").read_bytes()
    assert {shard: (output / shard).stat().st_ino for shard in SHARDS} == shards
    assert find(NAME).verified is not None
    assert cli("quantize", str(source), "--verify-only", stdin=b"").code == 0
    assert "nothing was made" in cli("quantize", str(source), stdin=b"").stderr
    # the same as what a new job makes of it
    assert cli("quantize", str(source), "--yes", "-o", str(output) + "-new", stdin=b"").code == 0
    assert tree(output.with_name(output.name + "-new")) == after


def test_what_is_damaged_in_the_source_is_not_copied(cli: Cli, source: Path, output: Path) -> None:
    cli("quantize", str(source), "--yes", stdin=b"")
    before = tree(output)
    (source / "tokenizer.json").write_text("{")
    refused(cli("quantize", str(source), stdin=b""), 3, f"`{source / 'tokenizer.json'}` is not a tokenizer")
    assert tree(output) == before


@pytest.mark.parametrize("damaged", [False, True])
def test_a_changed_config_may_change_what_weights_mean_and_is_refused(
    cli: Cli, source: Path, output: Path, damaged: bool
) -> None:
    cli("quantize", str(source), "--yes", stdin=b"")
    if damaged:
        flip(output / SHARDS[0], -1)
    before = tree(output)
    config = source / "config.json"
    config.write_text(config.read_text().replace("1e-06", "1e-05"))
    result = cli("quantize", str(source), "--yes", stdin=b"")
    refused(result, 2, f"`{output}` already exists, and was made before `{config}` changed", "`--force` rebuilds it")
    assert tree(output) == before
    assert cli("quantize", str(source), "--yes", "--force", stdin=b"").code == 0


def test_a_file_that_the_source_has_lost_is_said_and_kept(cli: Cli, source: Path, output: Path) -> None:
    cli("quantize", str(source), "--yes", stdin=b"")
    (source / "tokenizer.json").unlink()
    refused(cli("quantize", str(source), stdin=b""), 2, f"was made while there was `{source / 'tokenizer.json'}`")
    assert (output / "tokenizer.json").exists()


def test_a_tokenizer_that_somebody_put_beside_the_result_is_not_replaced(cli: Cli, source: Path, output: Path) -> None:
    text = (source / "tokenizer.json").read_bytes()
    (source / "tokenizer.json").unlink()
    cli("quantize", str(source), "--yes", stdin=b"")
    (output / "tokenizer.json").write_bytes(text + b" ")
    (source / "tokenizer.json").write_bytes(text)
    refused(cli("quantize", str(source), stdin=b""), 2, f"`{output / 'tokenizer.json'}` is not the model's")
    (output / "tokenizer.json").unlink()
    assert "copied again" in cli("quantize", str(source), stdin=b"").stderr
    assert (output / "tokenizer.json").read_bytes() == text


def test_force_replaces_a_finished_model_only_when_the_new_one_is_sound(
    cli: Cli, source: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("quantize", str(source), "--yes", stdin=b"")
    before = tree(output)
    write_small_weights(source, seed=1)
    with monkeypatch.context() as patch:
        patch.setattr(Disk, "sync", full)
        result = cli("quantize", str(source), "--yes", "--force", stdin=b"")
        assert result.code == 4
        assert "the disk is full" in result.stderr
    assert tree(output) == before
    result = cli("quantize", str(source), "--yes", "--force", stdin=b"")
    assert result.code == 0
    assert f"`{output}` exists and will be replaced once the new one is verified." in result.stderr
    assert tree(output) != before
    assert {path.name for path in output.parent.iterdir()} == {NAME}


def full(_disk: Disk, file: object) -> None:
    raise SpaceError("the disk is full while writing `x`", "free some space and run the same command again")
