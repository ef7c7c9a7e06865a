"""Resolves the user's name of a model to a directory on disk.

Knows the kinds of reference (`demo`, a directory, a quantized model by its name, an id on the Hub) and which files of
a Hub repository a model needs; knows nothing about what is in the files.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from localdiff import paths
from localdiff.errors import ArgumentError, WeightsError
from localdiff.hub.endpoint import require_readable
from localdiff.hub.problems import KINDS, explain
from localdiff.model_store import DEMO, MANIFEST, PARTIAL, is_finished, stored_models

DEMO_DIRECTORY = Path(__file__).parents[1] / "demo" / "checkpoint"

TEXT_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)
NEEDED = (*TEXT_FILES, MANIFEST, "*.safetensors", "*.safetensors.index.json")

# A Hub id is `owner/name`, each part of letters, digits, `-`, `_` and `.`; the Hub itself refuses `--` and `..`.
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)

WORKERS = 2
"""Files fetched at a time: interrupted ones start over, and these have several gigabytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSource:
    """Where a model's files are.

    Attributes:
        directory: a directory on this machine.
        name: what the user called it.
        revision: the commit, for a model from the Hub.
    """

    directory: Path
    name: str
    revision: str | None = None

    @property
    def is_private(self) -> bool:
        """Whether the name is a path or local to this machine, so that it does not identify the weights."""
        return self.revision is None and self.name != DEMO


def resolve(reference: str, *, revision: str | None = None, offline: bool = False) -> ModelSource:
    """Find a model's files, and fetch them from the Hub if they are not here.

    Args:
        reference: `demo`, a directory, the name of a quantized model in `paths.models_dir()`, or the id of a Hub
            repository such as `owner/name`. A directory takes precedence over all else of the same name but `demo`;
            `./demo` is a directory called demo.
        revision: branch, tag or commit of a Hub repository.
        offline: use only what is in the cache.

    Raises:
        WeightsError: nothing exists under that name, or the Hub refuses access.
        UsageError: a revision of something that has none, or `HF_ENDPOINT` is no address.
        ResourceError: the disk is full.
    """
    local = resolve_local(reference, revision=revision)
    return local or _fetch(reference, revision, offline)


def resolve_local(reference: str, *, revision: str | None = None) -> ModelSource | None:
    """Find a model's files if the reference is of a kind that needs no Hub; None for the id of a repository.

    Raises:
        WeightsError: nothing exists under that name.
        UsageError: a revision of something that has none.
    """
    path = paths.expanded(reference)
    named = quantized_directory(reference)
    if reference == DEMO:
        source = ModelSource(directory=_demo_directory(), name=DEMO)
    elif reference and os.path.isdir(path):
        source = ModelSource(directory=path, name=reference)
    elif os.path.isfile(path):
        is_near = (path.parent / "config.json").is_file()
        hint = f"did you mean `--model {path.parent}`?" if is_near else KINDS
        raise WeightsError(f"`{reference}` is a file, not the directory of a model", hint)
    elif named is not None:
        source = ModelSource(directory=named, name=reference)
    elif (refusal := _refusal(path)) is not None:
        raise WeightsError(f"`{reference}` cannot be read: {refusal}", "check the permissions of its folders")
    elif _HUB_ID.fullmatch(reference):
        return None
    elif "/" in reference or os.sep in reference or reference.startswith((".", "~")):
        raise WeightsError(f"no such directory: `{reference}`", KINDS)
    elif _is_unfinished(reference):
        raise WeightsError(
            f"`{reference}` is an unfinished quantized model", "the `localdiff quantize` that began it finishes it"
        )
    else:
        names = (DEMO, *(model.name for model in stored_models() if model.state == "finished"))
        near = get_close_matches(reference, names, 1)
        raise WeightsError(
            f"`{reference}` is neither `demo`, nor a quantized model, a directory or a Hub id",
            f"did you mean `{near[0]}`?" if near else KINDS,
        )
    if revision is not None:
        raise ArgumentError(
            "{revision} is for a model from the Hub, and {model} is not one",
            "leave it out",
            revision=revision,
            model=reference,
        )
    return source


def quantized_directory(name: str) -> Path | None:
    """Where the finished quantized model of this name is, or None."""
    if not name or name in (".", "..") or "/" in name or os.sep in name:
        return None
    directory = paths.models_dir() / name
    return directory if is_finished(directory) else None


def _refusal(path: Path) -> str | None:
    """Why the system does not say whether a path exists; None where it does."""
    try:
        path.stat()
    except PermissionError as error:
        return error.strerror
    except (OSError, ValueError):
        return None
    return None


def _is_unfinished(name: str) -> bool:
    """Whether a job has begun to make the quantized model of this name; `localdiff models` lists it with a suffix."""
    return bool(name) and (paths.models_dir() / (name.removesuffix(PARTIAL) + PARTIAL)).is_dir()


def show_downloads(shown: bool) -> None:
    """Set whether downloads may draw progress bars; must be called before the process's first download."""
    if not shown:
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"


def _demo_directory() -> Path:
    if not DEMO_DIRECTORY.is_dir():
        raise WeightsError(
            "this installation has no demo model",
            "it is part of the package: install localdiff again",
        )
    return DEMO_DIRECTORY


def _fetch(reference: str, revision: str | None, offline: bool) -> ModelSource:
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    require_readable()
    from huggingface_hub import snapshot_download

    try:
        snapshot = snapshot_download(
            reference,
            revision=revision,
            local_files_only=offline,
            allow_patterns=list(NEEDED),
            ignore_patterns=["*/*"],
            max_workers=WORKERS,
            library_name="localdiff",
        )
    except Exception as error:
        explained = explain(error, reference, revision, offline=offline)
        if explained is None:
            raise
        raise explained from error
    directory = Path(snapshot)
    if not (directory / "config.json").is_file():
        raise WeightsError(f"`{reference}` has no `config.json`, so it is not a model that localdiff can read", KINDS)
    return ModelSource(directory=directory, name=reference, revision=directory.name)
