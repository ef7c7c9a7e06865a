"""A shard is whole or absent, and readable by safetensors."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from quant.files.disk import Disk, write_atomically
from quant.files.source import HeaderEntry, parse_header
from quant.files.writer import Layout, ShardWriter

PARTS = (
    HeaderEntry(name="scalar", dtype="BF16", shape=(1,)),
    HeaderEntry(name="codes", dtype="U8", shape=(4, 32)),
    HeaderEntry(name="odd", dtype="U8", shape=(3,)),
    HeaderEntry(name="norm", dtype="F32", shape=(3,)),
    HeaderEntry(name="scales", dtype="BF16", shape=(4, 16)),
)
VALUES = {
    "scalar": torch.tensor([1.5], dtype=torch.bfloat16),
    "codes": torch.arange(128, dtype=torch.uint8).view(4, 32),
    "odd": torch.tensor([1, 2, 3], dtype=torch.uint8),
    "norm": torch.tensor([0.5, 1.0, 2.0]),
    "scales": torch.arange(64).view(4, 16).to(torch.bfloat16),
}


def write(path: Path, order: list[str]) -> str:
    with ShardWriter(Disk(), path, Layout.of(PARTS)) as writer:
        for name in order:
            writer.write(name, 0, VALUES[name])
        return writer.finish()


def test_safetensors_reads_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    digest = write(path, list(VALUES))
    loaded = load_file(path)
    assert loaded.keys() == VALUES.keys()
    assert all(torch.equal(loaded[name], value) for name, value in VALUES.items())
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_order_of_writing_does_not_matter(tmp_path: Path) -> None:
    assert write(tmp_path / "a", list(VALUES)) == write(tmp_path / "b", list(reversed(VALUES)))


def test_parts_can_be_written_in_pieces(tmp_path: Path) -> None:
    layout = Layout.of(PARTS)
    with ShardWriter(Disk(), tmp_path / "a", layout) as writer:
        for name, value in VALUES.items():
            flat = value.flatten()
            for start in range(0, len(flat), 5):
                writer.write(name, start, flat[start : start + 5])
        assert writer.finish() == write(tmp_path / "b", list(VALUES))


def test_large_parts_start_on_64_bytes_and_all_on_their_element_size(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write(path, list(VALUES))
    content = path.read_bytes()
    tensors = parse_header("a", content, len(content))
    for tensor in tensors:
        assert tensor.start % tensor.itemsize == 0
        if tensor.nbytes % 64 == 0:
            assert tensor.start % 64 == 0
    assert [tensor.name for tensor in tensors] == ["scales", "codes", "norm", "scalar", "odd"]


def test_nothing_bears_the_name_before_the_shard_is_finished(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with ShardWriter(Disk(), path, Layout.of(PARTS)) as writer:
        writer.write("codes", 0, VALUES["codes"])
    assert not path.exists()
    assert (tmp_path / "a.partial").exists()


def test_a_shard_that_lacks_its_end_is_not_finished(tmp_path: Path) -> None:
    with ShardWriter(Disk(), tmp_path / "a", Layout.of(PARTS)) as writer:
        writer.write("codes", 0, VALUES["codes"])
        with pytest.raises(ValueError, match="bytes"):
            writer.finish()
    assert not (tmp_path / "a").exists()


@pytest.mark.skipif(os.name != "posix", reason="no directory is kept apart there")
def test_what_gets_its_name_is_on_the_disk_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []

    def rename(old: Path, new: Path) -> None:
        done.append("renamed")
        os.replace(old, new)

    monkeypatch.setattr(os, "fsync", lambda descriptor: done.append(os.fstat(descriptor).st_ino))
    monkeypatch.setattr("quant.files.disk.replace", rename)
    small, shard = tmp_path / "small", tmp_path / "shard"
    write_atomically(Disk(), small, b"x")
    write(shard, list(VALUES))
    folder = tmp_path.stat().st_ino
    assert done == [small.stat().st_ino, "renamed", folder, shard.stat().st_ino, "renamed", folder]


def test_put_leaves_no_partial_file(tmp_path: Path) -> None:
    write_atomically(Disk(), tmp_path / "x", b"old")
    write_atomically(Disk(), tmp_path / "x", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_bytes() == b"new"
