"""Resolves the user's name of a model to a directory on disk, fetching it from the Hub where it is not here.

Knows which files of a Hub repository a model needs; knows nothing about what is in the files.
"""

from __future__ import annotations

import os
from pathlib import Path

from localdiff.errors import WeightsError
from localdiff.hub.endpoint import require_readable
from localdiff.hub.problems import explain
from localdiff.model_reference import KINDS, ModelSource, resolve_local
from quant import MANIFEST_FILE

TOKENIZER = "tokenizer.json"
TEXT_FILES = (
    "config.json",
    "generation_config.json",
    TOKENIZER,
    "tokenizer_config.json",
    "chat_template.jinja",
)
NEEDED = (*TEXT_FILES, MANIFEST_FILE, "*.safetensors", "*.safetensors.index.json")

WORKERS = 2
"""Files fetched at a time: interrupted ones start over, and these have several gigabytes."""


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


def show_downloads(shown: bool) -> None:
    """Set whether downloads may draw progress bars; must be called before the process's first download."""
    if not shown:
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"


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
