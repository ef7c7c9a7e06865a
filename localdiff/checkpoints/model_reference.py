"""Finds a model's directory by the name that the user gave, where that needs no Hub.

Knows the kinds of reference: `demo`, a directory, a quantized model by its name, an id on the Hub; and, by names of
files, what is no model. Knows nothing about what is in the files, and needs no torch.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from localdiff import paths
from localdiff.checkpoint_files import CHECK_PERMISSIONS, CONFIG, refusal
from localdiff.checkpoints.adapter_reference import CONFIG_FILE, HUB_ID, shipped_adapters
from localdiff.checkpoints.model_store import quantized_directory, stored_models
from localdiff.errors import ArgumentError, WeightsError
from localdiff.identity import DEMO
from localdiff.quoting import shell_word
from quant import MANIFEST_FILE, RECIPES
from quant.names import PARTIAL
from quant.released import MODEL

DEMO_DIRECTORY = Path(__file__).parent.parent / "demo" / "checkpoint"
KINDS = (
    "a model is `demo`, a name of `localdiff models`, the path of a directory, or a Hub id such as "
    "`google/diffusiongemma-26B-A4B-it`"
)

_PAGE = re.compile(
    rf"(?:https?://)?(?:www\.)?(?:huggingface|hf)\.co/(?!datasets/|spaces/)({HUB_ID.pattern})(?:[/?#].*)?", re.ASCII
)
"""The address of a model's page, as a browser shows it."""
_WEIGHTS = "model.safetensors"
"""How the names of a checkpoint's single weight file and of its index begin."""


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


def resolve_local(reference: str, *, revision: str | None = None) -> ModelSource | None:
    """Find a model's files if the reference is of a kind that needs no Hub; None for the id of a repository.

    Raises:
        WeightsError: nothing exists under that name.
        UsageError: a revision was given for something that has none.
    """
    path = paths.expanded(reference)
    quantized = quantized_directory(reference)
    if reference == DEMO:
        source = ModelSource(directory=DEMO_DIRECTORY, name=DEMO)
    elif reference and os.path.isdir(path):
        refuse_other_forms(reference, _names_in(path))
        source = ModelSource(directory=path, name=reference)
    elif quantized is not None:
        source = ModelSource(directory=quantized, name=reference)
    elif HUB_ID.fullmatch(reference) and not os.path.isfile(path) and refusal(path) is None:
        return None
    else:
        raise _no_model(reference, path)
    if revision is not None:
        raise ArgumentError(
            "{revision} is for a model from the Hub, and {model} is not one",
            "leave it out",
            revision=revision,
            model=reference,
        )
    return source


def _no_model(reference: str, path: Path) -> WeightsError:
    """The error that a reference names no model: what is there in its place, or what it may mean.

    Raises:
        WeightsError: it is a file in a form that localdiff does not read.
    """
    if os.path.isfile(path):
        refuse_other_forms(reference, [path.name])
        is_near = (path.parent / CONFIG).is_file()
        hint = f"did you mean `{shell_word(path.parent)}`?" if is_near else KINDS
        return WeightsError(f"`{reference}` is a file, not the directory of a model", hint)
    if (why := refusal(path)) is not None:
        return WeightsError(f"`{reference}` cannot be read: {why}", "check the permissions of its folders")
    if "/" in reference or os.sep in reference or reference.startswith((".", "~")):
        page = _PAGE.fullmatch(reference)
        return WeightsError(f"no such directory: `{reference}`", f"did you mean `{page[1]}`?" if page else KINDS)
    quantized = paths.models_dir() / reference
    if (why := refusal(quantized / MANIFEST_FILE)) is not None:
        return WeightsError(f"`{quantized}` cannot be read: {why}", CHECK_PERMISSIONS)
    if os.path.isdir(paths.models_dir() / (reference.removesuffix(PARTIAL) + PARTIAL)):
        return WeightsError(
            f"`{reference}` is an unfinished quantized model", "the `localdiff quantize` that began it finishes it"
        )
    if reference in RECIPES:
        makes = f"`localdiff quantize --recipe {reference}` makes a model with it"
        return WeightsError(
            f"`{reference}` is a recipe, not a model", f"{makes}; `localdiff models` lists those that are here"
        )
    names = (DEMO, *(model.name for model in stored_models() if model.state == "finished"))
    hint = KINDS
    if reference in shipped_adapters():
        hint = f"it is an adapter of the demo model: `-m {DEMO} --adapter {reference}`"
    elif near := get_close_matches(reference, names, 1):
        hint = f"did you mean `{near[0]}`?"
    return WeightsError(f"`{reference}` is neither `demo`, nor a quantized model, a directory or a Hub id", hint)


def refuse_other_forms(reference: str, names: Sequence[str], *, on_hub: bool = False) -> None:
    """Refuse an adapter, and weights as GGUF; anything else without weights is left to whoever reads it.

    Args:
        names: of all files that are listed, or of one that was given in place of a directory.

    Raises:
        WeightsError: it is one of these.
    """
    if any(name.startswith(_WEIGHTS) for name in names):
        return
    if CONFIG_FILE in names:
        fetched = f"`hf download {reference} --local-dir DIR`, then " if on_hub else ""
        place = "DIR" if on_hub else shell_word(reference)
        raise WeightsError(
            f"`{reference}` is an adapter, not a model", f"{fetched}`-m MODEL --adapter {place}` adds it to one"
        )
    if any(name.lower().endswith(".gguf") for name in names):
        raise WeightsError(
            f"`{reference}` is GGUF, which localdiff does not read",
            f"it reads safetensors, such as `{MODEL}`, and `localdiff quantize` makes them smaller",
        )


def _names_in(directory: Path) -> list[str]:
    """Names in a directory; none where it may not be listed, which is refused later, with its files."""
    try:
        return os.listdir(directory)
    except OSError:
        return []
