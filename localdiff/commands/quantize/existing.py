"""An output that already exists: kept, refreshed where small files of its source have changed, or refused.

Knows the messages about it; `localdiff.quantizing.finished` says how it differs from the request.
"""

from __future__ import annotations

from localdiff.checkpoints.verification_record import verified_at
from localdiff.commands.loading import hashing_shown_by
from localdiff.commands.quantize import verification
from localdiff.commands.quantize.source_check import require_runnable
from localdiff.engine.loadable import require_text, require_weights
from localdiff.load import open_weights
from localdiff.machine.output_lock import locked
from localdiff.quantizing.card import documents
from localdiff.quantizing.finished import copied_files, difference
from localdiff.quantizing.memory_to_run import accounts
from localdiff.quantizing.origin import find_origin
from localdiff.quantizing.request import QuantizeRequest
from localdiff.ui.output import Output
from localdiff.ui.status import status_line
from quant import MANIFEST_FILE
from quant.errors import DamagedError, OutputError
from quant.files.manifest import Manifest, read_manifest
from quant.jobs.refresh import refresh, stale
from quant.jobs.replaceable import require_free
from quant.planning.plan import make_plan


def is_kept(request: QuantizeRequest) -> bool:
    """Whether there is a finished output to keep.

    Raises:
        OutputError: the target is something else altogether.
    """
    if request.dry_run:
        return False
    require_free(request.target, force=request.force)
    return (request.target / MANIFEST_FILE).is_file() and not request.force


def damage_of(request: QuantizeRequest, output: Output) -> dict[str, str]:
    """What is wrong with the files of a finished output, which is then repaired.

    Raises:
        DamagedError: not even its manifest can be read.
        OutputError: it was made from something else or in another way, so that it is neither kept nor repaired.
    """
    target = request.target
    try:
        manifest = read_manifest(target)
    except DamagedError:
        pass  # found again, and recorded, below
    else:
        _require_same(manifest, request, output)
    try:
        return verification.find_damage(target, output)
    except verification.BarredError:
        raise
    except DamagedError as error:
        raise DamagedError(f"`{target}` is damaged: {error.message}", "`--force` rebuilds it") from error


def bring_up_to_date(request: QuantizeRequest, output: Output) -> tuple[str, ...]:
    """Copy the small files of the source again that have changed since a sound output was made.

    Returns:
        The names of the copied files.

    Raises:
        OutputError: it was made from something else, or in another way; or a file that is not the model's has the
            name of a file to copy.
        WeightsError: it cannot be run, and was made without a check that it can.
    """
    target = request.target
    manifest = read_manifest(target)
    _require_same(manifest, request, output)  # again: another process may have replaced it while its files were read
    changed = stale(manifest, copied_files(request))
    if changed:
        contents = _renewed(manifest, request)
        with locked(target):
            is_verified = verified_at(target) is not None  # otherwise a file was changed since all were read
            refresh(target, {name: contents[name] for name in stale(manifest, contents)})
            if is_verified:
                verification.record(target, output)
    weights = open_weights(target)
    require_weights(weights)
    require_text(weights)
    return changed


def _renewed(manifest: Manifest, request: QuantizeRequest) -> dict[str, bytes]:
    """Every small file as the source has it now, including the notice that lists them."""
    origin = find_origin(request.model, manifest.recipe)
    require_runnable(origin)
    plan = make_plan(manifest.recipe, origin.files)
    texts = documents(origin, plan, accounts(plan, origin.config), manifest.tool)
    return {name: origin.read(name) for name in origin.small_files} | texts


def _require_same(manifest: Manifest, request: QuantizeRequest, output: Output) -> None:
    """Refuse an output that was made from something else, or in another way.

    Raises:
        OutputError: it was.
    """
    with status_line(output) as status:
        other = difference(manifest, request, hashing_shown_by(status))
    if other is not None:
        raise OutputError(
            f"`{request.target}` already exists, and {other}",
            "another `--output` makes a second one, `--force` rebuilds it",
        )
