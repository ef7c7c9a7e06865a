"""When a block is done: rules over the drafts of successive denoise steps.

There are two conditions on a canvas, neither of them the entropy bound: its draft stays the same (stable), and its
mean entropy is small (confident). A rule says which of them it takes to stop.
Shape letters: L canvas.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from localdiff.diffusion.settings import SamplerSettings

StopRule: TypeAlias = Literal["both", "stable", "confident", "never"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What the stop test found in one step.

    Attributes:
        mean_entropy: in nats; it decided `confident`.
        stop: the rule's answer.
    """

    mean_entropy: float
    stable: bool
    confident: bool
    stop: bool


class StopTest:
    """Watches the drafts of one block; make a new one for each block.

    Args:
        pad_id: a draft of nothing but padding never counts as converged; models have an attractor there.
        rule: `both` is the reference's; `never` runs every step, for measurements.
    """

    def __init__(self, settings: SamplerSettings, *, pad_id: int, rule: StopRule = "both") -> None:
        self._drafts: deque[Tensor] = deque(maxlen=settings.stability)
        self._stability = settings.stability
        self._confidence = settings.confidence
        self._pad_id = pad_id
        self._rule = rule

    def judge(self, draft: Tensor, entropy: Tensor) -> Verdict:
        """Judges a step by its draft [L] (the argmax ids) and its entropies [L] in nats.

        Stable: the draft equals each of the last `stability` drafts, so at least `stability + 1` steps are needed; with
        `stability` 0 every draft is stable. Confident: the mean entropy is below the threshold.
        """
        full = len(self._drafts) == self._stability
        stable = full and all(torch.equal(draft, earlier) for earlier in self._drafts)
        self._drafts.append(draft)
        mean = entropy.mean()
        confident = bool(mean < self._confidence)
        answers = {"both": stable and confident, "stable": stable, "confident": confident, "never": False}
        stop = answers[self._rule] and not bool((draft == self._pad_id).all())
        return Verdict(mean_entropy=float(mean), stable=stable, confident=confident, stop=stop)
