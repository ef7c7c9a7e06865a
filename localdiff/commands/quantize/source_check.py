"""Whether what is to be quantized can be run: checked before hours are spent on it.

Knows where the files of an origin are and when they are here; the loading of models decides what is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from localdiff.checkpoint_files import TEXT_FILES, TOKENIZER
from localdiff.engine.loadable import (
    copies,
    lacking,
    require_copies,
    require_same_ends,
    require_text,
    require_weights,
)
from localdiff.errors import ResourceError, WeightsError
from localdiff.load import StoredWeights, described_weights, open_weights
from localdiff.quantizing.origin import Origin
from quant.planning.plan import Plan, tensor_class

_COMPARED = 32
"""How many copies in a repository are compared: each takes a few requests, which the Hub limits."""


def require_runnable(origin: Origin) -> None:
    """Refuse a checkpoint that `localdiff run` would refuse, as far as its files are here.

    Files beside the weights that are still on the Hub are left to `require_texts`.

    Raises:
        WeightsError: it cannot be run.
    """
    if origin.directory is not None:
        weights = open_weights(origin.directory)
        require_copies(weights)
        require_text(weights)
        return
    if (described := _described(origin, origin.model)) is not None:
        require_weights(described)
    if are_here(origin):
        require_texts(origin, {name: origin.read(name) for name in origin.small_files})


def are_here(origin: Origin) -> bool:
    """Whether the files beside the weights are on this machine."""
    files = {} if origin.repository is None else origin.repository.files
    return all(files[name].local_path for name in origin.small_files if name in files)


def require_texts(origin: Origin, contents: Mapping[str, bytes]) -> None:
    """Refuse a repository's files if its weights cannot be run with them.

    Raises:
        WeightsError: the weights cannot be run.
        ResourceError: there is no room for a copy of the files, from which they are read.
    """
    with TemporaryDirectory(prefix="localdiff-") as folder:
        try:
            for name in TEXT_FILES:
                if name in contents:
                    Path(folder, name).write_bytes(contents[name])
        except OSError as error:
            raise ResourceError(
                f"`{folder}` cannot be written: {error.strerror}",
                "free some space there, or have `TMPDIR` name another folder for temporary files",
            ) from error
        weights = _described(origin, folder)
        if weights is None:
            return
        try:
            require_text(weights)
        except WeightsError as error:
            raise WeightsError(error.message.replace(folder, origin.model), error.hint) from error


def uncompared_copies(origin: Origin, plan: Plan) -> tuple[str, ...]:
    """Refuse a repository in which a copy of a tied tensor differs from it, as far as the ends of a few copies tell.

    Those of a directory were compared by `require_runnable`.

    Returns:
        The tensors that the plan leaves out as copies, and that nobody has compared.

    Raises:
        WeightsError: a copy differs, or cannot be fetched.
    """
    left_out = [name for name in plan.dropped if tensor_class(name) != "vision"]
    if origin.repository is None or not left_out:
        return ()
    if (weights := _described(origin, origin.model)) is None:
        return tuple(left_out)
    pairs = dict(islice(copies(weights).items(), _COMPARED))
    ends = origin.tensor_ends({*pairs, *pairs.values()})
    compared = {copy: source for copy, source in pairs.items() if copy in ends and source in ends}
    require_same_ends(weights, compared, ends)
    return tuple(name for name in left_out if name not in compared)


def lacked_by(origin: Origin) -> tuple[str, ...]:
    """The files that have to be added to the result before it can be run."""
    if origin.directory is not None:
        return lacking(origin.directory)
    return () if TOKENIZER in origin.small_files else (TOKENIZER,)


def _described(origin: Origin, name: str) -> StoredWeights | None:
    """The weights of an origin, as their headers describe them; without what a recipe drops, which need not be here."""
    tensors = [tensor for file in origin.files if file.nbytes for tensor in file.tensors]
    return described_weights(name, origin.config, tensors, None)
