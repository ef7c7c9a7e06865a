"""Progress of a long job: bars on a terminal, occasional lines everywhere else.

Knows named amounts of bytes, some of which are for the whole job and some for one file; knows nothing about what is
being done. May be called from several threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID
from rich.table import Column
from rich.text import Text

from localdiff.quoting import printable
from localdiff.ui.output import Output, Stream
from localdiff.ui.progress_terminal import ProgressTerminal
from localdiff.ui.rate import Rate, shown_amount

DETAILED, WIDE, NARROW = 100, 80, 54
SPACE = "   "
"""Between parts of a detail, which are left out from the end where there is no room."""
STEP = 10
"""Percent between two lines."""
PAUSE = 30.0
"""Seconds between two lines, if that is sooner."""
MIN_SECONDS = 1.0
"""Minimum time between two lines."""


class ProgressDisplay(Protocol):
    """Shows progress."""

    def start(self, name: str, total: int, *, whole: bool = False) -> None:
        """Something of `total` bytes begins; `whole` if it is all of a phase."""

    def show(self, name: str, done: int, detail: str = "") -> None:
        """`done` bytes of it are done; `detail` says what it is working on, in parts `SPACE` apart, the first first."""

    def end(self, name: str) -> None:
        """It is over."""

    def note(self, text: str) -> None:
        """Print something that stays."""


class Silent:
    """Shows nothing."""

    def start(self, name: str, total: int, *, whole: bool = False) -> None:
        """See `ProgressDisplay`."""

    def show(self, name: str, done: int, detail: str = "") -> None:
        """See `ProgressDisplay`."""

    def end(self, name: str) -> None:
        """See `ProgressDisplay`."""

    def note(self, text: str) -> None:
        """See `ProgressDisplay`."""


@dataclass(slots=True)
class _Amount:
    total: int
    rate: Rate
    done: int = 0
    task: TaskID | None = None
    told_percent: int = 0
    told_at: float = 0.0

    def figures(self) -> str:
        """See `shown_amount`."""
        return shown_amount(self.done, self.total, self.rate)


class _Figures(ProgressColumn):
    """Computed anew whenever they are drawn, so that a stalled job does not keep its rate."""

    def render(self, task: Task) -> Text:
        return Text(task.fields["amount"].figures())


class _Name(ProgressColumn):
    """What is in progress, cut where there is no room for all of it and the figures."""

    def render(self, task: Task) -> Text:
        return Text(task.description, no_wrap=True, overflow="crop")


class _Detail(ProgressColumn):
    """As many parts of the detail as there is room for."""

    def render(self, task: Task) -> _Parts:
        return _Parts(task.fields["detail"])


@dataclass(frozen=True, slots=True)
class _Parts:
    text: str

    def __rich_measure__(self, _console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(0, min(cell_len(self.text), options.max_width))

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text
        while cell_len(text) > options.max_width:
            text = text.rpartition(SPACE)[0]
        yield Text(text, no_wrap=True)


class Bars:
    """Bars on a terminal, one for each thing in progress.

    Args:
        bars: rich's progress display.
        stream: the terminal that it is on.
        clock: seconds.
    """

    def __init__(self, bars: Progress, stream: Stream, clock: Callable[[], float]) -> None:
        self._bars, self._stream, self._clock = bars, stream, clock
        self._amounts: dict[str, _Amount] = {}
        self._lock = threading.RLock()

    def start(self, name: str, total: int, *, whole: bool = False) -> None:
        """See `ProgressDisplay`; the bar for the whole is on top."""
        with self._lock:
            if name in self._amounts:
                return
            amount = self._amounts[name] = _Amount(total=total, rate=Rate(self._clock))
            label = name if whole else f"  {name}"
            amount.task = self._bars.add_task(label, total=max(total, 1), amount=amount, detail="")

    def show(self, name: str, done: int, detail: str = "") -> None:
        """See `ProgressDisplay`."""
        with self._lock:
            amount = self._amounts.get(name)
            if amount is None or amount.task is None:
                return
            amount.done = done
            amount.rate.see(done)
            self._bars.update(amount.task, completed=done, detail=detail)

    def end(self, name: str) -> None:
        """See `ProgressDisplay`."""
        with self._lock:
            amount = self._amounts.pop(name, None)
            if amount is not None and amount.task is not None:
                self._bars.remove_task(amount.task)

    def note(self, text: str) -> None:
        """See `ProgressDisplay`."""
        if self._stream.background:
            self._stream.write(printable(text) + "\n")
        else:
            self._bars.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)


class Lines:
    """A line for every tenth of the whole, or every half minute.

    Args:
        stream: where they go.
        clock: seconds.
    """

    def __init__(self, stream: Stream, clock: Callable[[], float]) -> None:
        self._stream, self._clock = stream, clock
        self._amounts: dict[str, _Amount] = {}
        self._lock = threading.RLock()

    def start(self, name: str, total: int, *, whole: bool = False) -> None:
        """See `ProgressDisplay`."""
        with self._lock:
            if whole and name not in self._amounts:
                self._amounts[name] = _Amount(total=total, rate=Rate(self._clock), told_at=self._clock())

    def show(self, name: str, done: int, detail: str = "") -> None:
        """See `ProgressDisplay`."""
        with self._lock:
            amount = self._amounts.get(name)
            if amount is None:
                return
            amount.done = done
            amount.rate.see(done)
            percent = 100 * done // max(amount.total, 1) // STEP * STEP
            since = self._clock() - amount.told_at
            if (percent > amount.told_percent and since >= MIN_SECONDS) or since >= PAUSE:
                amount.told_percent, amount.told_at = max(percent, amount.told_percent), self._clock()
                self.note(f"{name} {100 * done // max(amount.total, 1)} %: {', '.join(amount.figures().split('  '))}")

    def end(self, name: str) -> None:
        """See `ProgressDisplay`."""
        with self._lock:
            self._amounts.pop(name, None)

    def note(self, text: str) -> None:
        """See `ProgressDisplay`."""
        with self._lock:
            self._stream.write(printable(text) + "\n")


@contextmanager
def progress_display(
    output: Output,
    *,
    interrupted: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[ProgressDisplay]:
    """The display that suits stderr: bars, lines, or nothing with `--quiet`. Bars are removed when this ends.

    Args:
        output: the streams.
        interrupted: whether Ctrl-C was pressed, if that raises nothing.
        clock: seconds, monotonic.
    """
    stream = output.stderr
    if output.quiet:
        yield Silent()
    elif not stream.moving or stream.background:
        yield Lines(stream, clock)
    else:
        terminal = ProgressTerminal(stream, interrupted=interrupted)
        bars = _bars(stream, terminal)
        with terminal.watch(bars.live), bars:
            yield Bars(bars, stream, clock)


def _bars(stream: Stream, terminal: ProgressTerminal) -> Progress:
    console = Console(
        file=terminal.file, force_terminal=True, no_color=not stream.color, color_system="standard", emoji=False
    )
    return Progress(
        _Name(),
        *([BarColumn(18 if stream.width >= WIDE else 8, table_column=_column())] if stream.width >= NARROW else []),
        _Figures(table_column=_column()),
        *([_Detail()] if stream.width >= DETAILED else []),
        console=console,
        transient=True,
        refresh_per_second=5,
        redirect_stdout=False,
        redirect_stderr=False,
    )


def _column() -> Column:
    """One that gives way last, when the names and details have."""
    return Column(no_wrap=True, overflow="crop")
