"""`localdiff quantize`: published weights in, verified quantized model out.

Knows which requests are contradictory; the steps are in `flow`. Nothing heavy is imported before it is needed.
"""

from __future__ import annotations

import os
from pathlib import Path

from localdiff import paths
from localdiff.checkpoints.model_reference import resolve_local
from localdiff.checkpoints.model_store import quantized_directory
from localdiff.commands.loading import IMPORTING
from localdiff.config import KEYS
from localdiff.errors import UsageError
from localdiff.machine.garbage import importing
from localdiff.quantizing.request import QuantizeRequest
from localdiff.quoting import shell_word
from localdiff.ui.interrupt import interruptible
from localdiff.ui.output import Output
from localdiff.ui.status import status_line
from quant import MANIFEST_FILE, recipe_named
from quant.names import output_directory

__all__ = ["QuantizeRequest", "quantize"]


def quantize(request: QuantizeRequest, output: Output) -> int:
    """Plan, ask, fetch, quantize, verify.

    Returns:
        0, or 130 if the user said no or stopped it.

    Raises:
        LocaldiffError, QuantError: any error that a user can act on.
    """
    output.stdout.require()
    recipe = recipe_named(request.recipe)
    KEYS["device"].checked(request.device)
    _refuse_contradictions(request)
    _refuse_target(request.target, is_made=not request.verify_only)
    if not request.verify_only:
        resolve_local(request.model, revision=request.revision)
    with status_line(output) as status, interruptible(), importing():
        status.show(IMPORTING)
        from localdiff.commands.quantize.flow import Quantization
        from localdiff.commands.quantize.verification import verify_alone

    if request.verify_only:
        return verify_alone(_existing(request), output)
    return Quantization(request, recipe, output).run()


def _refuse_contradictions(request: QuantizeRequest) -> None:
    if request.verify_only:
        for name in ("dry_run", "stream", "force"):
            if getattr(request, name):
                option = f"--{name.replace('_', '-')}"
                raise UsageError(f"`--verify-only` and `{option}` exclude each other", "leave out one of the two")


def _refuse_target(target: Path, *, is_made: bool) -> None:
    """Refuse a directory that cannot become a model, or whose name would belong to another output."""
    if os.path.ismount(target):
        raise UsageError(
            f"`{target}` is a mount point, and cannot be renamed",
            f"name a directory in it, for example `--output {shell_word(target / 'diffusiongemma-4bit')}`",
        )
    if is_made and (other := output_directory(target)) != target:  # a job for that one would take it over, or delete it
        raise UsageError(
            f"`{target.name}` is the name of `{other.name}` while it is unfinished or being deleted",
            "choose another name",
        )


def _existing(request: QuantizeRequest) -> Path:
    """The directory that `--verify-only` checks: the named one, or the one that the same command would have written."""
    if request.output is None:
        path = paths.expanded(request.model)
        if (path / MANIFEST_FILE).is_file():
            return path.absolute()
        if (directory := quantized_directory(request.model)) is not None:
            return directory
    return request.target
