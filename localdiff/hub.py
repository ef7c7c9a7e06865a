"""From what the user calls a model to a directory on disk.

Knows the three kinds of reference (`demo`, a directory, an id on the Hub), which files of a Hub repository a model
needs, and how a failed download is worded; it is the only importer of `huggingface_hub`. Knows nothing about what is in
the files.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from localdiff.errors import LocaldiffError, ResourceError, UsageError, WeightsError

DEMO = "demo"
DEMO_DIRECTORY = Path(__file__).parent / "demo" / "checkpoint"

NEEDED = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "*.safetensors",
    "*.safetensors.index.json",
)

# A Hub id is `owner/name`, each part of letters, digits, `-`, `_` and `.`; the Hub itself refuses `--` and `..`.
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)

# Two files at a time: an interrupted download loses every unfinished file, and these are of several gigabytes.
_WORKERS = 2


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


def resolve(reference: str, *, revision: str | None = None, offline: bool = False) -> ModelSource:
    """Find a model's files, and fetch them from the Hub if they are not here.

    Args:
        reference: `demo`, a directory, or the id of a Hub repository such as `owner/name`. A directory wins over an
            id of the same name; `./demo` is a directory called demo.
        revision: branch, tag or commit of a Hub repository.
        offline: use only what is in the cache.

    Raises:
        WeightsError: nothing is there under that name, or the Hub does not hand it out.
        UsageError: a revision of something that has none.
        ResourceError: the disk is full.
    """
    path = Path(reference).expanduser()
    if reference == DEMO:
        source = ModelSource(directory=_demo_directory(), name=DEMO)
    elif reference and path.is_dir():
        source = ModelSource(directory=path, name=reference)
    elif path.is_file():
        raise WeightsError(
            f"`{reference}` is a file, not the directory of a model", f"`--model {path.parent}` may be it"
        )
    elif _HUB_ID.fullmatch(reference):
        return _fetch(reference, revision, offline)
    elif "/" in reference or os.sep in reference or reference.startswith((".", "~")):
        raise WeightsError(f"no such directory: `{reference}`", _kinds())
    else:
        raise WeightsError(f"`{reference}` is neither `demo`, nor a directory, nor a Hub id", _kinds())
    if revision is not None:
        raise UsageError(
            f"`--revision {revision}` is for a model from the Hub, and `{reference}` is not one",
            "leave out `--revision`",
        )
    return source


def show_downloads(shown: bool) -> None:
    """Say whether downloads may draw progress bars; it counts from the first download of the process on."""
    if not shown:
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"


def _kinds() -> str:
    return "a model is `demo`, the path of a directory, or a Hub id such as `google/diffusiongemma-26B-A4B-it`"


def _demo_directory() -> Path:
    if not DEMO_DIRECTORY.is_dir():
        raise WeightsError(
            "this installation has no demo model",
            "`make demo-model` in a clone trains one into `build/demo-model`, which `-m` takes",
        )
    return DEMO_DIRECTORY


def _fetch(reference: str, revision: str | None, offline: bool) -> ModelSource:
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from huggingface_hub import snapshot_download

    try:
        snapshot = snapshot_download(
            reference,
            revision=revision,
            local_files_only=offline,
            allow_patterns=list(NEEDED),
            ignore_patterns=["*/*"],
            max_workers=_WORKERS,
            library_name="localdiff",
        )
    except Exception as error:
        explained = _explain(error, reference, revision, offline)
        if explained is None:
            raise
        raise explained from error
    directory = Path(snapshot)
    if not (directory / "config.json").is_file():
        raise WeightsError(f"`{reference}` has no `config.json`, so it is no model that localdiff can read", _kinds())
    return ModelSource(directory=directory, name=reference, revision=directory.name)


def _explain(error: Exception, reference: str, revision: str | None, offline: bool) -> LocaldiffError | None:
    """Word what went wrong, most specific first; None for what is not the Hub's doing."""
    from huggingface_hub import constants, errors

    page = f"{constants.ENDPOINT}/{reference}"
    offline = offline or constants.is_offline_mode()
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno == errno.ENOSPC:
            return ResourceError(
                f"the disk is full: `{reference}` does not fit into `{constants.HF_HUB_CACHE}`",
                "free some space, or move the cache with `HF_HOME`; finished files are kept",
            )
        if isinstance(cause, errors.GatedRepoError):
            return WeightsError(
                f"access to `{reference}` is not granted for this account",
                f"accept the terms at {page}, then run `hf auth login`",
            )
        if isinstance(cause, errors.RepositoryNotFoundError):
            return WeightsError(
                f"there is no `{reference}` on the Hub, or it is private",
                "check the spelling; for a private model run `hf auth login` first",
            )
        if isinstance(cause, errors.RevisionNotFoundError):
            return WeightsError(f"`{reference}` has no revision `{revision}`", f"its revisions are at {page}")
        if isinstance(cause, errors.HFValidationError):
            return WeightsError(f"`{reference}` cannot be a Hub id", _kinds())
        if isinstance(cause, errors.HfHubHTTPError):
            return _explain_status(cause.response.status_code, reference)
    if isinstance(error, errors.IncompleteSnapshotError):
        return WeightsError(
            f"not every file of `{reference}` is here, and the rest cannot be fetched",
            "go on with the download: leave out `--offline` and unset `HF_HUB_OFFLINE`"
            if offline
            else f"{constants.ENDPOINT} cannot be reached; run the same command again when it can",
        )
    if offline and isinstance(error, (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled)):
        return WeightsError(
            f"`{reference}` has not been downloaded, and the Hub may not be asked",
            "leave out `--offline` and unset `HF_HUB_OFFLINE` to download it",
        )
    if any(_is_of_the_network(cause) for cause in _causes(error)):
        return WeightsError(
            f"`{reference}` could not be fetched: no answer from {constants.ENDPOINT}",
            "run the same command again to go on; finished files are kept; `--offline` uses only what is here",
        )
    if isinstance(error, OSError):
        return WeightsError(
            f"`{reference}` could not be fetched: {error.strerror or str(error).splitlines()[0]}",
            f"downloads go to `{constants.HF_HUB_CACHE}`; `HF_HOME` moves them",
        )
    return None


def _explain_status(status: int, reference: str) -> WeightsError:
    if status == 401:
        return WeightsError(
            "the Hub does not accept this token",
            "run `hf auth login` again, or set `HF_TOKEN` to a token that is valid",
        )
    if status == 403:
        return WeightsError(f"this token may not read `{reference}`", "use a token with read access: `hf auth login`")
    if status == 429:
        return WeightsError(
            "the Hub answered that there were too many requests", "wait a few minutes, then run it again"
        )
    return WeightsError(
        f"the Hub answered {status} for `{reference}`",
        "run the same command again later; finished files are kept",
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised from, outermost first."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)


def _is_of_the_network(error: BaseException) -> bool:
    """Whether an error is one of the Hub client's HTTP library, whichever that is, or of a socket."""
    family = {f"{kind.__module__.split('.')[0]}.{kind.__name__}" for kind in type(error).__mro__}
    return bool(family & {"httpx.HTTPError", "httpx2.HTTPError"}) or isinstance(error, (ConnectionError, TimeoutError))
