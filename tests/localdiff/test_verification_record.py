"""What is remembered about a model whose bytes have all been read, and how long that counts."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from localdiff import directory_record, paths
from localdiff.verification_record import (
    State,
    record_finding,
    recorded_damage,
    state_of,
    verified_at,
)

NOW = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"LOCALDIFF_HOME": str(tmp_path / "home")}


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


def records(env: dict[str, str]) -> list[Path]:
    return sorted((paths.state_dir(env) / "verified").iterdir())


def test_a_verification_counts_until_the_manifest_is_another(model: Path, env: dict[str, str]) -> None:
    assert verified_at(model, env=env) is None
    record_finding(model, now=NOW, env=env)
    assert verified_at(model, env=env) == NOW
    write_manifest(model, "int8")
    assert verified_at(model, env=env) is None


def test_a_verification_counts_until_a_file_of_the_model_is_written(model: Path, env: dict[str, str]) -> None:
    shard = model / "model.safetensors"
    os.utime(shard, ns=(10**18, 10**18))
    record_finding(model, now=NOW, env=env)
    (model / "notes.txt").write_text("not the model's")
    assert verified_at(model, env=env) == NOW
    for moment in (10**18 + 1, 10**18 - 1):
        os.utime(shard, ns=(moment, moment))
        assert verified_at(model, env=env) is None
    shard.unlink()
    assert verified_at(model, env=env) is None


def test_damage_outlives_a_change_of_the_files_but_not_of_the_manifest(model: Path, env: dict[str, str]) -> None:
    record_finding(model, now=NOW, env=env)
    record_finding(model, "one file is damaged", env=env)
    os.utime(model / "model.safetensors")
    assert (verified_at(model, env=env), recorded_damage(model, env=env)) == (None, "one file is damaged")
    record_finding(model, now=NOW, env=env)
    assert (verified_at(model, env=env), recorded_damage(model, env=env)) == (NOW, None)
    record_finding(model, "one file is damaged", env=env)
    write_manifest(model, "int8")
    assert (verified_at(model, env=env), recorded_damage(model, env=env)) == (None, None)


def test_what_was_read_of_a_file_that_was_written_since_is_not_recorded(model: Path, env: dict[str, str]) -> None:
    since = state_of(model)
    assert record_finding(model, since=since, now=NOW, env=env)
    assert verified_at(model, env=env) == NOW
    os.utime(model / "model.safetensors", ns=(10**18, 10**18))
    assert not record_finding(model, since=since, env=env)
    assert verified_at(model, env=env) is None


def test_damage_of_a_model_that_was_rebuilt_since_is_not_recorded(model: Path, env: dict[str, str]) -> None:
    since = state_of(model)
    write_manifest(model, "int8")
    record_finding(model, now=NOW, env=env)
    assert not record_finding(model, "one file is damaged", since=since, env=env)
    assert (verified_at(model, env=env), recorded_damage(model, env=env)) == (NOW, None)


def test_a_file_that_is_missing_and_a_manifest_that_cannot_be_parsed_can_be_recorded(
    model: Path, env: dict[str, str]
) -> None:
    (model / "model.safetensors").unlink()
    assert record_finding(model, "a file is missing", since=state_of(model), env=env)
    assert recorded_damage(model, env=env) == "a file is missing"
    for content in (b"nonsense", b"[]", b"[" * 100_000):
        (model / "quant.json").write_bytes(content)
        assert record_finding(model, "it is damaged", since=state_of(model), env=env)
        assert recorded_damage(model, env=env) == "it is damaged"


def test_a_link_to_a_model_is_that_model(model: Path, env: dict[str, str], tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(model)
    record_finding(link, "one file is damaged", env=env)
    assert recorded_damage(model, env=env) == "one file is damaged"


def test_two_records_at_the_same_moment_are_both_kept(
    model: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other, write = make(model.with_name("b")), directory_record.write_private

    def write_after_the_other(path: Path, data: bytes) -> os.stat_result:
        with monkeypatch.context() as patch:
            patch.setattr(directory_record, "write_private", write)
            record_finding(other, "another process found this", env=env)
        return write(path, data)

    monkeypatch.setattr(directory_record, "write_private", write_after_the_other)
    record_finding(model, now=NOW, env=env)
    assert verified_at(model, env=env) == NOW
    assert recorded_damage(other, env=env) == "another process found this"


def test_records_of_models_that_are_gone_are_deleted(model: Path, env: dict[str, str]) -> None:
    gone = make(model.with_name("gone"))
    record_finding(gone, now=NOW, env=env)
    shutil.rmtree(gone)
    record_finding(model, now=NOW, env=env)
    assert len(records(env)) == 1
    assert verified_at(model, env=env) == NOW


def test_records_of_models_on_a_disk_that_is_not_here_are_kept(
    model: Path, env: dict[str, str], tmp_path: Path
) -> None:
    """Otherwise nobody would be warned about a damaged model once the disk is back."""
    disk = tmp_path / "disk"
    record_finding(make(disk / "model"), "one file is damaged", env=env)
    disk.rename(tmp_path / "elsewhere")
    record_finding(model, now=NOW, env=env)
    (tmp_path / "elsewhere").rename(disk)
    assert recorded_damage(disk / "model", env=env) == "one file is damaged"


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
def test_nonsense_in_the_place_of_a_record_is_none(model: Path, env: dict[str, str], nonsense: str) -> None:
    record_finding(model, now=NOW, env=env)
    (record,) = records(env)
    record.write_text(nonsense)
    assert (verified_at(model, env=env), recorded_damage(model, env=env)) == (None, None)
    record_finding(make(model.with_name("b")), now=NOW, env=env)
    record_finding(model, now=NOW, env=env)
    assert verified_at(model, env=env) == NOW


@pytest.mark.parametrize("wrong", [{"at": "noon"}, {"at": 7}, {"files": "x"}, {"problem": 7}])
def test_wrong_values_in_a_record_count_as_none(model: Path, env: dict[str, str], wrong: dict[str, object]) -> None:
    record_finding(model, now=NOW, env=env)
    (record,) = records(env)
    record.write_text(json.dumps(json.loads(record.read_text()) | wrong))
    found = verified_at(model, env=env), recorded_damage(model, env=env)
    assert found == ((NOW, None) if "problem" in wrong else (None, None))


def test_a_device_in_the_place_of_a_manifest_is_none(model: Path, env: dict[str, str]) -> None:
    """Reading one may never end, and opening a pipe may wait for ever: /dev/null stands for them here."""
    record_finding(model, now=NOW, env=env)
    (model / "quant.json").unlink()
    (model / "quant.json").symlink_to(os.devnull)
    assert state_of(model) == State(manifest=None, files=None)
    assert verified_at(model, env=env) is None
