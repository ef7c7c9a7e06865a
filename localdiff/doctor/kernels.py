"""The fast paths: the kernel in C on a CPU; a GPU's kernels, and whether captured steps compute what launched ones do.

Knows the demo model and its steps as CUDA graphs; knows nothing about kernels. Other modules compare layers and a first
step with what is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch

from localdiff.doctor.finding import Finding
from localdiff.engine import Engine
from localdiff.events import DenoiseStep
from localdiff.identity import DEMO
from localdiff.options import GenerateOptions
from localdiff.sizes import counted
from quant.cpu.native.support import native_library
from quant.cuda.support import why_unsupported
from quant.cuda.switches import PLAIN, Part, given_up, switched_off
from quant.cuda.timed import timed_count
from quant.unsupported import Unsupported

PROMPT = "Write a long story about a queen and a mill."
OPTIONS = GenerateOptions(max_tokens=288, seed=0, context_size=512)
"""Three blocks, if the answer is as long on this GPU. A step is captured on its second run: the one without a commit in
the first block, and the one with a commit, which begins each later block, in the third."""
GRAPHS = 2
_REPORT = "please report it with `localdiff doctor --report`"
NATIVE = "native kernel on cpu"


def check_native_kernel(devices: Sequence[torch.device]) -> list[Finding]:
    """One finding where models compute on the CPU; its kernel makes no difference to a GPU.

    Raises:
        SwitchError: an environment variable has an invalid value.
    """
    if any(device.type == "cuda" for device in devices):
        return []
    library = native_library()
    if not isinstance(library, Unsupported):
        attention = library.attention.instructions
        facts = {"instructions": library.instructions, "attention": attention}
        text = f"compiled for {library.instructions} and {attention}; its products and attention are correct"
        return [Finding(subject=NATIVE, status="ok", text=text, facts=facts)]
    finding = partial(Finding, subject=NATIVE, facts={"instructions": None, "attention": None})
    if not library.remedy:
        return [finding(status="skip", text=library.reason)]
    text = f"{library.reason}, so a quantized model decodes its experts before it multiplies them"
    public = "the native kernel is not used"  # a compiler's message has paths in it
    return [finding(status="warn", text=text, advice=library.remedy, public=public)]


def check_kernels(device: torch.device) -> list[Finding]:
    """Kernels and captured steps of a CUDA device."""
    if device.type != "cuda":
        return []
    subject = f"GPU kernels on {device}"
    if why_unsupported(device) is None:
        engine = Engine.load(DEMO, device=str(device), dtype="bf16", offline=True, context_size=512)
        if why_unsupported(device) is None:  # else a kernel failed in the steps that loading takes
            timed = timed_count(device)
            tiles = f"{timed} timed on this GPU" if timed else "the usual ones; `localdiff tune` may find faster ones"
            finding = replace(compare_captured(engine, subject), details=[f"tiles: {tiles}"])
            return [_without(given_up(), finding) if given_up() else finding]
    unsupported = why_unsupported(device)
    return [
        Finding(
            subject=subject,
            status="warn",
            text=f"{unsupported}, so a quantized model decodes its experts one by one",
            advice=None if unsupported is None else unsupported.remedy,
            facts={"device": str(device), "path": "dynamic step"},
        )
    ]


def _without(parts: Sequence[Part], finding: Finding) -> Finding:
    """A finding about the kernels that are left, after those of some parts failed."""
    words = ",".join(parts)
    return replace(
        finding,
        status="fail" if finding.status == "fail" else "warn",
        text=f"kernels of `{words}` fail, and torch computes these parts, which is slower; {finding.text}",
        advice=finding.advice or f"`{PLAIN}={switched_off()}` leaves them out from the start; {_REPORT}",
        facts={**finding.facts, "given_up": list(parts)},
    )


def compare_captured(engine: Engine, subject: str) -> Finding:
    """The steps of an engine as it takes them, and launched one by one: the same kernels, and so the same bits."""
    captured = _drafts(engine)
    denoiser = engine.denoiser
    taken, graphs = denoiser.path_taken, denoiser.graphs
    path = str(denoiser)
    facts = {"device": engine.identity.device, "path": path, "steps": len(captured), "graphs": graphs}
    finding = partial(Finding, subject=subject, facts=facts)
    if not denoiser.path.captured:
        return finding(status="ok", text=f"kernels run, and are launched one by one ({path})")
    engine.denoiser = denoiser.without_graphs()
    launched = _drafts(engine)
    if captured == launched and not taken.captured:
        return finding(
            status="warn",
            text=f"steps could not be captured as a CUDA graph, so that their kernels are launched one by one ({path})",
            advice="another version of torch or of the driver may help; the warning says what was refused",
        )
    if captured == launched:
        how = f"{len(captured)} steps, captured as {counted(graphs, 'CUDA graph')},"
        text = f"{how} give the same results as steps launched one by one ({path})"
        if graphs < GRAPHS:
            text += "; the answer ended before a step with a commit was replayed"
        return finding(status="ok", text=text)
    return finding(
        status="fail",
        text="captured steps give different results from steps launched one by one",
        advice=f"set {PLAIN}=graph, and {_REPORT}",
    )


def _drafts(engine: Engine) -> list[tuple[int, ...]]:
    events = engine.generate(PROMPT, OPTIONS)
    return [event.argmax_ids for event in events if isinstance(event, DenoiseStep)]
