"""One generation in flight: what was decided at its start, and what it has kept so far.

Knows limits and end tokens; knows nothing about the order of steps, which is the engine's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..diffusion.noise import Noise
from ..diffusion.settings import SamplerSettings
from ..diffusion.stopping import StopRule
from ..events import Channel, FinishReason, RunStarted
from ..text.detok import ReplyDecoder
from .context import Context
from .stats import StatsKeeper


@dataclass(kw_only=True, slots=True)
class Generation:
    """The state of one run.

    Attributes:
        event: what the run announced at its start, limits included.
        prompt: ids of the prompt.
        held: how many of them were cached before.
        limit_reason: why the run ends if `event.max_tokens` is reached.
        kept: ids committed so far, without end tokens.
    """

    event: RunStarted
    prompt: list[int]
    held: int
    settings: SamplerSettings
    stop_rule: StopRule
    alternatives: int
    limit_reason: FinishReason
    noise: Noise
    context: Context
    stats: StatsKeeper
    reply: ReplyDecoder
    kept: list[int] = field(default_factory=list)

    def cut(self, draft: Sequence[int]) -> tuple[tuple[int, ...], FinishReason | None]:
        """The part of a draft that is committed, and why the run ends with it, if it does."""
        left = self.event.max_tokens - len(self.kept)
        for place, token in enumerate(draft[: left + 1]):
            if token in self.event.end_ids:
                return tuple(draft[: place + 1]), "end_of_turn"
        return tuple(draft[:left]), self.limit_reason if len(draft) >= left else None

    def take(self, final: Sequence[int], *, last: bool) -> list[tuple[Channel, str]]:
        """Adds a committed block, without its end token, and returns the text that is now final."""
        visible = [token for token in final if token not in self.event.end_ids]
        self.kept += visible
        return self.reply.push(visible) + (self.reply.finish() if last else [])
