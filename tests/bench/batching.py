"""Batched generation: several generations on one model, with all canvases in one pass.

    generation 1 ──► denoise ─┐                          ┌─► its logits ──► the rest of its step, as always
    generation 2 ──► denoise ─┼─► one pass over [B, L] ──┤
    generation B ──► denoise ─┘                          └─► …

Each generation runs in a thread of its own, on an engine like any other. A thread that wants a pass waits until every
other one still at work wants one too, and the last to arrive runs it for all. Which generations share a pass thus
depends on the order of work alone, and the same work gives the same bits whatever else the machine does.

It pays for small models: few rows cost little more than the overhead of a pass. Knows threads and the order of a pass;
knows nothing about samples or text. Shape letters: B canvases, L canvas, D width, V vocabulary, H heads, d head size.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from localdiff.denoising import Denoiser
from localdiff.engine import Engine
from localdiff.model.attention import Attend, attend_cached
from localdiff.model.cache import KVCache
from localdiff.model.diffusion_gemma import DiffusionGemma

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Wish:
    """A pass that a generation wants: [L] ids of its canvas, its cache, [L, D] its last soft embedding, or None."""

    canvas: Tensor
    cache: KVCache
    soft: Tensor | None


class BrokenOffError(RuntimeError):
    """Another generation that shares the passes has failed."""


def run_batched(engine: Engine, tasks: Sequence[Callable[[Engine], R]], width: int) -> list[R]:
    """Run generating tasks, up to `width` of them at once; returns their results in order.

    Args:
        engine: a loaded engine that has not generated anything yet. Passes are shared on a CPU only.
        tasks: each is given an engine of its own, over the same weights.
        width: B. Task `i` runs in thread `i % width`, whatever finishes first.

    Raises:
        Exception: the first exception that a task raised.
    """
    width = min(width, len(tasks)) if engine.identity.device == "cpu" else 1
    if width < 2:
        return [task(engine) for task in tasks]
    passes = SharedPasses(engine.model, width)

    def work(number: int) -> list[R]:
        try:
            with passes.at_work():
                mine = copy.copy(engine)
                mine.model = Member(engine.model, passes, number)
                mine.denoiser = Denoiser(mine.model)
                return [task(mine) for task in tasks[number::width]]
        except BaseException:
            passes.break_off()
            raise

    with ThreadPoolExecutor(width, thread_name_prefix="generation") as pool:
        futures = [pool.submit(work, number) for number in range(width)]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        except BaseException:
            passes.break_off()
            raise
    errors = [error for future in futures if (error := future.exception()) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, BrokenOffError)):
        raise error
    done = [future.result() for future in futures]
    return [done[index % width][index // width] for index in range(len(tasks))]


class SharedPasses:
    """Collects the canvases of the members of a group for a pass.

    Args:
        model: runs the passes.
        members: number of threads that share them.

    Attributes:
        turn: held by the thread that is using the model.
    """

    def __init__(self, model: DiffusionGemma, members: int) -> None:
        self.turn = threading.Condition()
        self._model = model
        self._at_work = members
        self._wishes: dict[int, Wish] = {}
        self._logits: dict[int, Tensor] = {}
        self._broken = False

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Counts a member as at work until the end of the block; passes do not wait for it after that."""
        try:
            yield
        finally:
            with self.turn:
                self._at_work -= 1
                self._pass_if_all_are_here()

    def logits(self, number: int, wish: Wish) -> Tensor:
        """The logits a member wishes for, once every member at work has made a wish.

        Raises:
            BrokenOffError: another member has failed.
        """
        with self.turn:
            self._wishes[number] = wish
            self._pass_if_all_are_here()
            self.turn.wait_for(lambda: number in self._logits or self._broken)
            if self._broken:
                raise BrokenOffError("another generation has failed")
            return self._logits.pop(number)

    def break_off(self) -> None:
        """Release all waiting threads with an error."""
        with self.turn:
            self._broken = True
            self.turn.notify_all()

    def _pass_if_all_are_here(self) -> None:
        if self._broken or not self._wishes or len(self._wishes) < self._at_work:
            return
        members = sorted(self._wishes)
        logits = denoise(self._model, [self._wishes[member] for member in members])
        self._wishes.clear()
        self._logits.update(zip(members, logits, strict=True))
        self.turn.notify_all()


class Member(DiffusionGemma):
    """The model as one member of a group sees it: the modules are the model's own, the passes are shared."""

    def __init__(self, model: DiffusionGemma, passes: SharedPasses, number: int) -> None:
        self.__dict__.update(model.__dict__)
        self._passes, self._number = passes, number

    def encode(self, ids: Tensor, cache: KVCache) -> None:
        """See `DiffusionGemma.encode`."""
        with self._passes.turn:  # modules cache what they computed for their last input
            super().encode(ids, cache)

    def soft_embedding(self, logits: Tensor, log_normalizer: Tensor) -> Tensor:
        """See `DiffusionGemma.soft_embedding`."""
        with self._passes.turn:
            return super().soft_embedding(logits, log_normalizer)

    def denoise(
        self, canvas_ids: Tensor, cache: KVCache, soft: Tensor | None = None, commit_ids: Tensor | None = None
    ) -> Tensor:
        """See `DiffusionGemma.denoise`; waits for all members at work. `commit_ids` are encoded in a pass of their own.

        Raises:
            BrokenOffError: another member has failed.
        """
        if commit_ids is not None:
            self.encode(commit_ids, cache)
        return self._passes.logits(self._number, Wish(canvas_ids, cache, soft))


@torch.inference_mode()
def denoise(model: DiffusionGemma, wishes: Sequence[Wish]) -> Tensor:
    """Raw logits [B, L, V] of canvases of one length, each after its own cache.

    The numbers are those of `DiffusionGemma.denoise`, except for the last bits: matmuls of more rows sum in another
    order.
    """
    embeddings = model.embed(torch.stack([wish.canvas for wish in wishes]))
    length = embeddings.shape[1]
    if any(wish.soft is not None for wish in wishes):
        # None is a soft embedding of zeros: the norm and the projections that it goes through have no bias.
        nothing = torch.zeros_like(embeddings[0])
        soft = torch.stack([nothing if wish.soft is None else wish.soft for wish in wishes])
        x = model.self_conditioning.condition(embeddings, soft)
    else:
        x = model.self_conditioning.condition(embeddings, None)
    starts = torch.tensor([wish.cache.length for wish in wishes], device=x.device)
    positions = starts[:, None] + torch.arange(length, device=x.device)
    is_canvas = torch.ones(length, dtype=torch.bool, device=x.device)
    rotary = model.rotary_tables(positions, x.dtype)
    for index, layer in enumerate(model.layers):
        attends = [attend_cached(wish.cache.layers[index], wish.cache.length, 0) for wish in wishes]
        x = layer(x, is_canvas, rotary[model.config.layers[index]], _each(attends))
    logits: Tensor = model.embed_tokens.logits(model.norm(x).flatten(0, 1))
    return logits.view(len(wishes), length, -1)


def _each(attends: Sequence[Attend]) -> Attend:
    """Attention of q [B, H, L, d], with a separate `Attend` for each of B."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.stack([attend(*rows) for attend, *rows in zip(attends, q, k, v, strict=True)])

    return attend
