"""What a repository of the Hub holds, as far as its `config.json`, its index and the headers of weight files tell.

Knows the layout of a checkpoint; fetches no weights but the ends of some, and keeps nothing of what it reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from localdiff.checkpoint_files import CONFIG
from localdiff.errors import WeightsError
from localdiff.hub.cache import delete_hint
from localdiff.hub.problems import UnreachableError
from localdiff.hub.repository import NoRangesError, Repository
from localdiff.load.skeleton import END
from localdiff.machine.abandonable import each
from localdiff.model.config import MODEL_TYPE
from quant.errors import SourceError
from quant.files.source import (
    HINT,
    INDEX_FILE,
    SINGLE_FILE,
    SourceFile,
    StoredTensor,
    entry_file,
    header_length,
    parse_header,
    parse_index,
)

HEADER_GUESS = 100_000
"""Bytes to request at first; the header of a published file has about 30,000."""
_CONNECTIONS = 4


def model_config(reference: str, content: bytes) -> Mapping[str, Any]:
    """A `config.json`, parsed.

    Raises:
        WeightsError: it is not a JSON object, or belongs to another kind of model.
    """
    try:
        config = json.loads(content.decode("utf-8"))
        kind = config.get("model_type")
    except (ValueError, AttributeError, RecursionError) as error:
        raise WeightsError(f"`{CONFIG}` of `{reference}` is not a JSON object", "fetch it again") from error
    if kind != MODEL_TYPE:
        unnamed = f"`{CONFIG}` of `{reference}` has no `model_type`"
        message = unnamed if kind is None else f"`{reference}` is a `{kind}` model, not a `{MODEL_TYPE}`"
        raise WeightsError(message, "localdiff reads DiffusionGemma models only")
    return dict(config)


def weight_map(repository: Repository) -> Mapping[str, str]:
    """The index's map from tensor to file; empty where a single file holds all tensors, as in a directory.

    Raises:
        SourceError: the index is damaged.
    """
    if entry_file(repository.files) == INDEX_FILE:
        return parse_index(repository.read(INDEX_FILE))
    return {}


def headers(repository: Repository, names: Iterable[str]) -> tuple[SourceFile, ...]:
    """Weight files of a repository, described by their headers, which are fetched a few at a time.

    Ctrl-C does not wait for requests in progress: a server that does not answer would delay it by half a minute.

    Raises:
        SourceError: a header is damaged.
        WeightsError: access is refused, or the network failed.
    """
    return each(lambda name: _header(repository, name), names, threads=_CONNECTIONS)


def tensor_ends(repository: Repository, tensors: Iterable[StoredTensor]) -> dict[str, tuple[bytes, bytes]]:
    """The first and the last elements of tensors, by name; none where the server cannot send a part of a file.

    Raises:
        WeightsError: access is refused, or the network failed.
    """

    def read(tensor: StoredTensor) -> tuple[str, tuple[bytes, bytes]] | None:
        nbytes = min(tensor.nbytes, END * tensor.itemsize)
        try:
            first = repository.read_part(tensor.file, nbytes, tensor.start)
            last = repository.read_part(tensor.file, nbytes, tensor.start + tensor.nbytes - nbytes)
        except NoRangesError:
            return None
        return tensor.name, (first, last)

    return dict(found for found in each(read, tensors, threads=_CONNECTIONS) if found is not None)


def missing_files(repository: Repository, names: Sequence[str]) -> WeightsError:
    """The error that a checkpoint is incomplete without these files."""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    if repository.offline_reason is not None:
        return UnreachableError(
            f"`{names[0]}`{more} of `{repository.name}` is not here, and cannot be fetched",
            repository.offline_reason.hint,
        )
    return WeightsError(
        f"`{repository.name}` has no `{names[0]}`, so it is not a model that localdiff can read",
        f"weights are `{SINGLE_FILE}`, or `{INDEX_FILE}` and the files that it names",
    )


def _header(repository: Repository, name: str) -> SourceFile:
    file = repository.files[name]
    try:
        start = repository.read_part(name, HEADER_GUESS)
        header_end = 8 + header_length(name, start)
        if len(start) < min(header_end, file.nbytes):
            start = repository.read_part(name, header_end)
        tensors = parse_header(name, start, file.nbytes)
    except SourceError as error:
        if file.local_path is None or error.hint != HINT:
            raise
        raise SourceError(error.message, delete_hint(file.local_path)) from error
    return SourceFile(name=name, nbytes=file.nbytes, sha256=file.sha256, tensors=tensors)
