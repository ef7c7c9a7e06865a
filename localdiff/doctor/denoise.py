"""One real denoise step of the demo model, through the engine that users run.

Knows a prompt, fixed noise, and the stored draft of that step; knows nothing about how a step works. Whenever the
demo model is replaced, `python -m localdiff.doctor.denoise` has to be run to store the draft again: the engine computes
it on the CPU, and the tests compare that with the reference implementation.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from localdiff.diffusion.noise import SeededNoise
from localdiff.doctor.finding import Finding
from localdiff.doctor.product import integers
from localdiff.engine import Engine
from localdiff.events import DenoiseStep
from localdiff.identity import DEMO
from localdiff.options import GenerateOptions
from localdiff.strict_json import decode, parse

VALUES_FILE = Path(__file__).parent / "values.json"

PROMPT = "Spell the word canvas."
AGREEMENT = 0.98
"""Share of the draft that must be the same: a tie between two ids may be broken differently on another machine."""
NATS = 0.02
"""Largest difference of an entropy, in nats."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Values:
    """The first denoise step of the demo model.

    Attributes:
        argmax_ids: the draft.
        entropies: in nats, rounded.
    """

    argmax_ids: tuple[int, ...]
    entropies: tuple[float, ...]


def load_values(path: Path = VALUES_FILE) -> Values:
    """The values that ship with the package."""
    return decode(Values, parse(path.read_bytes()), "values")


class FixedNoise(SeededNoise):
    """Noise without a generator: the same canvas everywhere, and the median of each distribution as its sample."""

    def __init__(self) -> None:
        super().__init__(0)

    def canvas(self, length: int, vocab_size: int) -> Tensor:
        return integers(length, 1) % vocab_size

    def start_step(self, length: int) -> None:
        self._uniforms = torch.full((length,), 0.5)


def first_step(device: str) -> tuple[DenoiseStep, float]:
    """The first denoise step of the demo model in fp32, and the seconds that loading it took.

    Raises:
        WeightsError: the demo model cannot be read.
        ResourceError: the device cannot be used.
    """
    began = time.perf_counter()
    engine = Engine.load(DEMO, device=device, dtype="fp32", offline=True, context_size=512)
    load_seconds = time.perf_counter() - began
    for event in engine.generate(PROMPT, GenerateOptions(max_tokens=1, seed=0, context_size=512), noise=FixedNoise()):
        if isinstance(event, DenoiseStep):
            return event, load_seconds
    raise AssertionError("a run has a denoise step")


def check_denoise(stored: Values, device: str) -> list[Finding]:
    """The step on a device, compared with the stored one; raises as `first_step`."""
    step, load_seconds = first_step(device)
    same = sum(one == other for one, other in zip(step.argmax_ids, stored.argmax_ids, strict=True))
    share = same / len(stored.argmax_ids)
    off = max(abs(one - other) for one, other in zip(step.entropies, stored.entropies, strict=True))
    facts = {
        "device": device,
        "agreement": share,
        "largest_entropy_difference": off,
        "load_seconds": load_seconds,
        "step_seconds": step.seconds,
    }
    text = f"{same} of {len(stored.argmax_ids)} draft tokens match the stored ones, entropies differ by {off:.1g} nats"
    finding = partial(Finding, subject=f"denoise step on {device}", text=text, facts=facts)
    if share >= AGREEMENT and off <= NATS:
        return [finding(status="ok")]
    advice = (
        "answers would be wrong: use another `--device`, try another version of torch, and please report it with "
        "`localdiff doctor --report`"
    )
    return [finding(status="fail", advice=advice)]


def write_values(path: Path = VALUES_FILE) -> Values:
    """Compute and store the values."""
    step, _ = first_step("cpu")
    values = Values(argmax_ids=step.argmax_ids, entropies=tuple(round(entropy, 5) for entropy in step.entropies))
    path.write_text(json.dumps(asdict(values)) + "\n", encoding="utf-8")
    return values


if __name__ == "__main__":
    written = write_values()
    print(f"{VALUES_FILE}: {len(written.argmax_ids)} positions", file=sys.stderr)
