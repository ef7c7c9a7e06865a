"""Verification of a quantized directory against its manifest, with its messages.

Knows the messages and the record of verifications; `quant.jobs.verify` defines what sound means.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from localdiff.checkpoints import verification_record
from localdiff.checkpoints.verification_record import State
from localdiff.commands.quantize.display import CHECK
from localdiff.errors import WeightsError
from localdiff.quoting import printable
from localdiff.sizes import counted, shown_size
from localdiff.ui.output import Output
from localdiff.ui.progress import ProgressDisplay, progress_display
from quant import MANIFEST_FILE
from quant.codecs import CODECS
from quant.errors import DamagedError
from quant.files.manifest import Manifest, read_manifest
from quant.jobs.events import FileChecked
from quant.jobs.verify import AGAIN, verify, worst_tensors

_MAY_BE_SOUND = "it may be sound: let its owner give you the permission to read it, then try again"


class BarredError(DamagedError):
    """This user may not read a file, so that nothing is known about it."""

    exit_code = WeightsError.exit_code


def verify_alone(directory: Path, output: Output) -> int:
    """Check a directory and say what was found; its path goes to stdout.

    Raises:
        WeightsError: it does not exist.
        DamagedError: it does not match its manifest, or cannot be read.
    """
    if not (directory / MANIFEST_FILE).is_file():
        raise WeightsError(
            f"there is no quantized model in `{directory}`",
            "`localdiff models` lists those that are here; `localdiff quantize` makes one",
        )
    problems = list(find_damage(directory, output).values())
    if problems:
        for problem in problems[:-1]:
            output.error(problem)
        raise DamagedError(problems[-1], AGAIN)
    manifest = read_manifest(directory)
    if not output.quiet:
        lines = [
            f"{len(manifest.shards) + len(manifest.files)} files, {shown_size(manifest.nbytes)} of weights: intact"
        ]
        output.stderr.write("\n".join([*lines, *worst_lines(manifest)]) + "\n")
    output.stdout.write_path(directory)
    return 0


def find_damage(directory: Path, output: Output) -> dict[str, str]:
    """Read every byte of a directory, and say which files are damaged and how; `localdiff models` then shows it.

    Nothing is recorded if it changed while it was read: the findings may be about its earlier state.

    Raises:
        DamagedError: its manifest cannot be read.
        BarredError: this user may not read a file.
    """
    since = verification_record.state_of(directory)
    try:
        with progress_display(output) as progress:
            found = list(_damaged_files(directory, progress))
    except DamagedError as error:
        if isinstance(error.__cause__, PermissionError):
            raise BarredError(error.message, _MAY_BE_SOUND) from error
        record(directory, output, since, damage=error.message)
        raise
    damage = {checked.file: checked.problem or "" for checked in found if not checked.is_barred}
    if damage:
        first, *others = damage.values()
        more = f", beside {counted(len(others), 'other damaged file')}" if others else ""
        record(directory, output, since, damage=first + more)
    if barred := [checked.problem or "" for checked in found if checked.is_barred]:
        for problem in (*damage.values(), *barred[:-1]):
            output.error(problem)
        refusal = BarredError(barred[-1], _MAY_BE_SOUND)
        if damage:
            refusal.exit_code = DamagedError.exit_code
        raise refusal
    if not damage:
        record(directory, output, since)
    return damage


def _damaged_files(directory: Path, progress: ProgressDisplay) -> Iterator[FileChecked]:
    manifest = read_manifest(directory)
    progress.start(CHECK, manifest.nbytes + sum(file.nbytes for file in manifest.files.values()), whole=True)
    done = 0
    for checked in verify(directory):
        done += checked.nbytes
        progress.show(CHECK, done, checked.file)
        if checked.problem is not None:
            yield checked
    progress.end(CHECK)


def worst_lines(manifest: Manifest) -> list[str]:
    """The tensors with the largest quantization error, as lines."""
    tensors = worst_tensors(manifest)
    if not tensors:
        return []
    limits = ", ".join(f"{codec.name} {100 * codec.error_limit:g} %" for codec in CODECS.values())
    return [
        f"largest relative errors (limits: {limits})",
        *(f"  {100 * error:6.2f} %  {scheme:<5}{printable(name)}" for name, scheme, error in tensors),
    ]


def record(directory: Path, output: Output, since: State | None = None, *, damage: str | None = None) -> None:
    """Record for `localdiff models` that a directory is sound, or its damage.

    Args:
        output: gets a note if it was not recorded, which is not a failure.
        since: its state before its bytes were read; None if the holder of its lock has just written it.
    """
    try:
        is_recorded = verification_record.record_finding(directory, damage, since=since)
        why = "" if is_recorded else f"is not recorded: `{directory}` was changed while it was read"
    except OSError as error:
        why = f"could not be recorded: {error.strerror}"
    if why and not output.quiet:
        what = "the time of verification" if damage is None else "the damage"
        output.stderr.write(f"note: {what} {why}\n")
