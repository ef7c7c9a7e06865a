"""What is remembered about a model whose bytes have all been read, and how long that counts."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from localdiff import paths
from localdiff.checkpoints import directory_record
from localdiff.checkpoints.verification_record import (
    State,
    record_finding,
    recorded_damage,
    state_of,
    verified_at,
)

NOW = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make(tmp_path / "models" / "a")


def make(directory: Path) -> Path:
    """A directory that looks like a quantized model."""
    directory.mkdir(parents=True)
    (directory / "model.safetensors").write_bytes(b"x" * 1000)
    write_manifest(directory, "4bit")
    return directory


def write_manifest(directory: Path, recipe: str) -> None:
    content = {"recipe": {"name": recipe}, "shards": {"model.safetensors": {"bytes": 1000}}}
    (directory / "quant.json").write_text(json.dumps(content))


def records() -> list[Path]:
    return sorted((paths.state_dir() / "verified").iterdir())


def test_a_verification_counts_until_the_manifest_is_another(model: Path) -> None:
    assert verified_at(model) is None
    record_finding(model, now=NOW)
    assert verified_at(model) == NOW
    write_manifest(model, "int8")
    assert verified_at(model) is None


def test_a_verification_counts_until_a_file_of_the_model_is_written(model: Path) -> None:
    shard = model / "model.safetensors"
    os.utime(shard, ns=(10**18, 10**18))
    record_finding(model, now=NOW)
    (model / "notes.txt").write_text("not the model's")
    assert verified_at(model) == NOW
    for moment in (10**18 + 1, 10**18 - 1):
        os.utime(shard, ns=(moment, moment))
        assert verified_at(model) is None
    shard.unlink()
    assert verified_at(model) is None


def test_damage_outlives_a_change_of_the_files_but_not_of_the_manifest(model: Path) -> None:
    record_finding(model, now=NOW)
    record_finding(model, "one file is damaged")
    os.utime(model / "model.safetensors")
    assert (verified_at(model), recorded_damage(model)) == (None, "one file is damaged")
    record_finding(model, now=NOW)
    assert (verified_at(model), recorded_damage(model)) == (NOW, None)
    record_finding(model, "one file is damaged")
    write_manifest(model, "int8")
    assert (verified_at(model), recorded_damage(model)) == (None, None)


def test_what_was_read_of_a_file_that_was_written_since_is_not_recorded(model: Path) -> None:
    since = state_of(model)
    assert record_finding(model, since=since, now=NOW)
    assert verified_at(model) == NOW
    os.utime(model / "model.safetensors", ns=(10**18, 10**18))
    assert not record_finding(model, since=since)
    assert verified_at(model) is None


def test_damage_of_a_model_that_was_rebuilt_since_is_not_recorded(model: Path) -> None:
    since = state_of(model)
    write_manifest(model, "int8")
    record_finding(model, now=NOW)
    assert not record_finding(model, "one file is damaged", since=since)
    assert (verified_at(model), recorded_damage(model)) == (NOW, None)


def test_a_file_that_is_missing_and_a_manifest_that_cannot_be_parsed_can_be_recorded(model: Path) -> None:
    (model / "model.safetensors").unlink()
    assert record_finding(model, "a file is missing", since=state_of(model))
    assert recorded_damage(model) == "a file is missing"
    for content in (b"nonsense", b"[]", b"[" * 100_000):
        (model / "quant.json").write_bytes(content)
        assert record_finding(model, "it is damaged", since=state_of(model))
        assert recorded_damage(model) == "it is damaged"


def test_a_link_to_a_model_is_that_model(model: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(model)
    record_finding(link, "one file is damaged")
    assert recorded_damage(model) == "one file is damaged"


def test_two_records_at_the_same_moment_are_both_kept(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other, write = make(model.with_name("b")), directory_record.write_private

    def write_after_the_other(path: Path, data: bytes) -> os.stat_result:
        with monkeypatch.context() as patch:
            patch.setattr(directory_record, "write_private", write)
            record_finding(other, "another process found this")
        return write(path, data)

    monkeypatch.setattr(directory_record, "write_private", write_after_the_other)
    record_finding(model, now=NOW)
    assert verified_at(model) == NOW
    assert recorded_damage(other) == "another process found this"


def test_records_of_models_that_are_gone_are_deleted(model: Path) -> None:
    gone = make(model.with_name("gone"))
    record_finding(gone, now=NOW)
    shutil.rmtree(gone)
    record_finding(model, now=NOW)
    assert len(records()) == 1
    assert verified_at(model) == NOW


def test_records_of_models_on_a_disk_that_is_not_here_are_kept(model: Path, tmp_path: Path) -> None:
    """Of a model that was found damaged, nobody would be warned when the disk is back."""
    disk = tmp_path / "disk"
    record_finding(make(disk / "model"), "one file is damaged")
    disk.rename(tmp_path / "elsewhere")
    record_finding(model, now=NOW)
    (tmp_path / "elsewhere").rename(disk)
    assert recorded_damage(disk / "model") == "one file is damaged"


@pytest.mark.parametrize(
    "nonsense",
    [
        "nonsense",
        "[" * 100_000,
        "[]",
        "{}",
        '{"directory": 7}',
        '{"directory": "/%s"}' % ("a" * 300),
        '{"directory": "\\u0000"}',
    ],
)
def test_nonsense_in_the_place_of_a_record_is_none(model: Path, nonsense: str) -> None:
    record_finding(model, now=NOW)
    (record,) = records()
    record.write_text(nonsense)
    assert (verified_at(model), recorded_damage(model)) == (None, None)
    record_finding(make(model.with_name("b")), now=NOW)
    record_finding(model, now=NOW)
    assert verified_at(model) == NOW


@pytest.mark.parametrize("wrong", [{"at": "noon"}, {"at": 7}, {"files": "x"}, {"problem": 7}])
def test_wrong_values_in_a_record_count_as_none(model: Path, wrong: dict[str, object]) -> None:
    record_finding(model, now=NOW)
    (record,) = records()
    record.write_text(json.dumps(json.loads(record.read_text()) | wrong))
    found = verified_at(model), recorded_damage(model)
    assert found == ((NOW, None) if "problem" in wrong else (None, None))


def test_a_device_in_the_place_of_a_manifest_is_none(model: Path) -> None:
    """Reading one may never end, and opening a pipe may wait for ever: /dev/null stands for them here."""
    record_finding(model, now=NOW)
    (model / "quant.json").unlink()
    (model / "quant.json").symlink_to(os.devnull)
    assert state_of(model) == State(manifest=None, files=None)
    assert verified_at(model) is None
