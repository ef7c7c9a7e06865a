"""The quantized models on this machine: which exist, which is the default, which are sound.

Knows the folder of models, and what their manifests say about themselves; reads no weights, and needs no torch. Each
model is a directory in the folder `paths.models_dir()`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from localdiff import paths
from localdiff.checkpoint_files import CHECK_PERMISSIONS, read_small, refusal
from localdiff.errors import ResourceError, UsageError, WeightsError
from localdiff.identity import DEMO
from localdiff.output_lock import is_locked
from localdiff.quoting import shell_word
from localdiff.verification_record import listed_files, recorded_damage, verified_at
from quant import MANIFEST_FILE, RECIPES, released
from quant.names import DISCARDED, JOB_FILE, PARTIAL, discarded_directory, output_directory

MODEL = released.MODEL
_LOOKS = 3
"""Times that a directory is looked at which is renamed meanwhile, as a job does when it ends."""

State = Literal["finished", "running", "unfinished", "damaged", "unreadable"]


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredModel:
    """One directory of the folder of models.

    Attributes:
        name: its name.
        directory: where it is.
        state: `running` where it is unfinished and a job is at work on it; `damaged` where its manifest cannot be read,
            a file that it names is missing or has another size, or damage was found when all of its bytes were last
            read; `unreadable` where its manifest may not be read.
        problem: what is damaged, missing or refused, if not just work to be done.
        command: the `localdiff quantize` that makes it, as far as its files or its name tell; None where they do not.
        recipe: the recipe it was made with, where its manifest says so.
        nbytes: size of all its files.
        verified: when all of its bytes were last verified, if none of its files has changed since.
    """

    name: str
    directory: Path
    state: State
    recipe: str | None
    nbytes: int
    verified: datetime | None
    problem: str | None = None
    command: str | None = None


def output_name(model: str, recipe: str) -> str:
    """The default name of a model: the last part of its source's name, and the recipe."""
    if model == DEMO:  # whatever has that name here
        return f"{model}-{recipe}"
    directory = paths.expanded(model)
    return f"{directory.resolve().name if directory.is_dir() else model.split('/')[-1]}-{recipe}"


def default_model(env: Mapping[str, str] = os.environ) -> str:
    """The default: the quantized released model, else the only other quantized model here; never one of demo.

    Of several recipes of the released model it is the first in the order of `quant.RECIPES`; weights of another origin
    may have its name, and are one of the others. Why never demo is in `docs/decisions/0005`.

    Raises:
        WeightsError: there is none, or more than one candidate; or the folder of models, or the only model that could
            be it, cannot be read.
    """
    there = list(directories(env))
    finished = [directory.name for directory in there if is_finished(directory)]
    for recipe in RECIPES:
        name = f"{MODEL.split('/')[-1]}-{recipe}"
        if name in finished and _source(paths.models_dir(env) / name) == MODEL:
            return name
    demos = [name for name in finished if is_demo(paths.models_dir(env) / name)]
    others = [name for name in finished if name not in demos]
    if len(others) == 1:
        return others[0]
    if others:
        raise WeightsError(
            f"no model was named, and {len(others)} are here", f"`-m` takes one of {', '.join(sorted(others))}"
        )
    for directory in there:
        if (why := refusal(directory / MANIFEST_FILE)) is not None:
            raise WeightsError(f"no model was named, and `{directory}` cannot be read: {why}", CHECK_PERMISSIONS)
    raise WeightsError(
        "no model was named, and no quantized model " + ("but the demo's " if demos else "") + "is here to use instead",
        "`localdiff quantize` makes one of the released weights (a 52 GB download, 15 GB to keep); "
        f"`-m {(*demos, DEMO)[0]}` runs the small model of this package",
    )


def is_finished(directory: Path) -> bool:
    """Whether a directory has the name and the manifest of a model; a job renames its directory last."""
    return not directory.name.endswith((PARTIAL, DISCARDED)) and os.path.isfile(directory / MANIFEST_FILE)


def quantized_directory(name: str) -> Path | None:
    """Where the finished quantized model of this name is, or None."""
    directory = _place(name)
    return directory if directory is not None and is_finished(directory) else None


