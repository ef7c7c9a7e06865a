"""`quant.json`: what a quantized directory holds and where it came from.

Knows the schema of `docs/format.md` and nothing about how the content is made. A manifest is text that may have been
downloaded: everything in it is checked before it is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from quant.codecs import CODECS
from quant.codecs.codec import codes_shape, scales_shape
from quant.dtypes import HEADER_DTYPES, HEADER_NAMES
from quant.errors import DamagedError, FormError, reason
from quant.files.source import MAX_BYTES, MAX_HEADER, HeaderEntry, is_file_name
from quant.names import MANIFEST_FILE
from quant.recipe import Recipe, Rule

FORMAT = "localdiff-quant"
VERSION = 2
FIRST_ENCODING = 1
ENCODING = 1
"""Raise this whenever the same weights and recipe give different shards that readers of `VERSION` still read: after a
change to the fit of scales, the rounding or the layout of a shard. Jobs and damaged outputs with another number are not
continued, since their shards would not match; those of another version of the program are."""
_HASH = re.compile(r"[0-9a-f]{64}")
_HINT = "rebuild it with the `localdiff quantize` command that made it, and `--force`"


@dataclass(frozen=True, kw_only=True, slots=True)
class FileEntry:
    """A file's size and SHA-256."""

    nbytes: int
    sha256: str

    @classmethod
    def of(cls, content: bytes) -> Self:
        """The entry of a file with this content."""
        return cls(nbytes=len(content), sha256=hashlib.sha256(content).hexdigest())

    def to_json(self) -> dict[str, Any]:
        return {"bytes": self.nbytes, "sha256": self.sha256}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        if not 0 <= value["bytes"] <= MAX_BYTES or not _HASH.fullmatch(value["sha256"]):
            raise FormError("an entry has an impossible value")
        return cls(nbytes=int(value["bytes"]), sha256=value["sha256"])


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardEntry(FileEntry):
    """A shard's size, SHA-256 and the source file it was made from."""

    source: str

    def to_json(self) -> dict[str, Any]:
        return {**FileEntry.to_json(self), "source": self.source}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        file = FileEntry.from_json(value)
        return cls(nbytes=file.nbytes, sha256=file.sha256, source=_file_name(value["source"]))


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorEntry:
    """How a tensor of the source is stored.

    Attributes:
        scheme: `keep` or a codec's name.
        shape: shape in the source.
        dtype: type in the source, as a safetensors word.
        shard: file that holds it.
        error: relative RMSE of the decoded values.
    """

    scheme: str
    shape: tuple[int, ...]
    dtype: str
    shard: str
    error: float

    def parts(self, name: str) -> tuple[HeaderEntry, ...]:
        """What is stored for the tensor `name`."""
        return stored_parts(name, self.scheme, self.shape, self.dtype)

    def to_json(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        shape = tuple(int(size) for size in value["shape"])
        if value["scheme"] not in ("keep", *CODECS) or value["dtype"] not in HEADER_DTYPES or min(shape, default=0) < 0:
            raise FormError("an entry has an impossible value")
        return cls(
            scheme=value["scheme"],
            shape=shape,
            dtype=value["dtype"],
            shard=_file_name(value["shard"]),
            error=float(value["error"]),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """All of `quant.json`; the attributes are its keys. A file without `encoding` has the first."""

    tool: str
    model: str | None
    revision: str | None
    sources: Mapping[str, FileEntry]
    recipe: Recipe
    tensors: Mapping[str, TensorEntry]
    dropped: tuple[str, ...]
    shards: Mapping[str, ShardEntry]
    files: Mapping[str, FileEntry]
    encoding: int = FIRST_ENCODING

    @property
    def nbytes(self) -> int:
        """Bytes of all shards."""
        return sum(shard.nbytes for shard in self.shards.values())

    def to_text(self) -> str:
        """The content of the file."""
        content: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "tool": self.tool,
            "source": {"model": self.model, "revision": self.revision, "files": _json(self.sources)},
            "recipe": {
                "name": self.recipe.name,
                "rules": [[rule.pattern, rule.scheme] for rule in self.recipe.rules],
            },
            "tensors": _json(self.tensors),
            "dropped": sorted(self.dropped),
            "shards": _json(self.shards),
            "files": _json(self.files),
        }
        if self.encoding != FIRST_ENCODING:
            content["encoding"] = self.encoding
        text = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        # `checksum` sorts first, so its line goes on top: serializing everything again would take as long once more.
        checksum = f'  "checksum": "{hashlib.sha256(text.encode()).hexdigest()}",\n'
        return text.replace("{\n", "{\n" + checksum, 1)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read the content of the file.

        Raises:
            DamagedError: the text is not what `to_text` writes, or is of another version.
        """
        try:
            content = json.loads(text)
            if content["format"] != FORMAT or content["version"] != VERSION:
                raise DamagedError(
                    f"`{MANIFEST_FILE}` has format {content['format']} {content['version']}, not {FORMAT} {VERSION}",
                    "it was written by another version of localdiff; " + _HINT,
                )
            manifest = cls._from_json(content)
            is_unchanged = manifest.to_text() == text
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise DamagedError(f"`{MANIFEST_FILE}` is damaged ({reason(error)})", _HINT) from error
        if not is_unchanged:
            raise DamagedError(f"`{MANIFEST_FILE}` is damaged (its checksum does not match)", _HINT)
        return manifest

    @classmethod
    def _from_json(cls, content: dict[str, Any]) -> Self:
        source, recipe = content["source"], content["recipe"]
        rules = tuple(Rule(pattern=_string(pattern), scheme=scheme) for pattern, scheme in recipe["rules"])
        encoding = content.get("encoding", FIRST_ENCODING)
        if type(encoding) is not int:
            raise FormError("its encoding is not a number")
        manifest = cls(
            encoding=encoding,
            tool=_string(content["tool"]),
            model=None if source["model"] is None else _string(source["model"]),
            revision=None if source["revision"] is None else _string(source["revision"]),
            sources={_file_name(name): FileEntry.from_json(entry) for name, entry in source["files"].items()},
            recipe=Recipe(name=_name(recipe["name"]), rules=rules),
            tensors={name: TensorEntry.from_json(entry) for name, entry in content["tensors"].items()},
            dropped=tuple(map(_string, content["dropped"])),
            shards={_file_name(name): ShardEntry.from_json(entry) for name, entry in content["shards"].items()},
            files={_file_name(name): FileEntry.from_json(entry) for name, entry in content["files"].items()},
        )
        if missing := {entry.shard for entry in manifest.tensors.values()} - manifest.shards.keys():
            raise FormError(f"{min(missing)!r} is not among the shards")
        return manifest


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a quantized directory.

    Raises:
        DamagedError: there is none, or it is damaged.
    """
    path = directory / MANIFEST_FILE
    if os.path.exists(path) and not os.path.isfile(path):  # opening a pipe would wait
        raise DamagedError(f"`{path}` is not a file", _HINT)
    try:
        if path.stat().st_size > MAX_HEADER:
            raise DamagedError(f"`{path}` is larger than any manifest", _HINT)
        return Manifest.from_text(path.read_bytes().decode("utf-8"))
    except FileNotFoundError as error:
        raise DamagedError(f"`{directory}` has no `{MANIFEST_FILE}`: unfinished, or not quantized", _HINT) from error
    except OSError as error:
        raise DamagedError(
            f"`{path}` cannot be read ({error.strerror})", "look at the disk and its permissions"
        ) from error
    except UnicodeDecodeError as error:
        raise DamagedError(f"`{path}` is damaged (it is not text)", _HINT) from error


def stored_parts(name: str, scheme: str, shape: tuple[int, ...], dtype: str) -> tuple[HeaderEntry, ...]:
    """The parts that a tensor is stored as.

    Raises:
        ValueError: its shape does not divide into groups.
    """
    if scheme not in CODECS:
        return (HeaderEntry(name=name, dtype=dtype, shape=shape),)
    codec = CODECS[scheme]
    return (
        HeaderEntry(name=f"{name}.codes", dtype=HEADER_NAMES[codec.codes_dtype], shape=codes_shape(codec, shape)),
        HeaderEntry(name=f"{name}.scales", dtype="BF16", shape=scales_shape(shape)),
    )


def _json(entries: Mapping[str, Any]) -> dict[str, Any]:
    return {name: entry.to_json() for name, entry in entries.items()}


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise FormError(f"{value!r:.60} is not text")
    return value


def _name(value: Any) -> str:
    """A name that will be shown: it must have no control codes that a terminal would act on."""
    if not _string(value).isprintable():
        raise FormError(f"{value!r:.60} is not a name")
    return str(value)


def _file_name(name: Any) -> str:
    if not is_file_name(name):
        raise FormError(f"{name!r:.60} is not a file name")
    return str(name)
