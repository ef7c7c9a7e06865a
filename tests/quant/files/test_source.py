"""Reading safetensors files: headers, order, hashes, and everything that can be wrong with them."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import sys
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, load_file, save_file

from localdiff.load.checkpoint import Checkpoint
from quant.errors import DamagedError, SourceError
from quant.files.manifest import read_manifest
from quant.files.reader import SourceReader, row_slices
from quant.files.source import (
    INDEX_FILE,
    MAX_HEADER,
    entry_file,
    is_file_name,
    parse_header,
    read_source,
    read_start,
)
from tests.checkpoints.weights import small_weights, write_small_weights
from tests.fakes.permissions import as_anyone


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_small_weights(tmp_path / "model")


def test_finds_every_tensor_of_every_file(directory: Path) -> None:
    files = {file.name: file for file in read_source(directory)}
    expected = small_weights()
    assert files.keys() == expected.keys()
    for name, tensors in expected.items():
        found = {tensor.name: (tensor.shape, tensor.dtype) for tensor in files[name].tensors}
        assert found == {tensor: (tuple(value.shape), "BF16") for tensor, value in tensors.items()}
        assert files[name].nbytes == (directory / name).stat().st_size


def test_an_index_of_gigabytes_is_not_read(directory: Path) -> None:
    os.truncate(directory / INDEX_FILE, MAX_HEADER + 1)
    with pytest.raises(SourceError, match="is larger than any index"):
        read_source(directory)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such pipes")
def test_a_pipe_is_not_waited_for(directory: Path) -> None:
    shard = directory / sorted(small_weights())[-1]
    shard.unlink()
    os.mkfifo(shard)
    with pytest.raises(SourceError, match=r"safetensors` is not a file"):
        read_source(directory)


def test_a_single_file_needs_no_index(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(3, 4)}, tmp_path / "model.safetensors")
    (file,) = read_source(tmp_path)
    assert [(tensor.name, tensor.shape, tensor.dtype) for tensor in file.tensors] == [("a", (3, 4), "F32")]


def test_a_single_file_is_read_before_shards_as_the_loader_does(directory: Path) -> None:
    save_file({"a": torch.zeros(3, 4)}, directory / "model.safetensors")
    (directory / "config.json").write_text("{}")
    tensors = [tensor.name for file in read_source(directory) for tensor in file.tensors]
    assert tuple(tensors) == Checkpoint(directory).names() == ("a",)


def test_reads_the_same_values_as_safetensors_and_hashes_the_file(directory: Path) -> None:
    file = read_source(directory)[0]
    expected = load_file(directory / file.name)
    with SourceReader(file, directory / file.name) as reader:
        for tensor in file.tensors:
            rows = [reader.rows(tensor, part) for part in row_slices(tensor.shape, tensor.itemsize, limit=700)]
            assert torch.equal(torch.cat(rows).view(tensor.shape), expected[tensor.name])
        assert reader.sha256() == hashlib.sha256((directory / file.name).read_bytes()).hexdigest()


def test_a_disk_that_fails_meanwhile_is_an_error_that_names_the_file(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unplugged(FileIO):
        def readinto(self, buffer: Any) -> int:
            if len(buffer) > 100_000:  # beyond the rows that are requested below
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return super().readinto(buffer)

    monkeypatch.setattr("quant.files.reader.FileIO", Unplugged)
    file = read_source(directory)[0]
    with SourceReader(file, directory / file.name) as reader:
        reader.rows(file.tensors[0], slice(0, 3))
        with pytest.raises(SourceError, match=f"`{file.name}` cannot be read"):
            reader.sha256()


def test_what_is_skipped_is_hashed_too(directory: Path) -> None:
    file = read_source(directory)[0]
    with SourceReader(file, directory / file.name) as reader:
        reader.rows(file.tensors[3], slice(0, 1))
        assert reader.sha256() == hashlib.sha256((directory / file.name).read_bytes()).hexdigest()


def test_a_wrong_hash_is_an_error(directory: Path) -> None:
    file = replace(read_source(directory)[0], sha256="0" * 64)
    with SourceReader(file, directory / file.name) as reader, pytest.raises(SourceError, match="SHA-256"):
        reader.sha256()


def test_a_file_that_shrank_since_it_was_planned_is_an_error(directory: Path) -> None:
    file = read_source(directory)[0]
    path = directory / file.name
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(SourceError, match="bytes instead of"):
        SourceReader(file, path)


def test_a_file_that_shrinks_while_it_is_read_is_an_error(directory: Path) -> None:
    file = read_source(directory)[0]
    with SourceReader(file, directory / file.name) as reader:
        os.truncate(directory / file.name, file.nbytes - 2)
        with pytest.raises(SourceError, match="ends early"):
            reader.sha256()


def test_a_file_that_is_gone_is_an_error(directory: Path) -> None:
    file = read_source(directory)[0]
    with pytest.raises(SourceError, match="cannot be read"):
        SourceReader(file, directory / "elsewhere")


@pytest.mark.parametrize("name", ["model-00003-of-00003.safetensors", INDEX_FILE])
def test_a_file_that_may_not_be_read_is_not_to_be_downloaded_again(directory: Path, name: str) -> None:
    last = read_source(directory)[-1]
    (directory / name).chmod(0)
    with as_anyone(), pytest.raises(SourceError, match="cannot be read .Permission denied") as raised:
        read_source(directory)
    assert (f"`{directory / name}`" in raised.value.message, raised.value.hint) == (True, "check its permissions")
    if name == last.name:
        with as_anyone(), pytest.raises(SourceError) as raised:
            SourceReader(last, directory / name)
        assert raised.value.hint == "check its permissions"


def header(entries: dict[str, Any]) -> bytes:
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text


def entry(start: int, end: int, **changes: Any) -> dict[str, Any]:
    return {"dtype": "U8", "shape": [end - start], "data_offsets": [start, end]} | changes


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 8,
        (1 << 40).to_bytes(8, "little"),
        (50).to_bytes(8, "little") + b"{}",
        header({"a": entry(0, 9)}),
        header({"a": entry(1, 4)}),
        header({"a": entry(0, 2), "b": entry(1, 3)}),
        header({"a": entry(0, 2), "b": entry(3, 4)}),
        header({"a": entry(0, 4, dtype="Q4")}),
        header({"a": entry(0, 4, shape=[5])}),
        header({"a": entry(0, 4, shape=[-4])}),
        header({"a": entry(0, 4, shape="4")}),
        header({"a": entry(0, 4, data_offsets=[4])}),
        header({"a": entry(0, 4, data_offsets=[0.0, 4])}),
        header({"a": entry(0, 4, data_offsets=[0, 4.0])}),
        header({"a": entry(0, 10**4300 - 1)}),
        header({"a": 7}),
        header([]),  # type: ignore[arg-type]
        b"\x04\0\0\0\0\0\0\0\xff\xff\xff\xff",
        (100_000).to_bytes(8, "little") + b"[" * 100_000,
    ],
    ids=range(20),
)
def test_impossible_headers_are_named_errors(content: bytes) -> None:
    with pytest.raises(SourceError, match="bad.safetensors") as caught:
        parse_header("bad.safetensors", content, len(content) + 4)
    assert not re.search("Error|object|None", caught.value.message), "Python's own words"


@pytest.mark.parametrize("dtype", ["U32", "F8_E8M0"])
def test_a_type_that_is_not_read_is_named_and_is_no_damage(dtype: str) -> None:
    """MLX packs 4-bit weights into U32, and the scales of MXFP8 are F8_E8M0."""
    content = header({"a": entry(0, 4, dtype=dtype)})
    with pytest.raises(SourceError, match=f"`a` in `other.safetensors` has the type {dtype}, which") as caught:
        parse_header("other.safetensors", content, len(content) + 4)
    assert caught.value.hint == "use the original weights (BF16, F16 or F32)"


@pytest.mark.parametrize("length", [0, 1, 100_000_001, 1 << 63])
def test_no_more_is_read_of_a_header_than_one_can_have(length: int) -> None:
    asked: list[int] = []

    def read(count: int) -> bytes:
        asked.append(count)
        return length.to_bytes(8, "little")[:count]

    with pytest.raises(SourceError, match="`bad.safetensors` is not a safetensors file"):
        read_start("bad.safetensors", read)
    assert asked == [8]


def test_a_clone_without_git_lfs_is_named(directory: Path) -> None:
    (directory / "model-00003-of-00003.safetensors").write_bytes(
        b"version https://git-lfs.github.com/spec/v1\nsize 9\n"
    )
    with pytest.raises(SourceError, match="model-00003.*pointer of Git LFS") as raised:
        read_source(directory)
    assert "`git lfs pull`" in (raised.value.hint or "")


def test_a_missing_file_is_named(directory: Path) -> None:
    (directory / "model-00003-of-00003.safetensors").unlink()
    with pytest.raises(SourceError, match="model-00003"):
        read_source(directory)


def test_an_empty_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="neither"):
        read_source(tmp_path)


@pytest.mark.parametrize(
    "index",
    [
        *("{", "[]", '{"weight_map": {}}', '{"weight_map": {"a": "../x"}}', '{"weight_map": {"a": 1}}', "[" * 100_000),
        *(r'{"weight_map": {"a": "x\u0000"}}', r'{"weight_map": {"a": "x\ud800"}}'),
        *('{"weight_map": ["a"]}', '{"weight_map": {"a": ["x"]}}', '{"weight_map": {"a": "/x", "b": 1}}'),
    ],
    ids=lambda index: index[:40],
)
def test_a_damaged_index_is_an_error(directory: Path, index: str) -> None:
    (directory / "model.safetensors.index.json").write_text(index)
    with pytest.raises(SourceError, match="index.json` is damaged") as caught:
        read_source(directory)
    assert not re.search("Error|object|None", caught.value.message), "Python's own words"


@pytest.mark.parametrize(
    "name", ["model.safetensors", "a b", "LICENSE\u00a0copy", "モデル.safetensors", "...", "x" * 255]
)
def test_names_of_files(name: str) -> None:
    assert is_file_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "a/b", "/a", "a\\b", "C:a", "a\0", "a\n", "\x1f", "\x7f", "\x9f", "\ud800", "\udfff"),
        *("é" * 128, None, 1, ["a"]),
    ],
)
def test_what_is_no_name_of_a_file(name: object) -> None:
    assert not is_file_name(name)


def test_an_index_that_lists_what_no_file_holds_is_an_error(directory: Path) -> None:
    path = directory / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["ghost"] = "model-00001-of-00003.safetensors"
    path.write_text(json.dumps(index))
    with pytest.raises(SourceError, match="ghost"):
        read_source(directory)


def test_a_tensor_in_two_files_is_an_error(directory: Path) -> None:
    name = "model-00002-of-00003.safetensors"
    tensors = load((directory / name).read_bytes()) | {"model.decoder.norm.weight": torch.zeros(1)}
    save_file(tensors, directory / name)
    with pytest.raises(SourceError, match="same name"):
        read_source(directory)


def test_a_tensor_with_an_empty_axis_is_read(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(3, 0), "b": torch.ones(2)}, tmp_path / "model.safetensors")
    (file,) = read_source(tmp_path)
    with SourceReader(file, tmp_path / file.name) as reader:
        found = {
            tensor.name: [reader.rows(tensor, part) for part in row_slices(tensor.shape, tensor.itemsize)]
            for tensor in file.tensors
        }
    assert [rows.shape for rows in found["a"]] == [(3, 0)]
    assert torch.cat(found["b"]).flatten().tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("names", "entry"),
    [
        ((), None),
        (("config.json",), None),
        (("model.safetensors.index.json",), "model.safetensors.index.json"),
        (("model.safetensors.index.json", "model.safetensors"), "model.safetensors"),
        (("model.safetensors",), "model.safetensors"),
    ],
)
def test_a_single_file_comes_before_an_index(tmp_path: Path, names: tuple[str, ...], entry: str | None) -> None:
    for name in names:
        (tmp_path / name).touch()
    assert entry_file(names) == entry_file(tmp_path) == entry


def test_a_manifest_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "quant.json").touch()
    os.truncate(tmp_path / "quant.json", MAX_HEADER + 1)
    with pytest.raises(DamagedError, match="is larger than any manifest"):
        read_manifest(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such pipes")
def test_a_pipe_in_the_place_of_a_manifest_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "quant.json")
    with pytest.raises(DamagedError, match=r"quant\.json` is not a file"):
        read_manifest(tmp_path)
