"""Times the passes of a block: prefill, denoise steps, commit passes.

    warm-up ─► prefills of the context ─► one block: [warm-up steps | timed steps | steps under the clock of parts]
                                              ├────► first steps that commit the block before, if a run has those
                                              └────► commit passes, each after the same context

Runs the same loop as an answer does, with a stop rule that never stops. Nothing can be timed inside of a replayed CUDA
graph, or of a step that is launched before the last one is done; the steps under the clock then take the same path, but
kernel by kernel and one after the other, in a block of their own. Knows a loaded model; knows nothing about how it was
loaded or what will be printed.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from localdiff.bench.step.parts import PartClock, Place, waiter
from localdiff.bench.step.subject import Progress, Subject
from localdiff.denoising import BlockSettings, Denoiser, Step
from localdiff.diffusion.noise import SeededNoise
from localdiff.diffusion.settings import SamplerSettings
from localdiff.memory_account import PREFILL_CHUNK
from localdiff.model.cache import KVCache
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.sizes import shown_time

WARM_UP = 2
"""The first step of a block has nothing to condition on, and the second is the first that is like all others."""
WARM_UP_REPLAYED = 32
"""The same where steps are replayed: while one is captured a GPU has nothing to do, and may lower its clock."""
CLOCKED = 3
PREFILLS = 16
PREFILL_SECONDS = 5.0
"""The context is read until it was timed that often, or until this time is over, but at least once."""
_SEED = 0
"""Of prompt, canvas and samples."""
COMMITS = 3
"""Timed commit passes, and as many again under the clock of parts; the same of first steps that commit a block."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    """The denoise steps of one block.

    Attributes:
        first: seconds of the very first step.
        seconds: seconds of the timed steps, in order.
        places: seconds of one step by place: the median one of a few, which the clock of parts slowed down.
        mean_entropy: nats per position, over the timed steps.
        experts_hit: share of a layer's experts that a step used.
        busiest: most rows that one expert got.
    """

    first: float
    seconds: tuple[float, ...]
    places: dict[Place, float]
    mean_entropy: float
    experts_hit: float
    busiest: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Passes:
    """Passes of one kind: seconds of each, and of one by place."""

    seconds: tuple[float, ...]
    places: dict[Place, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Timings:
    """What was measured.

    Attributes:
        prefills: seconds of the whole context, each time that it was read.
        commits: passes that do nothing but write a committed block into the cache.
        fused: first steps of a block that also commit the block before; None where a run has separate commit passes.
    """

    prefills: tuple[float, ...]
    steps: Steps
    commits: Passes
    fused: Passes | None = None


class Stopwatch:
    """Times the passes of a loaded model.

    Args:
        context: tokens in the cache before the canvas.

    Attributes:
        denoiser: takes the steps.
        cache: what passes read and write.
    """

    def __init__(self, subject: Subject, *, context: int, progress: Progress = lambda _: None) -> None:
        self._network, self._context, self._progress = subject.network, context, progress
        config, device = subject.network.config, subject.device
        self._wait = waiter(device)
        self._with_layers = f" with {len(subject.built.layers)} layers" if subject.is_cut else ""
        self._slow_layers = tuple(subject.network.layers) if device.type == "cpu" else ()
        self.denoiser, self._launched = subject.denoiser, subject.denoiser.without_graphs()
        self.cache = KVCache(config, context + config.canvas_length, subject.dtype, device)
        generator = torch.Generator().manual_seed(_SEED)
        ids = torch.randint(config.vocab_size, (context + config.canvas_length,), generator=generator).to(device)
        self._chunks, self._block = torch.split(ids[:context], PREFILL_CHUNK), ids[context:]

    @torch.inference_mode()
    def measure(self, steps: int) -> Timings:
        """Times the context, `steps` denoise steps after a warm-up, and a few commit passes."""
        self._warm_up()
        prefills = self._prefills()
        self.cache.snapshot()
        return Timings(
            prefills=prefills,
            steps=self._steps(steps),
            commits=self._commits(),
            fused=self._fused() if self.denoiser.path.fuses_commits else None,
        )

    def _warm_up(self) -> None:
        """Runs a pass of every size that is timed later: kernels may be compiled anew for another number of rows."""
        for ids in {len(ids): ids for ids in (*self._chunks, self._block)}.values():
            self._encode(ids, f"warming up, {len(ids):,} tokens")
            self.cache.rewind(0)

    def prefill(self) -> None:
        """Reads the context into the empty cache."""
        done = 0
        for chunk in self._chunks:
            self._encode(chunk, f"prefill, {done:,} of {self._context:,} tokens")
            done += len(chunk)

    def _encode(self, ids: Tensor, what: str) -> None:
        """A pass over a chunk of the context, told of by each layer where that may take minutes, on a CPU."""
        self._progress(what)
        with ExitStack() as hooks:
            for number, layer in enumerate(self._slow_layers, 1):
                text = f"{what}, layer {number} of {len(self._slow_layers)}"
                hooks.enter_context(
                    layer.register_forward_pre_hook(lambda _layer, _inputs, text=text: self._progress(text))
                )
            self._network.encode(ids, self.cache)

    def _prefills(self) -> tuple[float, ...]:
        """Seconds of each prefill of the whole context, the last of which stays in the cache.

        Of more than two the first is left out: while kernels were compiled for the warm-up, a GPU had nothing to do,
        and may have lowered its clock.
        """
        seconds: list[float] = []
        while len(seconds) <= PREFILLS and sum(seconds) < PREFILL_SECONDS:
            self.cache.rewind(0)
            seconds.append(self._seconds_of(self.prefill))
        return tuple(seconds[1:] if len(seconds) > 2 else seconds)

    def _steps(self, count: int) -> Steps:
        path = self.denoiser.path
        warm_up = WARM_UP_REPLAYED if path.captured else WARM_UP
        unclocked, total = warm_up + count, warm_up + count + CLOCKED
        events = self.block_of(self.denoiser, unclocked if path.static else total)
        seconds: list[float] = []
        entropies: list[float] = []
        for number in range(1, unclocked + 1):
            self._tell("step", number, total, seconds[warm_up:], further=2 * COMMITS)
            began = time.perf_counter()
            step = next(events)
            seconds.append(time.perf_counter() - began)
            entropies.append(step.event.mean_entropy)
        if path.static:
            # A block of its own: a step may be launched while the last one's outcome is taken, but none after the last.
            events = self.block_of(self._launched, 2 + CLOCKED)
            next(events)  # has nothing to condition on
        clock, routing, places = PartClock(self._wait), Routing(self._network), []
        for number in range(unclocked + 1, total + 1):
            self._tell("step", number, total, seconds[warm_up:], further=2 * COMMITS)
            with clock.watching(self._network), routing.watching(), clock.within("sampling"):
                next(events)
            places.append(clock.take())
        deque(events, maxlen=0)  # to the end of the block: only then can another be denoised in static steps
        return Steps(
            first=seconds[0],
            seconds=tuple(seconds[warm_up:]),
            places=_median_pass(places),
            mean_entropy=statistics.mean(entropies[warm_up:]),
            experts_hit=routing.experts_hit,
            busiest=routing.busiest,
        )

    def block_of(self, denoiser: Denoiser, steps: int, commit_ids: Sequence[int] = ()) -> Iterator[Step]:
        """The steps of a block after what is in the cache, taken one by one; no stop rule ends it."""
        config, noise = self._network.config, SeededNoise(_SEED)
        canvas = noise.canvas(config.canvas_length, config.vocab_size)
        block = BlockSettings(
            number=1,
            started=time.perf_counter(),
            sampler=SamplerSettings(schedule_steps=steps),
            stop_rule="never",
            pad_id=config.pad_token_id,
        )
        return denoiser.denoise_block(self.cache, canvas, noise, block, commit_ids)

    def _commits(self) -> Passes:
        def commit() -> None:
            self._network.encode(self._block, self.cache)

        clock = PartClock(self._wait)
        return self._passes("commit pass", commit, clock, commit)

    def _fused(self) -> Passes:
        ids, clock = self._block.tolist(), PartClock(self._wait)

        def first_step(denoiser: Denoiser) -> None:
            for _ in self.block_of(denoiser, 1, ids):
                pass

        def clocked() -> None:
            with clock.within("sampling"):
                first_step(self._launched)

        # A static step runs eagerly once, is captured on its second run, and is replayed from then on.
        return self._passes("fused step", lambda: first_step(self.denoiser), clock, clocked, warm_up=WARM_UP)

    def _passes(
        self, name: str, work: Callable[[], None], clock: PartClock, clocked: Callable[[], None], *, warm_up: int = 0
    ) -> Passes:
        """Times passes that write a block into the cache, after `warm_up` others, and then as many by part."""
        seconds: list[float] = []
        places: list[dict[Place, float]] = []
        total = warm_up + 2 * COMMITS
        for number in range(1, total + 1):
            self._tell(name, number, total, seconds[warm_up:])
            if number <= warm_up + COMMITS:
                seconds.append(self._seconds_of(work))
            else:
                with clock.watching(self._network):
                    clocked()
                places.append(clock.take())
            self.cache.rewind(self._context)
        return Passes(seconds=tuple(seconds[warm_up:]), places=_median_pass(places))

    def _tell(self, name: str, number: int, total: int, seconds: Sequence[float], *, further: int = 0) -> None:
        """Tells that a pass begins and, where the passes before took at least a second, what is left of the time.

        Args:
            seconds: of the passes before it, as far as they are like it.
            further: passes after these, which take as long.
        """
        text = f"{name} {number} of {total}"
        if seconds and (each := statistics.median(seconds)) >= 1:
            text += f", {each:.1f} s each{self._with_layers}, {shown_time(each * (total - number + 1 + further))} left"
        self._progress(text)

    def _seconds_of(self, work: Callable[[], None]) -> float:
        self._wait()
        began = time.perf_counter()
        work()
        self._wait()
        return time.perf_counter() - began


class Routing:
    """Counts how the rows of the passes that it watches spread over the experts.

    While watching, it only keeps what the routers chose: counting launches kernels and waits for the device, and that
    time would be charged to whatever part of the network is on the clock.
    """

    def __init__(self, network: DiffusionGemma) -> None:
        self._routers = [layer.get_submodule("router") for layer in network.layers]
        self._experts = network.config.num_experts
        self._expert_ids: list[Tensor] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Keeps what the routers choose inside."""
        with ExitStack() as hooks:
            for router in self._routers:
                keep = router.register_forward_hook(lambda _module, _inputs, routed: self._expert_ids.append(routed[0]))
                hooks.enter_context(keep)
            yield

    @property
    def experts_hit(self) -> float:
        """Share of a layer's experts that get any row, over all layers and passes."""
        return float((self._counts() > 0).float().mean())

    @property
    def busiest(self) -> int:
        """Most rows that one expert got in one pass."""
        return int(self._counts().max())

    def _counts(self) -> Tensor:
        """Rows [layers × passes, experts]."""
        return torch.stack([torch.bincount(index.flatten(), minlength=self._experts) for index in self._expert_ids])


def _median_pass(passes: list[dict[Place, float]]) -> dict[Place, float]:
    """The pass of median time: its parts add up to a real pass, which medians of each part would not."""
    return sorted(passes, key=lambda places: sum(places.values()))[len(passes) // 2]
