"""Which writer for the moving region: `rich.live.Live` or rows that are compared and drawn over?

    python -m tests.bench.live_writer

Both draw the same frames of a scripted run. The table shows, for each: bytes and processor time a frame; how many
moments within a frame show fewer rows than before and after it, in a terminal that draws what it gets as it gets it (it
is looked at every 32 characters); and what a change of the size leaves behind.
`docs/decisions/0010-live-writer.md` records what came out.
"""

from __future__ import annotations

import io
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live

from localdiff.events import BlockStarted, DenoiseStep
from localdiff.ui.painter import Frame, Painter
from localdiff.view.canvas_view import CanvasView
from localdiff.view.layout import Size
from localdiff.view.palette import DARK
from localdiff.view.scene import Scene, fold
from tests.fakes.canvas import Script
from tests.screens.renderable import CanvasRenderable
from tests.screens.terminal import FakeTerminal

BEFORE = [f"text {i}" for i in range(30)]


class Writer(ABC):
    """Something that draws scenes on a stream."""

    def __init__(self, stream: io.TextIOBase, script: Script, size: Size) -> None:
        self.size = size

    @abstractmethod
    def draw(self, scene: Scene) -> None:
        """Draw a scene over the last one."""

    @abstractmethod
    def close(self) -> None:
        """Take the region away."""


class RichLive(Writer):
    """`rich.live.Live`, driven by hand, transient."""

    def __init__(self, stream: io.TextIOBase, script: Script, size: Size) -> None:
        super().__init__(stream, script, size)
        self._console = Console(
            file=stream, width=size.columns, height=size.rows, force_terminal=True, color_system="256", _environ={}
        )
        self._renderable = CanvasRenderable(view_of(script), Scene())
        self._live = Live(
            self._renderable,
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def draw(self, scene: Scene) -> None:
        self._console.size = self.size  # type: ignore[assignment]
        self._renderable.show(scene)
        self._live.refresh()

    def close(self) -> None:
        self._live.stop()


class RowDiff(Writer):
    """`localdiff.ui.painter`."""

    def __init__(self, stream: io.TextIOBase, script: Script, size: Size) -> None:
        super().__init__(stream, script, size)
        self._painter = Painter(stream=stream, view=view_of(script), size=lambda: self.size)  # type: ignore[arg-type]

    def draw(self, scene: Scene) -> None:
        self._painter.paint(Frame(scene=scene))

    def close(self) -> None:
        self._painter.finish([], [])


def view_of(script: Script) -> CanvasView:
    return CanvasView(pieces=script.vocabulary, palette=DARK)


def scenes() -> tuple[Script, list[Scene]]:
    script = Script(canvas=256)
    scene, made = Scene(legend=True), []
    for event in script.events():
        scene = fold(scene, event)
        if isinstance(event, (BlockStarted, DenoiseStep)):
            made.append(scene)
    return script, made


@dataclass(frozen=True)
class Cost:
    """Of one frame on average."""

    bytes: float
    milliseconds: float
    torn: float


def cost_of(kind: Callable[[io.TextIOBase, Script, Size], Writer], size: Size) -> Cost:
    """Bytes, processor time, and share of moments at which rows are missing."""
    script, frames = scenes()
    best = float("inf")
    for _ in range(5):
        sink = io.StringIO()
        writer = kind(sink, script, size)
        start = time.thread_time()
        for scene in frames:
            writer.draw(scene)
        best = min(best, (time.thread_time() - start) / len(frames))
    sent = len(sink.getvalue().encode()) / len(frames)
    terminal = FakeTerminal(*size)
    writer = kind(terminal, script, size)
    for scene in frames:
        writer.draw(scene)
    return Cost(sent, best * 1e3, torn_share(terminal.writes, size))


def torn_share(writes: list[str], size: Size) -> float:
    """Share of moments with fewer rows on the screen than both before and after the write."""
    terminal = FakeTerminal(*size)
    moments = torn = 0
    for write in writes:
        before = rows_on(terminal)
        counts = []
        for start in range(0, len(write), 32):
            terminal.write(write[start : start + 32])
            counts.append(rows_on(terminal))
        after = counts[-1] if counts else before
        moments += len(counts)
        torn += sum(count < min(before, after) for count in counts)
    return torn / max(1, moments)


def rows_on(terminal: FakeTerminal) -> int:
    buffer = terminal.screen.buffer
    return sum(any(cell.data != " " for cell in buffer[y].values()) for y in range(terminal.screen.lines))


def left_by_resize(
    kind: Callable[[io.TextIOBase, Script, Size], Writer], old: Size, new: Size, *, reflows: bool
) -> tuple[int, int]:
    """Rows of the region that stay behind for good, and lines of earlier text that are lost."""
    script, frames = scenes()
    terminal = FakeTerminal(*old, reflows=reflows)
    terminal.write("".join(f"{line}\n" for line in BEFORE))
    writer = kind(terminal, script, old)
    for scene in frames[:8]:
        writer.draw(scene)
    terminal.resize(*new)
    writer.size = new
    for scene in frames[8:12]:
        writer.draw(scene)
    writer.close()
    rows = [row for row in terminal.everything() if row]
    kept = [row for row in rows if row in BEFORE]
    return len(rows) - len(kept), len(BEFORE) - len(kept)


def main() -> None:
    """Measure and print."""
    kinds = (("rich.live.Live", RichLive), ("row difference", RowDiff))
    print("| size | writer | bytes a frame | ms a frame | moments with rows missing |")
    print("|---|---|---:|---:|---:|")
    for size in (Size(80, 24), Size(120, 40), Size(50, 20)):
        for name, kind in kinds:
            cost = cost_of(kind, size)
            figures = f"{cost.bytes:,.0f} | {cost.milliseconds:.2f} | {cost.torn:.0%}"
            print(f"| {size.columns}×{size.rows} | {name} | {figures} |")
    print()
    print("| change | terminal | writer | stale rows left | lines lost |")
    print("|---|---|---|---:|---:|")
    for old, new in ((Size(80, 24), Size(60, 24)), (Size(60, 24), Size(120, 24)), (Size(80, 40), Size(80, 20))):
        for reflows in (False, True):
            for name, kind in kinds:
                stale, lost = left_by_resize(kind, old, new, reflows=reflows)
                what = "breaks rows" if reflows else "cuts rows"
                change = f"{old.columns}×{old.rows} → {new.columns}×{new.rows}"
                print(f"| {change} | {what} | {name} | {stale} | {lost} |")


if __name__ == "__main__":
    main()
