"""Validation of events: whether they are in the order of a run, and whether their numbers are possible.

Knows the order that `localdiff.events` shows; knows nothing about files. What passes here can be drawn, counted and
compared without further checks: every array has one entry per position, every id is in the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable

from localdiff.events import (
    BlockCommitted,
    BlockStarted,
    DenoiseStep,
    Event,
    Prefilled,
    RunFinished,
    RunStarted,
    TextCommitted,
)
from localdiff.strict_json import Malformed

MAX_CANVAS = 65_536

# A probability is computed in fp32 and may come out a little over 1.
_MAX_PROBABILITY = 1 + 1e-4
_MAX_ENTROPY = 1e9
_MAX_SECONDS = 1e9

_MAY_FOLLOW: dict[type[Event] | None, tuple[type[Event], ...]] = {
    None: (RunStarted,),
    RunStarted: (Prefilled, BlockStarted, RunFinished),
    Prefilled: (Prefilled, BlockStarted, RunFinished),
    BlockStarted: (DenoiseStep,),
    DenoiseStep: (DenoiseStep, BlockCommitted),
    BlockCommitted: (TextCommitted, BlockStarted, RunFinished),
    TextCommitted: (TextCommitted, BlockStarted, RunFinished),
    RunFinished: (),
}


class Order:
    """Follows one run from its first event on."""

    def __init__(self, *, seed: int, record_top_k: int) -> None:
        self._seed = seed
        self._record_top_k = record_top_k
        self._last: type[Event] | None = None
        self._run: RunStarted | None = None
        self._block = 0
        self._step: DenoiseStep | None = None
        self._token_ids: list[int] = []

    def follow(self, event: Event) -> None:
        """Takes the next event.

        Raises:
            Malformed: it cannot occur here, or its values are impossible.
        """
        kind = type(event)
        if kind not in _MAY_FOLLOW[self._last]:
            before = self._last.__name__ if self._last else "the header"
            raise Malformed(f"{kind.__name__} cannot follow {before}")
        self._last = kind
        match event:
            case RunStarted():
                self._started(event)
            case BlockStarted():
                self._block_started(event)
            case DenoiseStep():
                self._stepped(event)
            case BlockCommitted():
                self._committed(event)
            case TextCommitted():
                _require(event.block == self._block, f"it names block {event.block}, and this is block {self._block}")
            case RunFinished():
                _require(event.token_ids == tuple(self._token_ids), "`token_ids` is not what the blocks committed")
                _require(len(event.stats.blocks) == self._block, "`stats.blocks` does not have one entry per block")
                stats = event.stats
                times = [stats.prompt_seconds, stats.seconds, *(block.seconds for block in stats.blocks)]
                self._numbers("stats", times, _MAX_SECONDS)
            case Prefilled():
                self._numbers("seconds", [event.seconds], _MAX_SECONDS)
                _require(0 <= event.done <= event.total, f"done={event.done} of total={event.total}")
                _require(
                    0 <= event.cached_tokens <= event.done, f"cached_tokens={event.cached_tokens} of done={event.done}"
                )

    def _started(self, event: RunStarted) -> None:
        _require(1 <= event.canvas_length <= MAX_CANVAS, f"canvas_length={event.canvas_length}")
        _require(1 <= event.vocab_size <= 2**31, f"vocab_size={event.vocab_size}")
        _require(event.max_steps >= 1, f"max_steps={event.max_steps}")
        _require(event.seed == self._seed, "the seed is not the one in the header")
        self._run = event

    def _block_started(self, event: BlockStarted) -> None:
        _require(event.block == self._block + 1, f"block {event.block} cannot follow block {self._block}")
        self._ids("canvas_ids", event.canvas_ids)
        self._block, self._step = event.block, None

    def _stepped(self, event: DenoiseStep) -> None:
        before = self._step.step if self._step else 0
        _require(event.block == self._block, f"it names block {event.block}, and this is block {self._block}")
        _require(event.step == before + 1, f"step {event.step} cannot follow step {before}")
        for name, ids in (
            ("argmax_ids", event.argmax_ids),
            ("sampled_ids", event.sampled_ids),
            ("shown_ids", event.shown_ids),
        ):
            self._ids(name, ids)
        self._numbers("argmax_probs", event.argmax_probs, _MAX_PROBABILITY)
        self._numbers("entropies", event.entropies, _MAX_ENTROPY)
        self._numbers("mean_entropy", [event.mean_entropy], _MAX_ENTROPY)
        self._numbers("seconds", [event.seconds], _MAX_SECONDS)
        self._numbers("elapsed", [event.elapsed], _MAX_SECONDS)
        for row in event.top_ids:
            self._ids("top_ids", row, length=self._record_top_k)
        for probs in event.top_probs:
            self._numbers("top_probs", probs, _MAX_PROBABILITY)
        self._step = event

    def _committed(self, event: BlockCommitted) -> None:
        assert self._run is not None and self._step is not None
        _require(event.block == self._block, f"it names block {event.block}, and this is block {self._block}")
        _require(event.steps == self._step.step, f"steps={event.steps}, and there were {self._step.step}")
        draft = self._step.argmax_ids[: len(event.token_ids)]
        _require(event.token_ids == draft, "`token_ids` is not the draft of the last step")
        _require(event.reason != "cancelled" or not event.token_ids, "a cancelled block has committed ids")
        self._numbers("seconds", [event.seconds], _MAX_SECONDS)
        self._token_ids += [token for token in event.token_ids if token not in self._run.end_ids]

    def _ids(self, name: str, ids: tuple[int, ...], *, length: int | None = None) -> None:
        assert self._run is not None
        expected = self._run.canvas_length if length is None else length
        _require(len(ids) == expected, f"`{name}` has {len(ids)} entries, not {expected}")
        _require(min(ids) >= 0 and max(ids) < self._run.vocab_size, f"`{name}` has an id outside the vocabulary")

    @staticmethod
    def _numbers(name: str, values: Iterable[float], maximum: float) -> None:
        # Written so that a NaN, for which every comparison is false, is refused too.
        _require(all(0 <= value <= maximum for value in values), f"`{name}` has an impossible number")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise Malformed(message)