def refused_directory(name: str) -> Path | None:
    """Where a quantized model of this name is, or could be, that this user may not read."""
    directory = _place(name)
    return None if directory is None or refusal(directory / MANIFEST_FILE) is None else directory


def is_demo(directory: Path) -> bool:
    """Whether a model was made from the demo model, which is never the default."""
    return _source(directory) == DEMO


def is_default(name: str, env: Mapping[str, str] = os.environ) -> bool:
    """Whether a model is the default."""
    try:
        return default_model(env) == name
    except WeightsError:
        return False


def stored_models(env: Mapping[str, str] = os.environ) -> list[StoredModel]:
    """Every model in the folder, unfinished ones too, by name.

    Raises:
        WeightsError: the folder cannot be read.
    """
    found = (_inspect_settled(directory, env) for directory in directories(env))
    return [model for model in found if model is not None]


def find(name: str, env: Mapping[str, str] = os.environ) -> StoredModel:
    """The model of that name.

    Raises:
        UsageError: there is none.
        WeightsError: the folder of models cannot be read.
    """
    models = stored_models(env)
    for model in models:
        if model.name == name:
            return model
    names = ", ".join(f"`{model.name}`" for model in models)
    raise UsageError(
        f"there is no model `{name}` in `{paths.models_dir(env)}`",
        f"there {'is' if len(models) == 1 else 'are'} {names}" if names else "`localdiff quantize` makes one",
    )


def remedy(model: StoredModel) -> str:
    """What to do about a model that is neither finished nor being made: commands to type."""
    if model.state == "unreadable":
        return CHECK_PERMISSIONS  # it may be in order: not to be deleted, nor made again
    deletes = f"`localdiff models rm {shell_word(model.name)}` deletes it"
    if model.state == "unfinished" and not model.name.endswith(PARTIAL):
        return deletes  # `localdiff quantize` replaces nothing that it did not make
    continues = "rebuilds what is damaged" if model.state == "damaged" else "continues it"
    if model.state == "damaged" and model.command is None:  # without a manifest nothing says what to keep
        continues = "makes it again, with `--force`" if model.recipe is None else f"{continues}, from the same source"
    verb = "made" if model.state == "damaged" else "began"
    command = "" if model.command is None else f"`{model.command}`"
    return f"{command or f'the `localdiff quantize` that {verb} it'} {continues}; {deletes}"


