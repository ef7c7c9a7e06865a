"""The manifest: written, read back, and trusted only as it was written."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quant.errors import DamagedError
from quant.files.manifest import Manifest, read_manifest, stored_parts
from quant.files.source import HeaderEntry
from tests.checkpoints.manifest import HASH, MANIFEST


def test_reads_what_it_writes() -> None:
    assert Manifest.from_text(MANIFEST.to_text()) == MANIFEST


def test_has_the_specified_keys() -> None:
    content = json.loads(MANIFEST.to_text())
    assert set(content) == {
        "format", "version", "tool", "source", "recipe", "tensors", "dropped", "shards", "files", "checksum"
    }  # fmt: skip
    assert content["tensors"]["a.weight"] == {
        "scheme": "nf4", "shape": [2, 64], "dtype": "BF16", "shard": "s.safetensors", "error": 0.083
    }  # fmt: skip
    assert ["model.decoder.layers.29.experts.*_proj", "int8"] in content["recipe"]["rules"]


def test_every_flipped_bit_of_it_is_found() -> None:
    content = MANIFEST.to_text().encode()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1 << position % 8
        with pytest.raises(DamagedError, match=r"quant\.json"):
            read_bytes(bytes(damaged))


def read_bytes(content: bytes) -> Manifest:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DamagedError("`quant.json` is not text") from error
    return Manifest.from_text(text)


def signed(content: dict[str, Any]) -> str:
    """The text of a manifest with this content and a matching checksum, as an attacker would write it."""
    unsigned = {key: value for key, value in content.items() if key != "checksum"}

    def text(values: dict[str, Any]) -> str:
        return json.dumps(values, indent=2, sort_keys=True, ensure_ascii=False) + "\n"

    return text(unsigned | {"checksum": hashlib.sha256(text(unsigned).encode()).hexdigest()})


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("version",), 3),
        (("format",), "gguf"),
        (("encoding",), "2"),
        (("shards",), {"../s": {"bytes": 1, "sha256": HASH, "source": "x"}}),
        (("shards", "s.safetensors", "source"), "a/b"),
        (("shards", "s.safetensors", "sha256"), "00"),
        (("shards", "s.safetensors", "bytes"), -1),
        (("shards", "s.safetensors", "bytes"), 10**309),
        (("tensors", "b", "scheme"), "q2"),
        (("tensors", "b", "dtype"), "Q4"),
        (("tensors", "b", "shape"), [2, -1]),
        (("tensors", "b", "shard"), ".."),
        (("tensors",), []),
        (("files",), {"/etc/passwd": {"bytes": 1, "sha256": HASH}}),
        (("recipe", "rules"), [["*", "q2"]]),
        (("source",), None),
        (("source", "model"), 5),
        (("source", "revision"), ["main"]),
        (("tool",), ["localdiff"]),
        (("recipe", "name"), ["nf4"]),
        (("recipe", "name"), "4bit\x1b[2J"),
        (("recipe", "rules"), [[1, "keep"]]),
        (("dropped",), [1]),
        (("dropped",), ["a", 1]),
        (("tensors", "b", "shard"), "elsewhere.safetensors"),
    ],
)
def test_impossible_values_are_refused_under_a_checksum_that_matches(keys: tuple[str, ...], value: Any) -> None:
    content = json.loads(MANIFEST.to_text())
    assert signed(content) == MANIFEST.to_text()
    inner = content
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    with pytest.raises(DamagedError, match=r"quant\.json"):
        Manifest.from_text(signed(content))


def test_another_version_is_told_from_damage() -> None:
    with pytest.raises(DamagedError, match="has format localdiff-quant 1, not localdiff-quant 2") as caught:
        Manifest.from_text(signed(json.loads(MANIFEST.to_text()) | {"version": 1}))
    assert "another version of localdiff" in (caught.value.hint or "")


def test_text_that_no_file_holds_is_refused() -> None:
    content = json.loads(MANIFEST.to_text()) | {"tool": "\ud800"}
    with pytest.raises(DamagedError, match=r"quant\.json` is damaged"):
        Manifest.from_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(DamagedError):
        Manifest.from_text("[" * 100_000)


def test_a_directory_without_a_manifest_is_unfinished(tmp_path: Path) -> None:
    with pytest.raises(DamagedError, match="unfinished"):
        read_manifest(tmp_path)


def test_reads_the_file_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "quant.json").write_bytes(MANIFEST.to_text().encode())
    assert read_manifest(tmp_path) == MANIFEST


def test_bytes_are_those_of_all_shards() -> None:
    two = replace(MANIFEST, shards=dict.fromkeys(("s", "t"), MANIFEST.shards["s.safetensors"]))
    assert two.nbytes == 198


def test_names_of_stored_parts() -> None:
    assert stored_parts("x.weight", "nf4", (2, 8, 128), "BF16") == (
        HeaderEntry(name="x.weight.codes", dtype="U8", shape=(2, 8, 64)),
        HeaderEntry(name="x.weight.scales", dtype="BF16", shape=(2, 8, 2)),
    )
    assert stored_parts("x", "int8", (8, 128), "F32") == (
        HeaderEntry(name="x.codes", dtype="I8", shape=(8, 128)),
        HeaderEntry(name="x.scales", dtype="BF16", shape=(8, 2)),
    )
    assert stored_parts("x", "keep", (3,), "F32") == (HeaderEntry(name="x", dtype="F32", shape=(3,)),)
