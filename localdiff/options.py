"""The options of one run.

Knows the settings, their ranges and their error messages; knows nothing about where a value came from, nor what a
model does with it. `None` means "as the model's `generation_config.json` says".
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Literal, TypeAlias

from localdiff.errors import ArgumentError
from localdiff.sizes import is_finite, whole
from localdiff.utf8 import require_text

NoiseKind: TypeAlias = Literal["seeded", "reference"]

MAX_SEED = 2**63 - 1
DRAWN_SEED_BITS = 53
"""Bits of a drawn seed: programs that read JSON, such as jq, keep no more bits of an integer."""
MAX_RECORD_TOP_K = 64
CONTEXT_SIZE, ANSWER_SIZE = 8192, 1024
"""Default maximum tokens of prompt and answer together, and of the answer."""
MAX_TOKENS = 2**31 - 1
MAX_STEPS = 1_000_000
# Logits divided by less than the first, or noise scaled by more than the second, exceed what fp32 can tell apart.
MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-6, 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerateOptions:
    """Settings of one run; a value out of its range is a `UsageError` that shows the expression and the value.

    Attributes:
        max_tokens: maximum number of tokens to commit.
        context_size: maximum number of tokens of prompt and answer together, never more than the model was made for;
            None takes what the engine was loaded for.
        seed: seed of the noise, 0 to 2**63 - 1; None draws one, and `RunStarted` reports it.
        think: whether the model is asked to think before it answers.
        system: system prompt.
        steps: length of the temperature schedule, and so the maximum number of denoise steps per block.
        cap: a lower maximum that leaves the schedule unchanged.
        entropy_bound: nats; positions are accepted while the entropies of surer ones sum to at most this.
        t_min: lower end of the temperature schedule; the last step is above it by `(t_max - t_min) / steps`; may be 0.
        t_max: temperature of the first step.
        temperature: 0 takes the most probable id in place of a drawn one; any other value is the temperature of every
            step and sets both `t_min` and `t_max`.
        stability: steps for which the draft must stay the same before a block may stop.
        confidence: mean entropy in nats below which a block may stop.
        noise: `seeded` draws from the seed; `reference` draws in the order of the reference (fp32 on a CPU only).
        tool_calls: whether the text of tool calls is kept in the answer.
        record_top_k: how many of the most probable ids of each position every step reports, 0 to 64; has no effect on
            sampling.
    """

    max_tokens: int = ANSWER_SIZE
    context_size: int | None = None
    seed: int | None = None
    think: bool = False
    system: str | None = None
    steps: int | None = None
    cap: int | None = None
    entropy_bound: float | None = None
    t_min: float | None = None
    t_max: float | None = None
    temperature: float | None = None
    stability: int | None = None
    confidence: float | None = None
    noise: NoiseKind = "seeded"
    tool_calls: bool = False
    record_top_k: int = 0

    def __post_init__(self) -> None:
        for name in ("max_tokens", "context_size"):
            self._require_integer(name, at_least=1, at_most=MAX_TOKENS)
        for name in ("steps", "cap"):
            self._require_integer(name, at_least=1, at_most=MAX_STEPS)
        self._require_integer("stability", at_least=0, at_most=MAX_STEPS)
        self._require_integer("record_top_k", at_least=0, at_most=MAX_RECORD_TOP_K)
        self._require_integer("seed", at_least=0, at_most=MAX_SEED)
        for name in ("entropy_bound", "confidence"):
            self._require_number(name, above=0)
        self._require_number("t_min", at_least=0, at_most=MAX_TEMPERATURE)  # no step has it; the last is above it
        self._require_number("t_max", at_least=MIN_TEMPERATURE, at_most=MAX_TEMPERATURE)
        self._require_number("temperature", at_least=0, at_most=MAX_TEMPERATURE)
        if self.temperature and self.temperature < MIN_TEMPERATURE:
            raise ArgumentError(f"{{temperature}} must be 0 or >= {MIN_TEMPERATURE}", temperature=self.temperature)
        if self.noise not in ("seeded", "reference"):
            raise ArgumentError("{noise} must be 'seeded' or 'reference'", noise=self.noise)
        for name in ("think", "tool_calls"):
            if not isinstance(getattr(self, name), bool):
                raise _bad(name, getattr(self, name), "True or False")
        self._require_one_schedule()
        self._require_text()

    def _require_text(self) -> None:
        if not isinstance(self.system, str | None):
            raise _bad("system", self.system, "text")
        hint = "a system prompt is UTF-8 text; `iconv` converts other encodings"
        require_text(self.system or "", "the system prompt", hint)

    def _require_integer(self, name: str, *, at_least: int, at_most: int) -> None:
        raw = getattr(self, name)
        if raw is None and name not in ("max_tokens", "record_top_k"):
            return
        value = whole(raw)
        if value is None:
            raise _bad(name, raw, "a whole number")
        object.__setattr__(self, name, value)  # a numpy number would fail when written as JSON
        if value < at_least:
            raise _bad(name, value, f">= {at_least}")
        if value > at_most:
            raise _bad(name, value, f"<= {at_most}")

    def _require_number(
        self, name: str, *, above: float | None = None, at_least: float | None = None, at_most: float | None = None
    ) -> None:
        value = getattr(self, name)
        if value is None:
            return
        if not isinstance(value, Real) or isinstance(value, bool):
            raise _bad(name, value, "a number")
        try:  # a numpy number would fail when written as JSON
            value = value if isinstance(value, (int, float)) else float(value)
        except OverflowError:
            raise _bad(name, value, "a finite number") from None
        object.__setattr__(self, name, value)
        if not is_finite(value):
            raise _bad(name, value, "a finite number")
        if above is not None and not value > above:
            raise _bad(name, value, f"> {above}")
        if at_least is not None and value < at_least:
            raise _bad(name, value, f">= {at_least}")
        if at_most is not None and value > at_most:
            raise _bad(name, value, f"<= {at_most}")

    def _require_one_schedule(self) -> None:
        if self.temperature:
            for name in ("t_min", "t_max"):
                bound = getattr(self, name)
                if bound is not None:
                    raise ArgumentError(
                        f"{{temperature}} excludes {{{name}}}",
                        "a temperature above 0 holds for every step; leave out one of the two",
                        **{"temperature": self.temperature, name: bound},
                    )
        if self.t_min is not None and self.t_max is not None and self.t_max < self.t_min:
            raise ArgumentError("{t_min} must be <= {t_max}", t_min=self.t_min, t_max=self.t_max)


def _bad(name: str, value: object, expected: str) -> ArgumentError:
    return ArgumentError(f"{{{name}}} must be {expected}", None, **{name: value})