def remove(model: StoredModel) -> None:
    """Delete a model, or the link to one; if interrupted, what is left is never taken for a model.

    One of which nothing can be deleted keeps its name.

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


def _place(name: str) -> Path | None:
    """Where a model of this name would be; None of what is no name."""
    is_name = name and name not in (".", "..") and "/" not in name and os.sep not in name
    return paths.models_dir() / name if is_name else None


def directories(env: Mapping[str, str]) -> Iterator[Path]:
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
        if folder.is_dir():
            names = sorted(os.listdir(folder))
            os.stat(os.path.join(folder, "."))  # names can be listed where nothing more may be known of them
            yield from (folder / name for name in names if os.path.isdir(folder / name) and not name.startswith("."))
    except PermissionError as error:
        raise WeightsError(f"`{folder}` cannot be used: {error.strerror}", CHECK_PERMISSIONS) from error


def _inspect_settled(directory: Path, env: Mapping[str, str]) -> StoredModel | None:
    """What is in a directory; None where it is gone by now. One that a job replaces meanwhile is looked at again."""
    for _ in range(_LOOKS):
        with suppress(FileNotFoundError):
            before = os.stat(directory)
            model = _inspect(directory, env)
            if os.path.samestat(before, os.stat(directory)):
                return model
    return None


def _inspect(directory: Path, env: Mapping[str, str]) -> StoredModel:
    state: State = "finished"
    recipe = problem = None
    if (why := refusal(directory / MANIFEST_FILE)) is not None:
        state, problem = "unreadable", f"it cannot be read: {why}"
    elif not is_finished(directory):
        state = "running" if is_locked(output_directory(directory)) else "unfinished"
        if not directory.name.endswith((PARTIAL, DISCARDED)):
            problem = f"no `{MANIFEST_FILE}` can be read in it"
    else:
        recipe = _manifest_value(directory, "recipe", "name")
        problem = (
            "its manifest cannot be read"
            if recipe is None
            else _damage(directory) or recorded_damage(directory, env=env)
        )
        state = "finished" if problem is None else "damaged"
        if problem is None and (barred := _barred_file(directory)) is not None:
            state, problem = "unreadable", barred
    return StoredModel(
        name=directory.name,
        directory=directory,
        state=state,
        recipe=recipe,
        nbytes=_size(directory),
        verified=verified_at(directory, env=env) if state == "finished" else None,
        problem=problem,
        command=_command(directory, recipe, problem) if state in ("unfinished", "damaged") else None,
    )


def _damage(directory: Path) -> str | None:
    """What can be seen of damage without reading a weight."""
    for name, entry in listed_files(directory):
        expected = entry.get("bytes") if isinstance(entry, dict) else None
        try:
            nbytes = (directory / name).stat().st_size
        except FileNotFoundError:
            return f"`{name}` is missing"
        except OSError as error:
            return f"`{name}` cannot be read: {error.strerror}"
        except ValueError:  # a null byte, or half of a surrogate pair
            return f"its manifest lists {name!r}, which is no name of a file"
        if nbytes != expected:
            return f"`{name}` has {nbytes} bytes instead of {expected}"
    return None


def _barred_file(directory: Path) -> str | None:
    """Which file this user may not read, and why; None where there is none."""
    for name, _ in listed_files(directory):
        if (why := refusal(directory / name)) is not None:
            return f"`{name}` cannot be read: {why}"
    return None


def _command(directory: Path, recipe: str | None, problem: str | None) -> str | None:
    """The command that makes a model again, or goes on with it; a local checkpoint's place is not known."""
    name = directory.name.removesuffix(PARTIAL)
    job = _unfinished_job(directory)
    model = job.get("model") if recipe is None else _source(directory)
    recipe = job.get("recipe") if recipe is None else recipe
    for candidate in (MODEL, DEMO) if model is None else (model,):
        for candidate_recipe in RECIPES:
            if (model is None or recipe is None) and output_name(candidate, candidate_recipe) == name:
                model, recipe = candidate, candidate_recipe
    is_found = model == DEMO or (model is not None and "/" in model and not model.startswith(("./", "-")))
    # What a manifest says is somebody else's text: what is typed after it should be what it seems to be.
    if model is None or recipe is None or recipe not in RECIPES or not is_found:
        return None
    words = ["localdiff quantize", *([] if model == MODEL else [shell_word(model)]), "--recipe", recipe]
    if (revision := _manifest_value(directory, "source", "revision") or job.get("revision")) is not None:
        words += ["--revision", shell_word(revision)]
    if name != output_name(model, recipe):
        words += ["-o", shell_word(directory.with_name(name))]
    # Files are repaired by their manifest, and nothing repairs that.
    is_repaired = directory.name != name or (
        _manifest_value(directory, "recipe", "name") is not None and f"`{MANIFEST_FILE}`" not in (problem or "")
    )
    return " ".join([*words, *([] if is_repaired else ["--force"])])


def _source(directory: Path) -> str | None:
    """The source that a model was made from."""
    return _manifest_value(directory, "source", "model")


def _unfinished_job(directory: Path) -> dict[str, str]:
    """What an unfinished job says of itself, as far as that is text; nothing where it cannot be read."""
    try:
        job = json.loads(read_small(directory / JOB_FILE))["job"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return {key: value for key, value in job.items() if isinstance(value, str)} if isinstance(job, dict) else {}


def _manifest_value(directory: Path, section: str, key: str) -> str | None:
    """A value from a manifest; None where it cannot be read or has none."""
    try:
        value = json.loads(read_small(directory / MANIFEST_FILE))[section][key]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return value if isinstance(value, str) else None


def _size(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        with suppress(OSError):  # a job may be working in it, or it may be unreadable
            total += path.lstat().st_size if path.is_file() else 0
    return total
