"""The quantized models on this machine: which there are, which is the default, and how one is deleted.

Each is a directory in the folder `paths.models_dir()`; `stored_model` says what is in it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from localdiff import paths
from localdiff.checkpoint_files import CHECK_PERMISSIONS, refusal
from localdiff.checkpoints.stored_model import StoredModel, inspected, is_demo, is_finished, source_of
from localdiff.errors import ResourceError, UsageError, WeightsError
from localdiff.identity import DEMO
from quant import MANIFEST_FILE, RECIPES
from quant.names import discarded_directory, output_directory
from quant.released import MODEL


class NoModelError(WeightsError):
    """No model was named, and none or several could be the default."""


def default_model() -> str:
    """The default: the quantized released model, else the only other quantized model here; never one made from demo.

    Of several recipes of the released model it is the first in the order of `quant.RECIPES`; weights of another
    origin under its name count as another model. `docs/decisions/0005` says why it is never demo.

    Raises:
        WeightsError: there is none, or more than one candidate; or the folder of models, or a model that could be it,
            cannot be read.
    """
    there = list(directories())
    finished = [directory.name for directory in there if is_finished(directory)]
    for recipe in RECIPES:
        name = f"{MODEL.split('/')[-1]}-{recipe}"
        if name in finished and source_of(paths.models_dir() / name) == MODEL:
            return name
    demos = [name for name in finished if is_demo(paths.models_dir() / name)]
    others = [name for name in finished if name not in demos]
    if len(others) == 1:
        return others[0]
    if others:
        raise NoModelError(
            f"no model was named, and {len(others)} are here", f"`-m` takes one of {', '.join(sorted(others))}"
        )
    for directory in there:
        if (why := refusal(directory / MANIFEST_FILE)) is not None:
            raise WeightsError(f"no model was named, and `{directory}` cannot be read: {why}", CHECK_PERMISSIONS)
    raise NoModelError(
        "no model was named, and no quantized model " + ("but the demo's " if demos else "") + "is here to use instead",
        "`localdiff quantize` makes one of the released weights (a 52 GB download, 15 GB to keep); "
        f"`-m {(*demos, DEMO)[0]}` runs the small model of this package",
    )


def quantized_directory(name: str) -> Path | None:
    """Where the finished quantized model of this name is, or None."""
    if name in ("", ".", "..") or "/" in name or os.sep in name:
        return None
    directory = paths.models_dir() / name
    return directory if is_finished(directory) else None


def is_default(name: str) -> bool:
    """Whether a model is the default."""
    try:
        return default_model() == name
    except WeightsError:
        return False


def stored_models() -> list[StoredModel]:
    """Every model in the folder, unfinished ones too, by name.

    Raises:
        WeightsError: the folder cannot be read.
    """
    models = []
    for directory in directories():
        with suppress(FileNotFoundError):  # a job that has ended meanwhile has renamed it
            models.append(inspected(directory))
    return models


def find(name: str) -> StoredModel:
    """The model of that name.

    Raises:
        UsageError: there is none.
        WeightsError: the folder of models cannot be read.
    """
    models = stored_models()
    for model in models:
        if model.name == name:
            return model
    names = ", ".join(f"`{model.name}`" for model in models)
    raise UsageError(
        f"there is no model `{name}` in `{paths.models_dir()}`",
        f"there {'is' if len(models) == 1 else 'are'} {names}" if names else "`localdiff quantize` makes one",
    )


def remove(model: StoredModel) -> None:
    """Delete a model, or the link to one; if interrupted, what is left is never taken for a model.

    A model of which nothing could be deleted keeps its name.

    Raises:
        ResourceError: the disk fails.
    """
    discarded = discarded_directory(output_directory(model.directory))
    try:
        if model.directory.is_symlink():
            model.directory.unlink()
            return
        if model.directory != discarded:
            if discarded.exists():
                shutil.rmtree(discarded)
            model.directory.rename(discarded)
        files = set(discarded.rglob("*"))
        try:
            shutil.rmtree(discarded)
        except OSError:
            if set(discarded.rglob("*")) == files:
                discarded.rename(model.directory)
            raise
    except OSError as error:
        directory = discarded if os.path.lexists(discarded) else model.directory
        hint = "delete it by hand; nothing else refers to it"
        raise ResourceError(
            f"`{directory}` cannot be deleted: {error.strerror}",
            CHECK_PERMISSIONS if isinstance(error, PermissionError) else hint,
        ) from error


def directories(env: Mapping[str, str] = os.environ) -> Iterator[Path]:
    """Every directory in the folder of models, unfinished ones too, by name.

    Raises:
        WeightsError: the folder cannot be read.
    """
    folder = paths.models_dir(env)
    if (obstacle := paths.obstacle(folder)) is not None:
        raise WeightsError(
            f"`{folder}` cannot be used: `{obstacle}` is not a folder",
            "move it elsewhere; or `LOCALDIFF_HOME` chooses another folder",
        )
    try:
        with suppress(FileNotFoundError):
            names = sorted(os.listdir(folder))
            os.stat(os.path.join(folder, "."))  # fails for a folder that may be listed, but not searched
            yield from (folder / name for name in names if os.path.isdir(folder / name) and not name.startswith("."))
    except PermissionError as error:
        raise WeightsError(f"`{folder}` cannot be used: {error.strerror}", CHECK_PERMISSIONS) from error
