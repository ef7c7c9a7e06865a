"""Hashes of weights and vocabulary, for directories of every kind."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import pytest

from localdiff.checkpoints import weight_hashes
from localdiff.trace.hashing import tokenizer_digest, weights_digest


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def listing(**digests: str) -> str:
    return sha("".join(f"{digest}  {name}.safetensors\n" for name, digest in sorted(digests.items())).encode())


def test_the_digest_is_that_of_what_sha256sum_prints(tmp_path: Path) -> None:
    (tmp_path / "b.safetensors").write_bytes(b"two")
    (tmp_path / "a.safetensors").write_bytes(b"one")
    (tmp_path / "config.json").write_text("{}")
    assert weights_digest(tmp_path) == listing(a=sha(b"one"), b=sha(b"two"))


def test_every_byte_and_every_name_counts(tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    file.write_bytes(b"one")
    before = weights_digest(tmp_path)
    file.write_bytes(b"onE")
    assert weights_digest(tmp_path) != before
    file.write_bytes(b"one")
    assert weights_digest(tmp_path) == before
    file.rename(tmp_path / "b.safetensors")
    assert weights_digest(tmp_path) != before


def test_a_manifest_stands_for_its_shards(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"one")
    manifest = b'{"shards": 1}'
    (tmp_path / "quant.json").write_bytes(manifest)
    assert weights_digest(tmp_path) == sha(f"{sha(manifest)}  quant.json\n".encode())


def test_a_link_into_the_cache_of_the_hub_is_believed_and_not_read(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots"
    blobs.mkdir()
    snapshot.mkdir()
    name = sha(b"of the real content")
    (blobs / name).write_bytes(b"not read")
    (snapshot / "a.safetensors").symlink_to(blobs / name)
    (blobs / "short").write_bytes(b"read")
    (snapshot / "b.safetensors").symlink_to(blobs / "short")
    assert weights_digest(snapshot) == listing(a=name, b=sha(b"read"))


def test_a_file_that_nobody_touched_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each recorded run used to read all weights of a directory again."""
    monkeypatch.setattr(weight_hashes, "_SETTLED_NS", 0)
    for name in "ab":
        (tmp_path / f"{name}.safetensors").write_text(name)
    seen: list[tuple[int, int]] = []
    for _ in range(2):
        assert weights_digest(tmp_path, lambda done, total: seen.append((done, total))) == listing(
            a=sha(b"a"), b=sha(b"b")
        )
    assert seen == [(1, 2), (2, 2)]


def test_progress_counts_what_has_to_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(bytes(5_000_000))
    (tmp_path / "b.safetensors").write_bytes(bytes(3))
    seen: list[tuple[int, int]] = []
    weights_digest(tmp_path, lambda done, total: seen.append((done, total)))
    assert seen[-1] == (5_000_003, 5_000_003)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_the_vocabulary_is_one_file(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(b"{}")
    assert tokenizer_digest(tmp_path) == sha(b"{}")


def test_what_is_no_file_holds_no_weights(tmp_path: Path) -> None:
    """A link that leads nowhere used to end a recorded run as if by a bug, and a pipe held it up for ever."""
    (tmp_path / "a.safetensors").write_bytes(b"one")
    (tmp_path / "b.safetensors").mkdir()
    (tmp_path / "c.safetensors").symlink_to("gone")
    if sys.platform != "win32":
        os.mkfifo(tmp_path / "d.safetensors")
    assert weights_digest(tmp_path) == listing(a=sha(b"one"))
