"""The origin of weights to be quantized: a directory on this machine, or a repository of the Hub.

Knows which files make up a checkpoint and how their headers are read; fetches no weights.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from localdiff.checkpoint_files import CONFIG, TEXT_FILES, read_small, require_readable
from localdiff.checkpoints.model_reference import resolve_local
from localdiff.checkpoints.weight_hashes import Show, hashes
from localdiff.errors import UsageError, WeightsError
from localdiff.fetching.contents import headers, missing_files, model_config, tensor_ends, weight_map
from localdiff.hub.listing import LEGAL_FILES, is_license, look_up
from localdiff.hub.repository import Repository
from localdiff.identity import DEMO
from localdiff.quoting import shell_word
from quant import MANIFEST_FILE
from quant.codecs.bitsandbytes_tensor import bitsandbytes_names
from quant.files.source import SourceFile, StoredTensor, check_complete, read_source, weight_files
from quant.recipe import Recipe

_MAX_CARD = 1_000_000
EMBEDDING = "model.decoder.embed_tokens.weight"


@dataclass(frozen=True, kw_only=True)
class Origin:
    """A checkpoint, as described by its headers.

    Attributes:
        reference: what the user called it.
        model: the same, without a path of this machine; see `name_of`.
        revision: the commit, for the Hub.
        config: its `config.json`.
        files: its weight files.
        small_files: the other files that belong in the output.
        read: returns the content of one of the small files.
        license: the id of its licence, or None where it is not stated.
        place: where it is: a directory, or a repository of the Hub.
    """

    reference: str
    model: str
    revision: str | None
    config: Mapping[str, Any]
    files: tuple[SourceFile, ...]
    small_files: tuple[str, ...]
    read: Callable[[str], bytes]
    license: str | None
    place: Path | Repository

    @property
    def directory(self) -> Path | None:
        """Where it is, if that is a directory."""
        return self.place if isinstance(self.place, Path) else None

    @property
    def repository(self) -> Repository | None:
        """Where it is, if that is the Hub."""
        return self.place if isinstance(self.place, Repository) else None

    @property
    def small_bytes(self) -> int:
        """Size of the other files."""
        if isinstance(self.place, Path):
            return sum((self.place / name).stat().st_size for name in self.small_files)
        return sum(self.place.files[name].nbytes for name in self.small_files)

    def local_path(self, file: SourceFile) -> Path | None:
        """The path of a weight file on this machine, if it is there."""
        return self.place / file.name if isinstance(self.place, Path) else self.place.files[file.name].local_path

    def hash_sources(self, names: Iterable[str], show: Show = lambda done, total: None) -> dict[str, str]:
        """SHA-256 of weight files of a directory, by name; those of the Hub have one in its listing."""
        return {} if self.directory is None else hashes(self.directory, names, show)

    def tensor_ends(self, names: Container[str]) -> dict[str, tuple[bytes, bytes]]:
        """Both ends of tensors of a repository, by name, as from `fetching.contents.tensor_ends`."""
        if self.repository is None:
            raise AssertionError("those of a directory are read where they are")
        tensors = [tensor for file in self.files for tensor in file.tensors if tensor.name in names]
        return tensor_ends(self.repository, tensors)


def find_origin(reference: str, recipe: Recipe, *, revision: str | None = None, offline: bool = False) -> Origin:
    """Find the model that a user names, and read its headers.

    Args:
        reference: `demo`, a directory or a Hub id.
        recipe: the recipe to apply; files that it drops altogether need not be here if the Hub is not asked.
        revision: branch, tag or commit of a Hub repository.
        offline: do not ask the Hub.

    Raises:
        WeightsError: it does not exist, access is refused, or it is no DiffusionGemma model.
        UnreachableError: it is not here, and the Hub may not or cannot be asked.
        UsageError: it is quantized already.
        SourceError: its weight files are damaged or incomplete.
    """
    local = resolve_local(reference, revision=revision)
    if local is not None:
        return _from_directory(reference, local.directory)
    return _from_hub(look_up(reference, revision=revision, offline=offline), recipe)


def _require_text_model(files: tuple[SourceFile, ...], reference: str) -> tuple[SourceFile, ...]:
    """The same files, if they hold a text model that is not quantized."""
    names = {tensor.name for file in files for tensor in file.tensors}
    if bitsandbytes_names(names):
        raise _already_quantized(reference)
    if EMBEDDING not in names:
        raise WeightsError(
            f"`{reference}` has no tensor `{EMBEDDING}`",
            "localdiff reads DiffusionGemma models in their published layout",
        )
    return files


def _from_directory(reference: str, directory: Path) -> Origin:
    names = sorted(path.name for path in directory.iterdir() if path.is_file())
    if MANIFEST_FILE in names:
        raise _already_quantized(reference)
    return Origin(
        reference=reference,
        model=name_of(reference, directory),
        revision=None,
        config=model_config(reference, read_text_file(directory, CONFIG)),
        files=_require_text_model(read_source(directory), reference),
        small_files=small_files(names),
        read=partial(read_text_file, directory),
        license=_license_of_card(directory / "README.md"),
        place=directory,
    )


def read_text_file(directory: Path, name: str) -> bytes:
    """The content of a file beside the weights of a directory.

    Raises:
        WeightsError: it cannot be read.
    """
    path, hint = directory / name, "give the directory that the checkpoint was saved to"
    require_readable(path)
    try:
        return read_small(path)
    except FileNotFoundError:
        raise WeightsError(f"`{directory}` has no `{name}`", hint) from None
    except OSError as error:
        raise WeightsError(f"`{path}` cannot be read: {error.strerror}", hint) from error


def _from_hub(repository: Repository, recipe: Recipe) -> Origin:
    if MANIFEST_FILE in repository.files:
        raise _already_quantized(repository.name)
    config = model_config(repository.name, repository.read(CONFIG))
    index = weight_map(repository)
    names = weight_files(index)
    there = [name for name in names if name in repository.files]
    dropped = {name: _dropped_file(name, index, recipe) for name in names if name not in repository.files}
    if absent := [name for name, file in dropped.items() if file is None]:
        raise missing_files(repository, absent)
    by_name = {file.name: file for file in (*headers(repository, there), *dropped.values()) if file is not None}
    files = tuple(by_name[name] for name in names)
    return Origin(
        reference=repository.name,
        model=repository.name,
        revision=repository.commit,
        config=config,
        files=_require_text_model(check_complete(files, index, repository.name), repository.name),
        small_files=small_files(repository.files),
        read=repository.read,
        license=repository.license,
        place=repository,
    )


def name_of(reference: str, directory: Path) -> str:
    """The name of a directory's weights for texts that must not have its path: `demo`, or the directory's name.

    A directory called demo becomes `./demo`: `demo` is only the model of this package, whose licence is known.
    """
    if reference == DEMO:
        return reference
    name = directory.resolve().name
    return f"./{name}" if name == DEMO else name


def _dropped_file(name: str, index: Mapping[str, str], recipe: Recipe) -> SourceFile | None:
    """A missing file, as described by the index, if the recipe drops everything in it; or None."""
    members = [tensor for tensor, file in index.items() if file == name]
    if not members:
        return None
    resolved = recipe.resolved(index)
    if any(resolved.scheme(tensor) != "drop" for tensor in members):
        return None
    tensors = tuple(StoredTensor(name=tensor, dtype="BF16", shape=(0,), file=name, start=0) for tensor in members)
    return SourceFile(name=name, nbytes=0, sha256=None, tensors=tensors)


def _already_quantized(reference: str) -> UsageError:
    return UsageError(
        f"`{reference}` is already quantized",
        f"`localdiff run -m {shell_word(reference)}` runs it; `localdiff quantize` starts from published weights",
    )


def small_files(names: Iterable[str]) -> tuple[str, ...]:
    """The files of a checkpoint that are copied unchanged, sorted."""
    return tuple(
        sorted(name for name in names if name in TEXT_FILES or any(fnmatchcase(name, legal) for legal in LEGAL_FILES))
    )


def _license_of_card(card: Path) -> str | None:
    """`license: WORD` at the head of a model card."""
    if not card.is_file():
        return None
    try:
        with card.open(encoding="utf-8") as file:
            lines = file.read(_MAX_CARD).split("---\n")
    except (OSError, UnicodeDecodeError):
        return None
    head = lines[1].splitlines() if len(lines) > 2 and not lines[0].strip() else []
    words = [line.partition(":")[2].strip() for line in head if line.startswith("license:")]
    return words[0] if words and is_license(words[0]) else None
