"""Sampler settings of a run, and how they follow from a checkpoint's `generation_config.json`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from localdiff.errors import ArgumentError, UsageError, WeightsError
from localdiff.options import MIN_TEMPERATURE, GenerateOptions
from localdiff.sizes import is_finite

_SAMPLER = "EntropyBoundSamplerConfig"
_KNOWN = {
    *("max_denoising_steps", "sampler_config", "t_min", "t_max", "stability_threshold", "confidence_threshold"),
    *("bos_token_id", "eos_token_id", "pad_token_id", "max_length", "max_new_tokens", "return_dict_in_generate"),
    *("cache_config", "cache_implementation", "disable_compile", "transformers_version"),
}
"""Keys of `generation_config.json` that the reference knows; those of the first line are read here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplerSettings:
    """Sampler settings of one run; the defaults are those of the reference for a checkpoint that says nothing.

    Attributes:
        schedule_steps: length of the temperature schedule, and so the maximum number of denoise steps per block.
        cap: a lower maximum that leaves the schedule unchanged; None sets none.
        entropy_bound: in nats, see `sampler.accept`.
        t_min, t_max: temperatures the schedule runs between, `t_max` first; it ends just above `t_min`, which may be 0.
        greedy: take the argmax in place of a sample.
        stability: number of steps in a row whose draft must equal that of the step before; 0 requires none.
        confidence: in nats; the mean entropy of the canvas must be below it.

    Raises:
        UsageError: values that are out of range alone or together.
    """

    schedule_steps: int = 48
    cap: int | None = None
    entropy_bound: float = 0.1
    t_min: float = 0.4
    t_max: float = 0.8
    greedy: bool = False
    stability: int = 1
    confidence: float = 0.005

    def __post_init__(self) -> None:
        try:
            GenerateOptions(  # checks the ranges
                steps=self.schedule_steps,
                cap=self.cap,
                entropy_bound=self.entropy_bound,
                t_min=self.t_min,
                t_max=self.t_max,
                stability=self.stability,
                confidence=self.confidence,
            )
        except ArgumentError as error:
            error.rename({"steps": "schedule_steps"})
            raise
        if (last := self._last_temperature) < MIN_TEMPERATURE:
            raise ArgumentError(
                f"{{t_min}} and {{t_max}} cool down to {last:.3g} in {self.max_steps} steps, and no step can be"
                f" below {MIN_TEMPERATURE}",
                "raise one of the two, or take fewer steps",
                t_min=self.t_min,
                t_max=self.t_max,
            )

    @property
    def max_steps(self) -> int:
        """Maximum number of denoise steps per block: `schedule_steps`, or `cap` if that is lower."""
        return self.schedule_steps if self.cap is None else min(self.cap, self.schedule_steps)

    @property
    def _last_temperature(self) -> float:
        """The lowest temperature of a block: that of `sampler.temperature_at`, but not rounded to fp32."""
        steps_left = self.schedule_steps - self.max_steps + 1
        return self.t_min + (self.t_max - self.t_min) * steps_left / self.schedule_steps

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> SamplerSettings:
        """Settings of a parsed `generation_config.json`; absent and null keys take the reference's defaults.

        Raises:
            WeightsError: a value in the file is not a valid setting.
        """
        sampler = config.get("sampler_config") or {}
        if not isinstance(sampler, Mapping):
            raise _broken(f"sampler_config={sampler!r} must be a mapping")
        if sampler.get("_cls_name", _SAMPLER) != _SAMPLER or set(sampler) - {"_cls_name", "entropy_bound"}:
            raise WeightsError(
                f"generation_config.json: sampler_config={dict(sampler)!r} describes another sampler",
                "localdiff has only the entropy-bound sampler",
            )
        entries = {
            "schedule_steps": _whole(config, "max_denoising_steps"),
            "entropy_bound": _number(sampler, "entropy_bound"),
            "t_min": _number(config, "t_min"),
            "t_max": _number(config, "t_max"),
            "stability": _whole(config, "stability_threshold"),
            "confidence": _number(config, "confidence_threshold"),
        }
        values: dict[str, Any] = {name: value for name, value in entries.items() if value is not None}
        try:
            return cls(**values)
        except UsageError as error:
            raise _broken(error.message) from error

    def override(self, options: GenerateOptions) -> SamplerSettings:
        """A copy of these settings in which every option that is not None replaces the setting.

        A temperature above 0 is constant over all steps; 0 leaves the schedule, which entropies still need, and turns
        `greedy` on.

        Raises:
            UsageError: an option conflicts with the settings.
        """
        temperature = options.temperature
        changes: dict[str, Any] = {
            "schedule_steps": options.steps,
            "cap": options.cap,
            "entropy_bound": options.entropy_bound,
            "t_min": temperature or options.t_min,
            "t_max": temperature or options.t_max,
            "greedy": True if temperature == 0 else None,
            "stability": options.stability,
            "confidence": options.confidence,
        }
        return dataclasses.replace(self, **{name: value for name, value in changes.items() if value is not None})


def unknown_settings(config: Mapping[str, Any]) -> list[str]:
    """Keys of a parsed `generation_config.json` that the reference does not know either, and refuses."""
    return [key for key, value in config.items() if value is not None and key not in _KNOWN and key[:1] != "_"]


def _whole(config: Mapping[str, Any], key: str) -> int | None:
    value = config.get(key)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise _broken(f"{key}={value!r} must be a whole number")
    return value


def _number(config: Mapping[str, Any], key: str) -> float | None:
    value = config.get(key)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not is_finite(value):
        raise _broken(f"{key}={value!r} must be a finite number")
    return value


def _broken(message: str) -> WeightsError:
    hint = "use the `generation_config.json` that was published with the weights"
    return WeightsError(f"generation_config.json: {message}", hint)
