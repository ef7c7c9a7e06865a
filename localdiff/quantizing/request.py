"""The request of `localdiff quantize`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from localdiff import paths
from localdiff.checkpoints.stored_model import output_name
from quant import DEFAULT_RECIPE
from quant.released import MODEL


@dataclass(frozen=True, kw_only=True, slots=True)
class QuantizeRequest:
    """What the command line asks for.

    Attributes:
        model: `demo`, a directory or a Hub id.
        recipe: name of the recipe.
        device: where to encode, in the words of `--device`.
        output: directory of the result; one in the folder of models by default.
        dry_run: show the plan and stop.
        yes: do not ask before it begins.
        stream: delete each file of the Hub once it has been read.
        force: replace a finished output, or drop another unfinished job.
        verify_only: check a finished output and do nothing else.
        offline: never ask the Hub.
        revision: revision of a model on the Hub.
    """

    model: str = MODEL
    recipe: str = DEFAULT_RECIPE
    device: str = "auto"
    output: Path | None = None
    dry_run: bool = False
    yes: bool = False
    stream: bool = False
    force: bool = False
    verify_only: bool = False
    offline: bool = False
    revision: str | None = None

    @property
    def target(self) -> Path:
        """The directory of the result; not a link to it, because it gets its name by being renamed.

        The path has no `..` in it either: a missing folder would be created only to be left again.
        """
        directory = paths.models_dir() / output_name(self.model, self.recipe)
        if self.output is not None:
            directory = paths.expanded(self.output)
        is_plain = not os.path.islink(directory) and os.pardir not in directory.parts
        return directory.absolute() if is_plain else Path(os.path.realpath(directory))
