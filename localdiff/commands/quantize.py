"""`localdiff quantize`: published weights in, a verified quantized model out.

Knows what can be asked for and the order in which it is found out whether that is possible; the parts are in
`localdiff.commands.quantizing`. Nothing heavy is imported before it is needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from localdiff import paths, store
from localdiff.errors import UsageError
from localdiff.hub.reference import quantized_directory
from localdiff.ui.output import Output
from quant import DEFAULT_RECIPE

Ask: TypeAlias = Callable[[str], bool]


@dataclass(frozen=True, kw_only=True, slots=True)
class QuantizeRequest:
    """What the command line asks for.

    Attributes:
        model: `demo`, a directory or a Hub id.
        recipe: name of the recipe.
        output: directory of the result; one in the folder of models by default.
        dry_run: show the plan and stop.
        yes: do not ask before it begins.
        stream: delete each file of the Hub when it has been read.
        force: replace a finished output, or drop an unfinished other job.
        verify_only: check a finished output and do nothing else.
        offline: never ask the Hub.
        revision: revision of a model on the Hub.
    """

    model: str = store.MODEL
    recipe: str = DEFAULT_RECIPE
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
        """The directory of the result; not a link to it, because it gets its name by being renamed."""
        directory = paths.models_dir() / store.output_name(self.model, self.recipe)
        if self.output is not None:
            directory = paths.expanded(self.output)
        return Path(os.path.realpath(directory)) if directory.is_symlink() else directory.absolute()


def quantize(request: QuantizeRequest, output: Output, *, ask: Ask | None) -> int:
    """Plan, ask, fetch, quantize, verify.

    Args:
        request: what is asked for.
        output: the streams.
        ask: puts a question to the user; None where nobody is there to answer.

    Returns:
        0, or 130 if the user said no or stopped it.

    Raises:
        LocaldiffError, QuantError: everything that a user can do something about.
    """
    from localdiff.commands.quantizing.flow import Quantization
    from localdiff.commands.quantizing.verification import verify_alone

    _refuse_contradictions(request)
    _refuse_mount_point(request.target)
    if request.verify_only:
        return verify_alone(_existing(request), output)
    return Quantization(request, output, ask).run()


def _refuse_contradictions(request: QuantizeRequest) -> None:
    if request.verify_only:
        for name in ("dry_run", "stream", "force"):
            if getattr(request, name):
                option = f"--{name.replace('_', '-')}"
                raise UsageError(f"`--verify-only` and `{option}` exclude each other", "leave out one of the two")


def _refuse_mount_point(target: Path) -> None:
    if os.path.ismount(target):
        raise UsageError(
            f"`{target}` is where a disk is mounted, and cannot be renamed",
            f"name a directory in it, for example `--output {target / 'diffusiongemma-4bit'}`",
        )


def _existing(request: QuantizeRequest) -> Path:
    """The directory that `--verify-only` speaks of: the named one, or what the same command would have written."""
    if request.output is None:
        named = paths.expanded(request.model)
        if (named / store.MANIFEST).is_file():
            return named
        if (directory := quantized_directory(request.model)) is not None:
            return directory
    return request.target
