"""One quantized model on this machine: what its directory says, whether it is sound, what to do about it.

Knows names, manifests and unfinished jobs; reads no weights, and needs no torch. `model_store` lists them all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from localdiff import paths
from localdiff.checkpoint_files import CHECK_PERMISSIONS, read_small, refusal
from localdiff.checkpoints.verification_record import listed_files, recorded_damage, verified_at
from localdiff.identity import DEMO
from localdiff.machine.output_lock import is_locked
from localdiff.quoting import shell_word
from quant import MANIFEST_FILE, RECIPES
from quant.names import DISCARDED, JOB_FILE, PARTIAL, output_directory
from quant.released import MODEL

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
        problem: what is damaged, missing or refused, if anything is.
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
    if model == DEMO:  # even if a directory has that name
        return f"{model}-{recipe}"
    directory = paths.expanded(model)
    return f"{directory.resolve().name if directory.is_dir() else model.split('/')[-1]}-{recipe}"


def is_finished(directory: Path) -> bool:
    """Whether a directory has the name and the manifest of a model; a job renames its directory last."""
    return not directory.name.endswith((PARTIAL, DISCARDED)) and os.path.isfile(directory / MANIFEST_FILE)


def is_demo(directory: Path) -> bool:
    """Whether a model was made from the demo model, which is never the default."""
    return source_of(directory) == DEMO


def remedy(model: StoredModel) -> str:
    """What to do about a model that is neither finished nor being made: commands to type."""
    if model.state == "unreadable":
        return CHECK_PERMISSIONS  # it may be sound: neither delete it nor make it again
    deletes = f"`localdiff models rm {shell_word(model.name)}` deletes it"
    if model.state == "unfinished" and not model.name.endswith(PARTIAL):
        return deletes  # `localdiff quantize` replaces nothing that it did not make
    continues = "rebuilds what is damaged" if model.state == "damaged" else "continues it"
    if model.state == "damaged" and model.command is None:  # without a manifest nothing says what to keep
        continues = "makes it again, with `--force`" if model.recipe is None else f"{continues}, from the same source"
    verb = "made" if model.state == "damaged" else "began"
    command = "" if model.command is None else f"`{model.command}`"
    return f"{command or f'the `localdiff quantize` that {verb} it'} {continues}; {deletes}"


def inspected(directory: Path) -> StoredModel:
    """What is in a directory of the folder of models."""
    recipe = _texts(directory / MANIFEST_FILE, "recipe").get("name") if is_finished(directory) else None
    state, problem = _condition(directory, recipe)
    return StoredModel(
        name=directory.name,
        directory=directory,
        state=state,
        recipe=recipe,
        nbytes=_size(directory),
        verified=verified_at(directory) if state == "finished" else None,
        problem=problem,
        command=_command(directory, recipe, problem) if state in ("unfinished", "damaged") else None,
    )


def _condition(directory: Path, recipe: str | None) -> tuple[State, str | None]:
    """The state of a directory, and what is damaged, missing or refused; see `StoredModel`."""
    if (why := refusal(directory / MANIFEST_FILE)) is not None:
        return "unreadable", f"it cannot be read: {why}"
    if not is_finished(directory):
        has_name_of_job = directory.name.endswith((PARTIAL, DISCARDED))
        problem = None if has_name_of_job else f"no `{MANIFEST_FILE}` can be read in it"
        return "running" if is_locked(output_directory(directory)) else "unfinished", problem
    if recipe is None:
        return "damaged", "its manifest cannot be read"
    if (damage := _damage(directory) or recorded_damage(directory)) is not None:
        return "damaged", damage
    if (barred := _barred_file(directory)) is not None:
        return "unreadable", barred
    return "finished", None


def _damage(directory: Path) -> str | None:
    """Damage that can be seen without reading a weight."""
    for name, entry in listed_files(directory):
        expected = entry.get("bytes") if isinstance(entry, dict) else None
        try:
            nbytes = (directory / name).stat().st_size
        except FileNotFoundError:
            return f"`{name}` is missing"
        except OSError as error:
            return f"`{name}` cannot be read: {error.strerror}"
        except ValueError:  # a null byte, or half of a surrogate pair
            return f"its manifest lists {name!r}, which is not a file name"
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
    """The command that makes a model again, or continues it; None if not known, as for a local checkpoint."""
    name = directory.name.removesuffix(PARTIAL)
    job, source = _texts(directory / JOB_FILE, "job"), _texts(directory / MANIFEST_FILE, "source")
    has_manifest = recipe is not None
    model = source.get("model") if has_manifest else job.get("model")
    recipe = recipe if has_manifest else job.get("recipe")
    if model is None or recipe is None:
        model, recipe = _with_output_name(name, (MODEL, DEMO) if model is None else (model,))
    if model is None or recipe is None or recipe not in RECIPES:
        return None
    # A manifest is somebody else's text: a command that is made from it should be what it seems to be.
    if model != DEMO and ("/" not in model or model.startswith(("./", "-"))):
        return None
    words = ["localdiff quantize", *([] if model == MODEL else [shell_word(model)]), "--recipe", recipe]
    if (revision := source.get("revision") or job.get("revision")) is not None:
        words += ["--revision", shell_word(revision)]
    if name != output_name(model, recipe):
        words += ["-o", shell_word(directory.with_name(name))]
    # Files are repaired by their manifest, and nothing repairs a manifest.
    is_repaired = directory.name != name or (has_manifest and f"`{MANIFEST_FILE}`" not in (problem or ""))
    return " ".join([*words, *([] if is_repaired else ["--force"])])


def _with_output_name(name: str, models: Sequence[str]) -> tuple[str, str] | tuple[None, None]:
    """The first of these models, and its recipe, whose default name this is; None for both if it is of none."""
    pairs = ((model, recipe) for model in models for recipe in RECIPES)
    return next((pair for pair in pairs if output_name(*pair) == name), (None, None))


def source_of(directory: Path) -> str | None:
    """The source that a model was made from."""
    return _texts(directory / MANIFEST_FILE, "source").get("model")


def _texts(file: Path, section: str) -> dict[str, str]:
    """The text values in a section of a JSON file; empty where they cannot be read."""
    try:
        values = json.loads(read_small(file))[section].items()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    return {key: value for key, value in values if isinstance(value, str)}


def _size(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        with suppress(OSError):  # a job may be working in it, or it may be unreadable
            total += path.lstat().st_size if path.is_file() else 0
    return total
