"""One run in progress: what was decided at its start, and what it has committed so far.

Knows limits and end tokens; knows nothing about the order of steps, which is the engine's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from localdiff.diffusion.noise import Noise
from localdiff.diffusion.settings import SamplerSettings
from localdiff.diffusion.stopping import StopRule
from localdiff.engine.prefix_cache import PrefixCache
from localdiff.engine.stats import StatsKeeper
from localdiff.errors import UsageError, WeightsError
from localdiff.events import Channel, FinishReason, RunStarted
from localdiff.text.detok import ReplyDecoder


@dataclass(kw_only=True, slots=True)
class Run:
    """The state of one run.

    Attributes:
        started: what the run announced at its start, limits included.
        prompt: ids of the prompt.
        cached_tokens: how many of them were in the cache before the run.
        rewinds: the prefix cache's `rewinds` once this run had started.
        limit_reason: why the run ends if it reaches `started.max_tokens`.
        token_ids: ids committed so far, without end tokens.
    """

    started: RunStarted
    prompt: list[int]
    cached_tokens: int
    settings: SamplerSettings
    stop_rule: StopRule
    record_top_k: int
    limit_reason: FinishReason
    noise: Noise
    prefix_cache: PrefixCache
    rewinds: int
    stats: StatsKeeper
    reply: ReplyDecoder
    token_ids: list[int] = field(default_factory=list)

    def require_cache(self) -> None:
        """Checks that the prefix cache still has what this run encoded; to be called with the cache's lock held.

        Raises:
            UsageError: the cache was cleared, or another run started on it, since this run started.
        """
        if self.prefix_cache.rewinds != self.rewinds:
            raise UsageError(
                "this prefix cache was cleared, or another run started on it, before this one was over",
                "finish a run, or close its iterator, before the next one on the same conversation",
            )

    def cut(self, draft: Sequence[int]) -> tuple[tuple[int, ...], FinishReason | None]:
        """The part of a draft that is committed, and why the run ends with it, if it does.

        Nothing is committed of a draft that is padding alone: the model pads after the end of a turn, which came before
        this block then. The next one would be no different.
        """
        if all(token == self.started.pad_id for token in draft):
            return (), "end_of_turn"
        room = self.started.max_tokens - len(self.token_ids)
        for place, token in enumerate(draft[: room + 1]):
            if token in self.started.end_ids:
                return tuple(draft[: place + 1]), "end_of_turn"
        return tuple(draft[:room]), self.limit_reason if len(draft) >= room else None

    def commit(self, final: Sequence[int]) -> list[tuple[Channel, str]]:
        """Adds a committed block, without its end token, and returns the text that is now final."""
        visible = [token for token in final if token not in self.started.end_ids]
        self.token_ids += visible
        return self.reply.push(visible)


def end_ids_of(generation_config: Mapping[str, Any]) -> tuple[int, ...]:
    """Ids that end a turn. `generation_config.json` is the one place that lists them all.

    Raises:
        WeightsError: it lists none, or something that is not an id.
    """
    ids = generation_config.get("eos_token_id")
    hint = "use the `generation_config.json` that was published with the weights"
    if ids is None:
        raise WeightsError("generation_config.json lacks `eos_token_id`", hint)
    end_ids = ids if isinstance(ids, list) else [ids]
    if not end_ids or any(type(token) is not int for token in end_ids):
        raise WeightsError(
            f"generation_config.json: eos_token_id={ids!r} must be a whole number or a list of them", hint
        )
    return tuple(end_ids)


@contextmanager
def adapter_may_be_at_fault(adapter: str | None) -> Iterator[None]:
    """Surrounds a network's computation: the hint of a `WeightsError` names the adapter, if there is one."""
    try:
        yield
    except WeightsError as error:
        if adapter is not None:
            error.hint = f"the adapter `{adapter}` makes values too large, or {error.hint}"
        raise
