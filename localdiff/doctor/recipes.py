"""The memory that each recipe needs, compared with what each device has.

Uses the memory account that the loader uses; allocates nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch

from localdiff.doctor.finding import Finding
from localdiff.doctor.torch_devices import Device
from localdiff.memory_account import SLACK_BESIDES_CONTEXT, MemoryAccount, held_by_plan
from localdiff.sizes import shown_size
from quant.planning.plan import Plan, describe_plan
from quant.recipe import RECIPES

LONG_CONTEXT = 32_768
_SMALLEST = "4bit-small"
_SMALL_GPU = (
    "close other programs that use it; layers that do not fit stay in host memory, which is slower: fewest of them "
    f"with `localdiff quantize --recipe {_SMALLEST}`"
)


def account_of(plan: Plan, context: int, device: torch.device) -> MemoryAccount:
    """The free memory that a model of the released size needs on a kind of device, as the loader counts it."""
    slack = SLACK_BESIDES_CONTEXT if device.type == "cuda" else 0
    return MemoryAccount.of(held_by_plan(plan), context=context, slack=slack)


def check_recipes(devices: Sequence[Device], *, context: int, limit: int | None = None) -> list[Finding]:
    """A finding for every device: which recipes it holds at this context, and at a long one.

    Args:
        limit: maximum bytes to use on each, as `max_memory` says.
    """
    plans = {name: describe_plan(recipe) for name, recipe in RECIPES.items()}
    findings = [(device, _finding(device, plans, context, limit)) for device in devices if device.free is not None]
    gpus = [(device, finding) for device, finding in findings if device.device.type == "cuda"]
    holding = [device.device for device, finding in gpus if finding.facts["fit"]]
    return [
        _beside(finding, len(gpus) - 1, holding)
        if device.device.type == "cuda" and finding.status == "warn"
        else finding
        for device, finding in findings
    ]


def recipe_to_make(recipe: str, findings: Sequence[Finding]) -> str:
    """The recipe that `localdiff quantize` should make here: `recipe`, unless only others fit, or none fits a GPU.

    Args:
        findings: those of `check_recipes`; where there is a GPU, what fits the CPU does not count.
    """
    gpus = [finding.facts["fit"] for finding in findings if str(finding.facts["device"]).startswith("cuda")]
    fitting = [name for fit in gpus or [finding.facts["fit"] for finding in findings] for name in fit]
    if not fitting and any(_SMALLEST in (finding.advice or "") for finding in findings):
        return _SMALLEST
    return recipe if recipe in fitting or not fitting else str(fitting[0])


def _beside(finding: Finding, others: int, holding: Sequence[torch.device]) -> Finding:
    """The finding of a GPU that is too small, where there are other GPUs: a model goes to one that holds it."""
    if holding:
        return replace(finding, status="ok", advice=None, text=f"{finding.text}; `{holding[0]}` holds one")
    if not others or finding.advice != _SMALL_GPU:
        return finding
    return replace(finding, advice=_SMALL_GPU.replace("stay in", "go to the other GPUs, then stay in"))


def _finding(device: Device, plans: dict[str, Plan], context: int, limit: int | None) -> Finding:
    free = device.free or 0
    is_limited = limit is not None and limit < free
    if limit is not None:
        free = min(free, limit)
    contexts = sorted({context, LONG_CONTEXT})
    totals = {
        name: {context: account_of(plan, context, device.device).total for context in contexts}
        for name, plan in plans.items()
    }
    fitting = [name for name, needs in totals.items() if needs[context] <= free]
    facts = {
        "device": str(device.device),
        "free_bytes": device.free,
        "usable_bytes": free,
        "needed_bytes": {
            name: {str(context): total for context, total in needs.items()} for name, needs in totals.items()
        },
        "fit": fitting,
    }
    details = [_line(name, needs, free) for name, needs in totals.items()]
    finding = partial(Finding, subject=f"recipes on {device.device}", details=details, facts=facts)
    room = f"{shown_size(free)} allowed by `max_memory`" if is_limited else f"{shown_size(free)} free"
    if fitting:
        held = f"{room}, which holds {', '.join(fitting)} at {context:,} tokens of context"
        return finding(status="ok", text=held)
    smallest = min(totals, key=lambda name: totals[name][context])
    needed = totals[smallest][context]
    return finding(
        status="warn",
        text=f"{room}, and no recipe fits at {context:,} tokens of context: {smallest} takes {shown_size(needed)}",
        advice="a larger `max_memory` holds one" if needed <= (device.free or 0) else _advice(device),
    )


def _advice(device: Device) -> str:
    if device.device.type == "cpu":
        return "close other programs; what does not fit is read from the disk again in every pass, which is slow"
    return _SMALL_GPU


def _line(name: str, needs: dict[int, int], free: int) -> str:
    parts = [f"{shown_size(total)} at {context:,}" for context, total in needs.items()]
    fitting = [context for context, total in needs.items() if total <= free]
    verdict = "fits" if len(fitting) == len(needs) else f"fits at {max(fitting):,}" if fitting else "does not fit"
    return f"{name:<11} {', '.join(parts)}: {verdict}"
