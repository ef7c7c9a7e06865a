"""`localdiff trace check`: whether a trace is intact, and whether its run can be reproduced.

Knows the order of checks and the wording; computes nothing. Torch is imported only to run again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from localdiff.commands.loading import Loading, hashing_shown_by
from localdiff.commands.model_choice import ModelChoice
from localdiff.errors import INTERRUPTED, TraceError, UsageError, WeightsError
from localdiff.events import DenoiseStep, Event
from localdiff.identity import ModelIdentity
from localdiff.quoting import printable
from localdiff.sizes import counted
from localdiff.trace.hashing import Digests, digests_of
from localdiff.trace.header import Header
from localdiff.trace.opening import open_trace, shown_name
from localdiff.trace.repeat import before_stop, first_difference
from localdiff.trace.trace import Trace
from localdiff.ui.interrupt import cancel_on_interrupt
from localdiff.ui.output import Output
from localdiff.ui.status import StatusLine, progress_of, status_line

Run: TypeAlias = Callable[[threading.Event], Iterator[Event]]
Rerunnable: TypeAlias = tuple[ModelIdentity, Run]


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckRequest:
    """What the command line asks for.

    Attributes:
        file: a trace, or `example`.
        rerun: also run it again.
        model: the model to run, in place of the one that the trace names.
        adapter: the adapter to add, in place of the one that the trace names.
        device: where to run, in place of the trace's device.
        offline: never ask the Hub.
        yes: download the model without asking, if it is not here.
    """

    file: str
    rerun: bool = False
    model: str | None = None
    adapter: str | None = None
    device: str | None = None
    offline: bool = False
    yes: bool = False


def load_run(request: CheckRequest, header: Header, loading: Loading) -> Rerunnable:
    """The model of a trace, and the run of its header on it; torch is not imported before this."""
    choice = ModelChoice(
        model=request.model or header.model.name,
        device=request.device or header.machine.device,
        dtype=header.model.dtype,
        activations=header.model.activations,
        revision=None if request.model else header.model.revision,
        offline=request.offline,
        adapter=request.adapter or (None if header.model.adapter is None else header.model.adapter.name),
    )
    engine = choice.load(context_size=header.context_size, loading=loading)
    from localdiff.trace.runs import rerun

    return engine.identity, lambda cancel: rerun(engine, header, cancel=cancel)


def trace_check(request: CheckRequest, output: Output) -> int:
    """Check a trace, and print what was found.

    Returns:
        0, or 130 if the user stopped it.

    Raises:
        UsageError: a model, an adapter or a device is named without a rerun, or an adapter for a run without one.
        TraceError: the trace is damaged or ends early, or a rerun differs from it.
    """
    for option, value in (("-m", request.model), ("--adapter", request.adapter), ("--device", request.device)):
        if value is not None and not request.rerun:
            raise UsageError(f"`{option}` says how to run it again, and nothing is run", "add `--rerun`")
    trace = open_trace(request.file)
    name = printable(shown_name(request.file))
    steps = sum(len(block.steps) for block in trace.blocks)
    size = f"{counted(len(trace.blocks), 'block')}, {counted(steps, 'step')}"
    output.stdout.write(f"{name}: {size}, SHA-256 {trace.sha256}\n")
    if not trace.complete:
        raise TraceError(
            f"`{name}` ends early: the run was killed, or is still running",
            "the part it contains can still be replayed",
        )
    if not request.rerun:
        return 0
    if request.adapter is not None and trace.header.model.adapter is None:
        raise UsageError(f"`{name}` was recorded without an adapter", "leave out `--adapter`: with one it would differ")
    with status_line(output) as status:
        loading = Loading(status, request.model or trace.header.model.name, output, yes=request.yes)
        return _rerun(request, trace, output, status, load_run(request, trace.header, loading))


def _rerun(request: CheckRequest, trace: Trace, output: Output, status: StatusLine, rerunnable: Rerunnable) -> int:
    identity, run = rerunnable
    digests = digests_of(identity, hashing_shown_by(status))
    _same_files(request, trace.header, identity, digests)
    cancel = threading.Event()
    with cancel_on_interrupt(cancel):
        recorded = before_stop(trace.events)
        steps = sum(isinstance(event, DenoiseStep) for event in recorded)
        was_stopped = len(recorded) < len(trace.events)
        events = list(_with_progress(run(cancel), progress_of(output, status), steps if was_stopped else None))
    status.clear()
    if cancel.is_set():
        return INTERRUPTED
    if (difference := first_difference(recorded, events)) is not None:
        raise TraceError(f"the rerun gave a different result: {printable(difference)}", _why_different(trace.header))
    until = ", up to where the run was stopped," if was_stopped else ""
    output.stdout.write(f"rerun on {identity.device}: every value of {len(recorded)} events{until} is the same\n")
    return 0


def _why_different(header: Header) -> str:
    """The hint for a rerun with another result: where the run was recorded, and what may have changed it."""
    machine = header.machine
    others = "other devices and versions round differently"
    if any(message.role == "assistant" for message in header.messages):
        others += ", and so does a chat, which reads its context in pieces"
    if machine.device == "cpu":
        # A name may stand for several CPUs: a virtual machine, for example, often reports that of its host's family.
        others += (
            "; on a CPU the last bits depend on its vector instructions, which differ between machines of the same "
            "name, too, so that a difference is normal there"
        )
    return (
        f"it was recorded on {machine.device}, {printable(machine.hardware)}, with torch {printable(machine.torch)}; "
        f"{others}"
    )


def _with_progress(events: Iterable[Event], tell: Callable[[str], None], max_steps: int | None) -> Iterator[Event]:
    """Yields the events up to `max_steps` steps, and tells how far they are."""
    done = 0
    if max_steps == 0:
        return
    for event in events:
        yield event
        if isinstance(event, DenoiseStep):
            tell(f"rerunning: block {event.block}, step {event.step}")
            done += 1
            if done == max_steps:
                return


def _same_files(request: CheckRequest, header: Header, identity: ModelIdentity, digests: Digests) -> None:
    """Refuse weights, a vocabulary or an adapter other than the trace names."""
    adapter = header.model.adapter
    if adapter is not None and adapter.files is not None and adapter.files != digests.adapter:
        raise WeightsError(
            f"`{printable(str(identity.adapter))}` differs from the adapter that the run was recorded with",
            "`--adapter` names that one" if request.adapter is None else "leave out `--adapter`",
        )
    for what, recorded, here in (
        ("weights", header.model.weights, digests.weights),
        ("vocabulary", header.model.tokenizer, digests.tokenizer),
    ):
        if recorded is not None and recorded != here:
            raise WeightsError(
                f"`{printable(identity.model)}` has other {what} than the run was recorded with",
                "`-m` names the model that has them" if request.model is None else "leave out `-m`",
            )
