"""What the live canvas costs the engine: the same run with and without it, on a real pseudo-terminal.

    python -m tests.bench.live_cost                                  a stand-in of 100 steps a second
    python -m tests.bench.live_cost -m demo --prompt "…"             a model

The stand-in keeps the interpreter busy for a tenth of each step and computes without it for the rest, like an engine
that launches work and waits for it. Rounds with and without the canvas take turns, and each is compared with its
neighbour, since other work on the machine moves single rounds by more than the canvas does. Prints a table, then one
line of JSON. Goal: 3 % at 20 frames a second on two cores.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import pty
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TextIO

from localdiff.events import DenoiseStep, Event
from localdiff.ui.live import DEFAULT_FPS, LiveView
from localdiff.ui.watch import Watch
from localdiff.view.layout import Size
from localdiff.view.palette import DARK
from localdiff.view.pieces import Pieces
from tests.fakes.canvas import LATIN, Script

STEP_SECONDS = 0.01
PYTHON_SHARE = 0.1
SIZE = Size(120, 40)


@dataclass(frozen=True)
class Source:
    """A run, and the texts of its ids.

    Attributes:
        name: what the table calls it.
        events: makes the events anew at each call.
        pieces: texts of the run's ids.
    """

    name: str
    events: Callable[[], Iterator[Event]]
    pieces: Pieces


def stand_in(steps: int) -> Source:
    """Steps over a canvas of 256, the same ones again and again, each of which takes real time."""
    script, work = Script(text=LATIN * 2, canvas=256), calibrated_work()
    events = list(script.events())
    prologue = [event for event in events if not isinstance(event, DenoiseStep)][:4]
    made = [event for event in events if isinstance(event, DenoiseStep) and event.block == 1]

    def run() -> Iterator[Event]:
        yield from prologue
        for number in range(steps):
            work()
            yield replace(made[number % len(made)], elapsed=(number + 1) * STEP_SECONDS)

    return Source(f"stand-in, {1 / STEP_SECONDS:.0f} steps/s", run, script.vocabulary)


def model(name: str, prompt: str, seed: int) -> Source:
    """A run of a model."""
    from localdiff.engine import Engine
    from localdiff.options import GenerateOptions

    engine, options = Engine.load(name), GenerateOptions(seed=seed)
    steps = sum(isinstance(event, DenoiseStep) for event in engine.generate(prompt, options))  # warms it up, too
    label = f"{name}, {steps} steps"
    return Source(label, lambda: engine.generate(prompt, options), engine.tokenizer)


@contextmanager
def terminal() -> Iterator[TextIO]:
    """A pseudo-terminal whose other end is read by another process."""
    master, slave = pty.openpty()
    reader = subprocess.Popen(["cat"], stdin=master, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(master)
    with open(slave, "w", encoding="utf-8") as stream:
        yield stream
    reader.wait()


def calibrated_work() -> Callable[[], None]:
    """Work that takes about `STEP_SECONDS`, most of it outside the interpreter."""
    outside, inside = 1 << 16, 1000

    def work() -> None:
        for _ in range(10):
            _hash(outside)
            _spin(inside)

    for _ in range(5):
        outside = int(outside * STEP_SECONDS * (1 - PYTHON_SHARE) / 10 / _best_time(_hash, outside))
        inside = int(inside * STEP_SECONDS * PYTHON_SHARE / 10 / _best_time(_spin, inside))
    return work


def _best_time(work: Callable[[int], None], amount: int) -> float:
    times = []
    for _ in range(20):
        start = time.perf_counter()
        work(amount)
        times.append(time.perf_counter() - start)
    return min(times)


def _hash(size: int) -> None:
    hashlib.sha256(bytes(size)).digest()


def _spin(turns: int) -> None:
    total = 0
    for turn in range(turns):
        total += turn


def seconds_a_step(run: Iterator[Event], live: LiveView | None) -> float:
    """Wall time of a step, from the first to the last."""
    times: list[float] = []
    for event in run:
        if live is not None:
            live.on_event(event)
        if isinstance(event, DenoiseStep):
            times.append(time.perf_counter())
    if live is not None:
        live.close()
    return (times[-1] - times[0]) / max(1, len(times) - 1)


def live_on(stream: TextIO, source: Source) -> LiveView:
    """A canvas as `localdiff run` makes it."""
    return LiveView(
        stream=stream,
        pieces=source.pieces,
        watch=Watch(prints=("answer", "thought")),
        palette=DARK,
        size=lambda: SIZE,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompt", help="run a model on this")
    parser.add_argument("-m", "--model", default="demo")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=300, help="of the stand-in, a round")
    options = parser.parse_args()
    source = model(options.model, options.prompt, options.seed) if options.prompt else stand_in(options.steps)
    without: list[float] = []
    with_canvas: list[float] = []
    with terminal() as stream:
        for number in range(2 * options.rounds):
            # Every other pair is in reverse order, so that neither kind always comes first.
            if (number + number // 2) % 2:
                with_canvas.append(seconds_a_step(source.events(), live_on(stream, source)))
            else:
                without.append(seconds_a_step(source.events(), None))
    costs = sorted(drawn / plain - 1 for plain, drawn in zip(without, with_canvas, strict=True))
    quarter = len(costs) // 4
    figures = {
        "run": source.name,
        "without_ms": 1e3 * statistics.median(without),
        "with_ms": 1e3 * statistics.median(with_canvas),
        "cost": statistics.median(costs),
        "quartiles": [costs[quarter], costs[-1 - quarter]],
        "rounds": options.rounds,
        "fps": DEFAULT_FPS,
        "terminal": list(SIZE),
        "cores": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
    }
    print("| run | ms a step without | with | cost, median | quartiles |")
    print("|---|---:|---:|---:|---:|")
    print(
        f"| {source.name} | {figures['without_ms']:.2f} | {figures['with_ms']:.2f} | {figures['cost']:.1%} | "
        f"{costs[quarter]:.1%} to {costs[-1 - quarter]:.1%} |"
    )
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
