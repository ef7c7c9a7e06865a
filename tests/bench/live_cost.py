"""What the live canvas costs the engine: the same run with and without it, on a real pseudo-terminal.

    python -m tests.bench.live_cost [--rounds 7] [--steps 300]                     a stand-in of 100 steps a second
    python -m tests.bench.live_cost --prompt "…" [-m demo]                         a model

The stand-in keeps the interpreter busy for a tenth of each step and computes without it for the rest, as an engine that
launches work and waits for it. Rounds with and without the canvas take turns, and the medians are compared, since other
work on the machine moves single rounds by more than the canvas does. Prints a table, then one JSON line. Goal: 3 %.
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
from dataclasses import replace
from typing import TextIO

from localdiff.events import DenoiseStep, Event
from localdiff.ui.live import LiveView
from localdiff.view.layout import Size
from tests.bench.sources import Source, add_source_options, source_of

STEP_SECONDS = 0.01
PYTHON_SHARE = 0.1


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
    """Something that takes about `STEP_SECONDS`, most of it outside of the interpreter."""
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


def stand_in(events: list[Event], steps: int, work: Callable[[], None]) -> Iterator[Event]:
    """A run of so many steps, over and over the same ones, each of which takes its time."""
    prologue = [event for event in events if not isinstance(event, DenoiseStep)][:4]
    made = [event for event in events if isinstance(event, DenoiseStep) and event.block == 1]
    yield from prologue
    for number in range(steps):
        work()
        yield replace(made[number % len(made)], elapsed=(number + 1) * STEP_SECONDS)


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


def live_on(stream: TextIO, source: Source, size: Size) -> LiveView:
    return LiveView(
        stream=stream,
        piece_of=source.piece_of,
        is_special=source.is_special,
        prints=("answer", "thought"),
        palette="dark",
        size=lambda: size,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_source_options(parser)
    parser.set_defaults(canvas=256)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=300, help="of the stand-in, a round")
    options = parser.parse_args()
    source, size = source_of(options), Size(120, 40)
    made = list(source.events())  # also warms a model up
    if options.prompt:
        name, runs = f"{options.model}, {sum(isinstance(e, DenoiseStep) for e in made)} steps", source.events
    else:
        work = calibrated_work()
        name, runs = "stand-in, 100 steps/s", lambda: stand_in(made, options.steps, work)
    without: list[float] = []
    with_canvas: list[float] = []
    with terminal() as stream:
        for _ in range(options.rounds):
            without.append(seconds_a_step(runs(), None))
            with_canvas.append(seconds_a_step(runs(), live_on(stream, source, size)))
    plain, drawn = statistics.median(without), statistics.median(with_canvas)
    cost = drawn / plain - 1
    print(f"{'run':<24} {'without':>10} {'with':>10} {'cost':>8}")
    print(f"{name:<24} {plain * 1e3:7.2f} ms {drawn * 1e3:7.2f} ms {cost:8.1%}")
    print(
        json.dumps(
            {
                "run": name,
                "without_ms": plain * 1e3,
                "with_ms": drawn * 1e3,
                "cost": cost,
                "rounds": options.rounds,
                "cores": os.cpu_count(),
                "machine": platform.machine(),
            }
        )
    )


if __name__ == "__main__":
    main()
