"""Checkpoint: what it reads, that it reads lazily, and the message for whatever can be wrong with a directory."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from localdiff.errors import WeightsError
from localdiff.load.checkpoint import Checkpoint
from tests.fakes.permissions import as_anyone

TENSORS = {
    "a.weight": torch.arange(6, dtype=torch.float32).view(2, 3),
    "b.weight": torch.ones(4, dtype=torch.bfloat16),
    "c": torch.full((1,), 0.5),
}

REBUILT = "the `localdiff quantize` that made it rebuilds what is damaged, from the same source"


@pytest.fixture
def single(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text('{"model_type": "diffusion_gemma"}')
    save_file(TENSORS, tmp_path / "model.safetensors")
    return tmp_path


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    names = sorted(TENSORS)
    shards = {"model-1-of-2.safetensors": names[:2], "model-2-of-2.safetensors": names[2:]}
    for shard, held in shards.items():
        save_file({name: TENSORS[name] for name in held}, tmp_path / shard)
    write_index(tmp_path, {name: shard for shard, held in shards.items() for name in held})
    return tmp_path


def write_index(directory: Path, weight_map: Any) -> None:
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def write_raw(path: Path, header: dict[str, Any], data: bytes) -> None:
    """A safetensors file byte by byte, for headers that the library would not write."""
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def test_a_file_that_may_not_be_read_is_not_called_damaged(sharded: Path) -> None:
    for file in ("model-2-of-2.safetensors", "model.safetensors.index.json", "config.json"):
        (sharded / file).chmod(0)
        with as_anyone(), pytest.raises(WeightsError) as raised:
            Checkpoint(sharded)
        (sharded / file).chmod(0o644)
        assert raised.value.message == f"`{sharded / file}` cannot be read: Permission denied"
        assert raised.value.hint == "check its permissions"
    Checkpoint(sharded)


def test_a_folder_whose_name_is_not_utf_8_is_not_called_damaged(
    single: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("names") / os.fsdecode(b"caf\xe9")
    try:
        single.rename(folder)
    except OSError:
        pytest.skip("this file system has names in UTF-8 only")
    assert "is not a name in UTF-8" in refusal(folder).message
    monkeypatch.chdir(folder)
    assert Checkpoint(".").names() == tuple(sorted(TENSORS))


def refusal(directory: Path) -> WeightsError:
    with pytest.raises(WeightsError) as caught:
        Checkpoint(directory)
    assert caught.value.exit_code == 3
    assert caught.value.hint
    assert not caught.value.message.endswith(".")
    return caught.value


@pytest.mark.parametrize("layout", ["single", "sharded"])
def test_reads_names_shapes_types_and_values(layout: str, request: pytest.FixtureRequest) -> None:
    checkpoint = Checkpoint(request.getfixturevalue(layout))
    assert checkpoint.names() == ("a.weight", "b.weight", "c")
    assert checkpoint.shape("a.weight") == (2, 3)
    assert checkpoint.dtype("b.weight") is torch.bfloat16
    for name, expected in TENSORS.items():
        assert torch.equal(checkpoint.tensor(name), expected)


def test_reads_the_json_files(single: Path) -> None:
    assert Checkpoint(single).config() == {"model_type": "diffusion_gemma"}
    assert Checkpoint(single).generation_config() == {}
    (single / "generation_config.json").write_text('{"t_max": 0.8}')
    assert Checkpoint(single).generation_config() == {"t_max": 0.8}


def test_accepts_a_path_as_text(single: Path) -> None:
    assert Checkpoint(str(single)).directory == single


def test_tensors_are_mapped_and_writing_to_one_changes_no_file(single: Path) -> None:
    before = (single / "model.safetensors").read_bytes()
    checkpoint = Checkpoint(single)
    tensor = checkpoint.tensor("a.weight")
    assert tensor.data_ptr() == checkpoint.tensor("a.weight").data_ptr()
    tensor += 1
    assert (single / "model.safetensors").read_bytes() == before


def test_no_tensor_is_read_before_it_is_asked_for(single: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    opened = Checkpoint._open

    class Spy:
        def __init__(self, handle: Any) -> None:
            self.keys, self.get_slice, self._handle = handle.keys, handle.get_slice, handle

        def get_tensor(self, name: str) -> torch.Tensor:
            asked.append(name)
            tensor: torch.Tensor = self._handle.get_tensor(name)
            return tensor

    def spying(self: Checkpoint, file: str) -> list[str]:
        names = opened(self, file)
        self._files[file] = Spy(self._files[file])
        return names

    monkeypatch.setattr(Checkpoint, "_open", spying)
    checkpoint = Checkpoint(single)
    for name in checkpoint.names():
        checkpoint.shape(name), checkpoint.dtype(name)
    assert asked == []
    checkpoint.tensor("c")
    assert asked == ["c"]


def test_a_tensor_at_an_odd_address_is_copied_to_an_even_one(single: Path) -> None:
    values = torch.tensor([1.0, -2.0, 3.0, 0.5], dtype=torch.bfloat16)
    header: dict[str, Any] = {
        "__metadata__": {"pad": ""},
        "odd": {"dtype": "I8", "shape": [1], "data_offsets": [0, 1]},
        "w": {"dtype": "BF16", "shape": [4], "data_offsets": [1, 9]},
    }
    if len(json.dumps(header)) % 2:  # the data follows the header: it begins at an even offset, and `w` at an odd one
        header["__metadata__"]["pad"] = "x"
    write_raw(single / "model.safetensors", header, b"\0" + values.view(torch.uint8).numpy().tobytes())
    checkpoint = Checkpoint(single)
    assert checkpoint._files["model.safetensors"].get_tensor("w").data_ptr() % 2 == 1
    assert checkpoint.tensor("w").data_ptr() % 2 == 0
    assert torch.equal(checkpoint.tensor("w"), values)


def test_tensors_that_the_index_does_not_name_are_still_listed(sharded: Path) -> None:
    index = json.loads((sharded / "model.safetensors.index.json").read_text())
    del index["weight_map"]["b.weight"]
    write_index(sharded, index["weight_map"])
    assert Checkpoint(sharded).names() == ("a.weight", "b.weight", "c")


def test_of_a_tensor_in_two_shards_the_one_that_the_index_names_counts(sharded: Path) -> None:
    save_file({"b.weight": torch.zeros(4), "c": TENSORS["c"]}, sharded / "model-2-of-2.safetensors")
    assert torch.equal(Checkpoint(sharded).tensor("b.weight"), TENSORS["b.weight"])


def test_unknown_name(single: Path) -> None:
    checkpoint = Checkpoint(single)
    for ask in (checkpoint.shape, checkpoint.dtype, checkpoint.tensor):
        with pytest.raises(WeightsError, match="no tensor `nope`"):
            ask("nope")


def test_a_type_that_is_not_read(single: Path) -> None:
    header = {"w": {"dtype": "U16", "shape": [1], "data_offsets": [0, 2]}}
    write_raw(single / "model.safetensors", header, b"\0\0")
    with pytest.raises(WeightsError, match="`w` has the type U16"):
        Checkpoint(single).tensor("w")


def test_no_such_directory(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "nowhere").message


def test_a_file_in_place_of_the_directory(single: Path) -> None:
    assert "is not a directory" in refusal(single / "config.json").message


def test_no_config(single: Path) -> None:
    (single / "config.json").unlink()
    assert "has no `config.json`" in refusal(single).message
    assert "give the directory" in (refusal(single).hint or "")
    (single / "quant.json").touch()
    assert "`localdiff quantize` that made it rebuilds" in (refusal(single).hint or "")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1]", '"text"', "\udcff", "[" * 100_000, "1" * 5_000],
    ids=["empty", "open", "list", "text", "no-text", "deep", "long-number"],
)
def test_config_that_is_not_a_json_object(single: Path, text: str) -> None:
    (single / "config.json").write_bytes(text.encode(errors="surrogateescape"))
    assert "config.json" in refusal(single).message


def test_generation_config_that_is_not_json(single: Path) -> None:
    (single / "generation_config.json").write_text("{,}")
    with pytest.raises(WeightsError, match="cannot be read as JSON"):
        Checkpoint(single).generation_config()


def test_no_weights(single: Path) -> None:
    (single / "model.safetensors").unlink()
    assert "has no weights" in refusal(single).message


@pytest.mark.parametrize("kept", [0, 4, 30, -1])
def test_truncated_weights(single: Path, kept: int) -> None:
    path = single / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    error = refusal(single)
    assert "damaged or cut short" in error.message
    assert str(path) in error.message


def test_quantized_weights_are_made_again_and_not_downloaded(single: Path) -> None:
    weights = single / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert "download" in (refusal(single).hint or "")
    (single / "quant.json").touch()
    assert refusal(single).hint == REBUILT
    weights.unlink()
    assert refusal(single).hint == REBUILT


def test_weights_that_are_no_safetensors_file(single: Path) -> None:
    (single / "model.safetensors").write_bytes(b"<!doctype html>\n" * 4)
    assert "damaged or cut short" in refusal(single).message


def test_a_clone_without_git_lfs_is_not_damaged(single: Path) -> None:
    (single / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n")
    (single / "quant.json").touch()  # not even a quantized model is to be made again
    error = refusal(single)
    assert "is only a pointer of Git LFS" in error.message
    assert "`git lfs pull`" in (error.hint or "")


def test_truncated_shard(sharded: Path) -> None:
    path = sharded / "model-2-of-2.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert "model-2-of-2.safetensors" in refusal(sharded).message


def test_missing_shard(sharded: Path) -> None:
    (sharded / "model-1-of-2.safetensors").unlink()
    message = refusal(sharded).message
    assert "model-1-of-2.safetensors" in message
    assert "is missing" in message


def test_shard_that_lacks_what_the_index_lists(sharded: Path) -> None:
    shards = dict.fromkeys(TENSORS, "model-1-of-2.safetensors") | {"more": "model-2-of-2.safetensors"}
    write_index(sharded, shards)
    said = "`model-1-of-2.safetensors` lacks `c`, which `model.safetensors.index.json` lists"
    assert refusal(sharded).message == said


@pytest.mark.parametrize("content", ["[]", '{"weight_map": {"a.weight": "../x"}}'])
def test_a_damaged_index(sharded: Path, content: str) -> None:
    (sharded / "model.safetensors.index.json").write_text(content)
    assert "`model.safetensors.index.json` is damaged" in refusal(sharded).message


def test_a_folder_in_the_place_of_the_index(sharded: Path) -> None:
    (sharded / "model.safetensors.index.json").unlink()
    (sharded / "model.safetensors.index.json").mkdir()
    assert "model.safetensors.index.json` is not a file" in refusal(sharded).message


def test_a_pipe_in_the_place_of_the_index(sharded: Path) -> None:
    (sharded / "model.safetensors.index.json").unlink()
    os.mkfifo(sharded / "model.safetensors.index.json")
    assert "model.safetensors.index.json` is a device or a pipe" in refusal(sharded).message


def test_an_index_beside_a_single_file_is_not_looked_at(single: Path) -> None:
    os.mkfifo(single / "model.safetensors.index.json")
    assert Checkpoint(single).names() == tuple(sorted(TENSORS))


def test_a_damaged_index_of_quantized_weights_is_rebuilt_and_not_downloaded(sharded: Path) -> None:
    write_index(sharded, {})
    assert "download" in (refusal(sharded).hint or "")
    (sharded / "quant.json").touch()
    assert refusal(sharded).hint == REBUILT
