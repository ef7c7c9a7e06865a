"""The numbers that steer one block's denoising, and how they follow from a checkpoint's `generation_config.json`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError

# What the reference falls back to where a checkpoint says nothing (`_get_default_generation_params` in transformers).
REFERENCE_MAX_STEPS = 48
REFERENCE_ENTROPY_BOUND = 0.1
REFERENCE_T_MIN = 0.4
REFERENCE_T_MAX = 0.8
REFERENCE_STABILITY = 1
REFERENCE_CONFIDENCE = 0.005


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplerSettings:
    """Sampler settings of one run.

    Attributes:
        max_steps: most denoise steps a block may take, and what the temperature schedule is stretched over.
        cap: the loop is cut after so many steps; the schedule stays as it is. None does not cut.
        entropy_bound: in nats, see `sampler.accept`.
        t_min, t_max: temperatures the schedule runs between, `t_max` first.
        greedy: take the argmax in place of a sample.
        stability: steps in a row for which the draft must equal the one before; 0 asks nothing.
        confidence: mean entropy in nats that the canvas must stay under.

    Raises:
        UsageError: values that are out of range alone or together.
    """

    max_steps: int = REFERENCE_MAX_STEPS
    cap: int | None = None
    entropy_bound: float = REFERENCE_ENTROPY_BOUND
    t_min: float = REFERENCE_T_MIN
    t_max: float = REFERENCE_T_MAX
    greedy: bool = False
    stability: int = REFERENCE_STABILITY
    confidence: float = REFERENCE_CONFIDENCE

    def __post_init__(self) -> None:
        _require(self.max_steps >= 1, f"steps={self.max_steps} must be >= 1")
        _require(self.cap is None or self.cap >= 1, f"cap={self.cap} must be >= 1")
        _require(self.entropy_bound > 0, f"entropy_bound={self.entropy_bound} must be > 0")
        _require(self.t_min > 0, f"t_min={self.t_min} must be > 0")
        _require(self.t_min <= self.t_max, f"t_min={self.t_min} must be <= t_max={self.t_max}")
        _require(self.stability >= 0, f"stability={self.stability} must be >= 0")
        _require(self.confidence > 0, f"confidence={self.confidence} must be > 0")

    @property
    def steps(self) -> int:
        """Denoise steps a block can really take."""
        return self.max_steps if self.cap is None else min(self.cap, self.max_steps)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> SamplerSettings:
        """Settings of a parsed `generation_config.json`; absent and null keys take the reference's defaults."""
        sampler = config.get("sampler_config") or {}
        found = {
            "max_steps": config.get("max_denoising_steps"),
            "entropy_bound": sampler.get("entropy_bound"),
            "t_min": config.get("t_min"),
            "t_max": config.get("t_max"),
            "stability": config.get("stability_threshold"),
            "confidence": config.get("confidence_threshold"),
        }
        return cls(**{name: value for name, value in found.items() if value is not None})

    def override(
        self,
        *,
        steps: int | None = None,
        cap: int | None = None,
        entropy_bound: float | None = None,
        t_min: float | None = None,
        t_max: float | None = None,
        temperature: float | None = None,
        stability: int | None = None,
        confidence: float | None = None,
    ) -> SamplerSettings:
        """These settings with every value that is not None put in its place.

        `temperature` above 0 is constant over all steps; 0 leaves the schedule, which entropies still need, and turns
        `greedy` on.
        """
        if temperature:
            t_min = t_max = temperature
        changes: dict[str, Any] = {
            "max_steps": steps,
            "cap": cap,
            "entropy_bound": entropy_bound,
            "t_min": t_min,
            "t_max": t_max,
            "greedy": True if temperature == 0 else None,
            "stability": stability,
            "confidence": confidence,
        }
        return dataclasses.replace(self, **{name: value for name, value in changes.items() if value is not None})


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise UsageError(message)
