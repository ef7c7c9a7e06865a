"""The steps of `localdiff quantize`, from a request to a verified directory, and what is printed between them.

    1 what is there ─► 2 headers ─► 3 plan ─► 4 disks ─► 5 question ─► 6 fetch, quantize, verify ─► 7 summary

From step 2 on no other process can work on the same output; any number at once may find it finished and sound. Knows
the order of the steps and the user's answers; `localdiff.quantizing` and `quant.jobs` carry them out.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

from localdiff import paths
from localdiff.checkpoints import model_store
from localdiff.checkpoints.stored_model import is_demo
from localdiff.checkpoints.verification_record import State, state_of
from localdiff.commands.loading import hashing_shown_by
from localdiff.commands.quantize import verification
from localdiff.commands.quantize.display import Display
from localdiff.commands.quantize.existing import bring_up_to_date, damage_of, is_kept
from localdiff.commands.quantize.source_check import (
    are_here,
    lacked_by,
    require_runnable,
    require_texts,
    uncompared_copies,
)
from localdiff.engine.loadable import lacking
from localdiff.errors import INTERRUPTED, ResourceError, UsageError
from localdiff.failures import gpu_failure, keep_what_failed
from localdiff.hub.downloads import WORKERS, Downloads
from localdiff.hub.problems import UnreachableError
from localdiff.load.devices import resolve_device
from localdiff.machine.disk_space import shortage
from localdiff.machine.output_lock import locked
from localdiff.quantizing.card import example_prompt
from localdiff.quantizing.origin import Origin, find_origin
from localdiff.quantizing.plan_summary import PlanSummary
from localdiff.quantizing.planned_job import PlannedJob, offline_summary
from localdiff.quantizing.request import QuantizeRequest
from localdiff.quantizing.weight_fetcher import WeightFetcher
from localdiff.quoting import printable, shell_word
from localdiff.sizes import shown_size, shown_time
from localdiff.ui.interrupt import cancel_on_interrupt
from localdiff.ui.output import Output
from localdiff.ui.progress import progress_display
from localdiff.ui.question import confirmed
from localdiff.ui.status import status_line
from quant.files.manifest import read_manifest
from quant.jobs.events import JobFinished, JobStopped, OutputWritten, ShardWritten
from quant.jobs.job import Job
from quant.jobs.run import run
from quant.planning.encoder import Encoder
from quant.planning.plan import describe_plan, make_plan
from quant.recipe import Recipe
from quant.released import MODEL

CONTINUE = "Run the same command to continue."
"""Printed when a job is stopped before it is finished."""


class Quantization:
    """One run of `localdiff quantize`."""

    def __init__(self, request: QuantizeRequest, recipe: Recipe, output: Output) -> None:
        self._request, self._recipe, self._output = request, recipe, output
        self._target = request.target

    def run(self) -> int:
        """See `quantize`."""
        # 1. what is there
        found, damaged = state_of(self._target), dict[str, str]()
        if is_kept(self._request):
            damaged = damage_of(self._request, self._output)
            if not damaged:
                return self._nothing_to_do()
        with nullcontext() if self._request.dry_run else self._alone(found):
            return self._make(damaged)

    @contextmanager
    def _alone(self, found: State) -> Iterator[None]:
        """Keeps other processes from the output, and checks that nobody has changed it since it was `found`.

        Raises:
            UsageError: another process is working on it, or has changed it.
        """
        with locked(self._target) as is_held:
            if not is_held:
                self._output.warning(
                    f"`{self._target.parent}` is on a file system without locks: two jobs with the same output at the "
                    "same time would spoil it"
                )
            if state_of(self._target) != found:
                raise UsageError(
                    f"`{self._target}` was changed by another process while it was looked at",
                    "run the same command again",
                )
            yield

    def _make(self, damaged: Mapping[str, str]) -> int:
        """All the steps after the first, if there is something to do."""
        encoder = encoder_named(self._request.device)
        # 2. headers
        try:
            origin = self._find_origin(read_manifest(self._target).revision if damaged else None)
        except UnreachableError as error:
            return self._without_the_hub(encoder, error)
        # 3. plan
        planned = self._plan(origin, encoder, damaged)
        if self._request.dry_run:
            if (lack := _lack_of_space(planned)) is not None:
                self._output.warning(f"{lack.message}; {lack.hint}")
            return 0
        # 4. disks, and 5. the question
        agreed = self._agree(planned)
        if agreed is None:
            self._note("Nothing was done.")
            return INTERRUPTED
        # 6. fetch, quantize, verify
        try:
            finished = self._carry_out(agreed)
        except SystemExit:  # terminated
            self._note(f"Terminated. Finished output files are kept.\n{CONTINUE}")
            raise
        except RuntimeError as error:
            if encoder.device.type == "cuda" and (failed := _gpu_problem(error)) is not None:
                raise failed from error
            raise
        # 7. summary
        if finished is None:
            return INTERRUPTED
        self._summarize(finished, agreed)
        self._output.stdout.write_path(self._target)
        return 0

    def _nothing_to_do(self) -> int:
        """End with success where the output exists: a script that prepares a machine may run twice.

        Raises:
            OutputError, WeightsError: as `bring_up_to_date`.
        """
        copied = bring_up_to_date(self._request, self._output)
        said = "Already here and intact: nothing was made."
        if copied:
            names = ", ".join(f"`{name}`" for name in copied)
            said = f"Already here and intact; copied again, as changed in `{printable(self._request.model)}`: {names}."
        self._note(f"{said} {self._run_it()}\n`--force` rebuilds it.")
        self._output.stdout.write_path(self._target)
        return 0

    def _find_origin(self, made_from: str | None) -> Origin:
        """The requested weights; those of revision `made_from` if an output made from it is to be repaired."""
        request = self._request
        with status_line(self._output) as status:
            status.show(f"looking at {printable(request.model)}")
            origin = find_origin(
                request.model, self._recipe, revision=request.revision or made_from, offline=request.offline
            )
        if request.stream and origin.repository is None:
            raise UsageError(
                f"`--stream` deletes what it has fetched, and `{request.model}` is a directory", "leave out `--stream`"
            )
        return origin

    def _plan(self, origin: Origin, encoder: Encoder, damaged: Mapping[str, str]) -> PlannedJob:
        """The job, once the output can be made and its plan has been shown."""
        with status_line(self._output) as status:
            require_runnable(origin)  # recognizes weights that another program quantized; a recipe only knows tensors
            planned = PlannedJob(
                origin=origin,
                plan=make_plan(self._recipe, origin.files),
                target=self._target,
                streams=self._request.stream,
                force=self._request.force,
                damaged=damaged,
                encoder=encoder,
                show=hashing_shown_by(status),
            )
            copies = uncompared_copies(origin, planned.plan)
            if not self._request.dry_run:
                planned.require_possible()
            summary = planned.summary()
        self._show(summary)
        self._warn_of(lacked_by(origin), copies)
        return planned

    def _without_the_hub(self, encoder: Encoder, error: UnreachableError) -> int:
        """Plan from the built-in description, if there is one, and stop."""
        if self._request.model != MODEL:
            raise error
        is_dry = self._request.dry_run  # otherwise the error is raised
        self._show(offline_summary(self._request, describe_plan(self._recipe), encoder, error if is_dry else None))
        if not is_dry:
            raise error
        return 0

    def _show(self, summary: PlanSummary) -> None:
        is_asked = self._output.ask is not None and not self._request.yes
        if self._output.quiet and not self._request.dry_run and not is_asked:
            return
        stream = self._output.stdout if self._request.dry_run else self._output.stderr
        stream.write("".join(f"{printable(line)}\n" for line in summary.lines(stream.room)))

    def _warn_of(self, lacked: tuple[str, ...], copies: tuple[str, ...]) -> None:
        """Warn of files that the result will lack, and of tensors that are left out as copies without a comparison."""
        if lacked:
            names = " and no ".join(f"`{name}`" for name in lacked)
            them = "them" if lacked[1:] else "one"
            self._output.warning(f"there is no {names}, and without {them} the result cannot be run")
        if copies:
            many = f" and {len(copies) - 1} more" if copies[1:] else ""
            self._output.warning(
                f"left out as copies of others, uncompared: `{copies[0]}`{many}; those of a directory are compared"
            )

    def _note(self, text: str) -> None:
        if not self._output.quiet:
            self._output.stderr.write(text + "\n")

    def _agree(self, planned: PlannedJob) -> PlannedJob | None:
        """What the user agrees to, or None.

        Raises:
            ResourceError: it does not fit on the disks.
            UsageError: nobody can agree.
        """
        lack, ask = _lack_of_space(planned), self._output.ask
        if lack is None:
            otherwise = "`--yes` starts without asking; `--dry-run` only shows the plan"
            return planned if self._request.yes or confirmed(ask, "Continue?", otherwise=otherwise) else None
        streamed = _streamed(planned)
        if streamed is None or shortage(streamed.mounts) or ask is None or self._request.yes:
            raise lack
        offer = (
            f"This does not fit: {lack.message}.\n`--stream` deletes what it has read and needs {_needed(streamed)}."
        )
        return streamed if ask(f"{offer} Stream?") else None

    def _carry_out(self, planned: PlannedJob) -> JobFinished | None:
        """Run the job; None if it was stopped."""
        stop = threading.Event()
        origin = planned.origin
        scratch = planned.scratch if planned.streams else None
        ended: JobFinished | JobStopped | None = None
        written: State | None = None
        with ExitStack() as stack:
            stack.enter_context(cancel_on_interrupt(stop))
            progress = stack.enter_context(progress_display(self._output, interrupted=stop.is_set))
            display = Display(progress, planned.to_fetch, {shard.file: shard.nbytes for shard in planned.plan.shards})
            downloads = None
            if origin.repository is not None:
                workers = WORKERS if scratch is None else 1
                downloads = Downloads(origin.repository, display, directory=scratch, workers=workers)
                stack.enter_context(downloads)
            fetcher = WeightFetcher(origin, downloads, scratch=scratch, stopped=stop.is_set)
            fetcher.begin(shard.source.name for shard in planned.unfinished)
            for event in run(_reading_through(fetcher, planned), cancelled=stop.is_set):
                display.on_event(event)
                match event:
                    case ShardWritten():
                        fetcher.record(event.source, event.source_sha256)
                    case OutputWritten():
                        written = state_of(Path(event.directory))
                    case JobFinished() | JobStopped():
                        ended = event
        if isinstance(ended, JobFinished):
            verification.record(self._target, self._output, written)
            return ended
        if ended is not None:
            self._say_stopped(ended, planned)
        return None

    def _say_stopped(self, stopped: JobStopped, planned: PlannedJob) -> None:
        kept = f"{stopped.finished} of {len(planned.plan.shards)} output files are finished and kept"
        if planned.streams:
            kept += "; a download that was whole, and had not become such a file yet, starts over"
        elif planned.to_fetch:
            kept += ", and so is what has been downloaded"
        self._note(f"Stopped. {kept}.\n{CONTINUE}")

    def _summarize(self, finished: JobFinished, planned: PlannedJob) -> None:
        lines = []
        if finished.source_bytes:
            rate = f"{shown_size(finished.source_bytes / max(finished.seconds, 1e-9))}/s"
            amount = f"quantized {shown_size(finished.source_bytes)} in {shown_time(finished.seconds)}: {rate}"
            lines.append(amount + (", waiting for downloads not counted" if planned.to_fetch else ""))
        lines += verification.worst_lines(read_manifest(self._target))
        origin = planned.origin
        if origin.repository is not None and not planned.streams:
            size = shown_size(planned.plan.source_bytes)
            lines.append(
                f"The published weights ({size}) stay in the Hub's cache; "
                f"`hf cache rm model/{origin.model}` deletes them."
            )
        lines.append(f"{shown_size(finished.nbytes)}, verified. {self._run_it()}")
        self._note("\n".join(lines))

    def _run_it(self) -> str:
        """How to run the result, and what must be added first: a fine-tune may have been saved without a tokenizer."""
        names = " and a ".join(f"`{name}`" for name in lacking(self._target))
        return f"{f'Copy a {names} into it first. ' if names else ''}Run it: {run_command(self._target)}"


def encoder_named(name: str) -> Encoder:
    """The encoder for a value of `--device`: with `auto`, the first GPU if it has room, otherwise the CPU.

    Raises:
        UsageError: no such kind of device.
        ResourceError: this machine has no such device.
    """
    return Encoder.automatic() if name == "auto" else Encoder.on(resolve_device(name))


def _reading_through(fetcher: WeightFetcher, planned: PlannedJob) -> Job:
    """A planned job, with what only a run can open: its weight files, and small files that are being fetched."""
    origin = planned.origin
    texts = {name: partial(fetcher.read, name) for name in origin.small_files}
    job = replace(
        planned.job,
        open_source=fetcher.open,
        hash_sources=origin.hash_sources,  # without the status line, which gives way to the job's progress
        files={**planned.job.files, **texts},
    )
    return job if are_here(origin) else replace(job, inspect=partial(require_texts, origin))


def _gpu_problem(error: RuntimeError) -> ResourceError | None:
    """The error to report if the encoding GPU fails or runs out of memory; None for any other error."""
    keep_what_failed(error)
    said = "is out of memory" if type(error).__name__ == "OutOfMemoryError" else None  # torch's; the host has no class
    if said is None and (words := gpu_failure(error)) is not None:
        said = f"failed ({words})"
    if said is None:
        return None
    return ResourceError(
        f"the GPU {said}", "finished output files are kept: run the same command again, or with `--device cpu`"
    )


def run_command(directory: Path) -> str:
    """The command that runs the model in a directory."""
    model = f" -m {shell_word(directory)}"
    if directory.parent == paths.models_dir().absolute():
        model = "" if model_store.is_default(directory.name) else f" -m {shell_word(directory.name)}"
    return f'localdiff run{model} "{example_prompt(is_demo=is_demo(directory))}"'


def _streamed(planned: PlannedJob) -> PlannedJob | None:
    """The same job, deleting each downloaded file once it is read; None if that changes nothing."""
    return None if planned.origin.repository is None or planned.streams else replace(planned, streams=True)


def _needed(planned: PlannedJob) -> str:
    return shown_size(sum(mount.needed for mount in planned.mounts))


def _lack_of_space(planned: PlannedJob) -> ResourceError | None:
    """The error that a job does not fit on the disks; None if it does."""
    short = shortage(planned.mounts)
    if short is None:
        return None
    hints = ["`--output DIR` uses another disk"]
    if (streamed := _streamed(planned)) is not None:
        hints = [f"`--stream` needs {_needed(streamed)}", *hints, "`HF_HOME` moves the download"]
    return ResourceError(short, "; ".join(hints))
