"""Progress of a long job: bars on a terminal, occasional lines everywhere else.

Knows named amounts of bytes, some for the whole job and some for one file; knows nothing about what is being done.
May be called from several threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from localdiff.quoting import printable
from localdiff.ui.output import Output, Stream
from localdiff.ui.progress_terminal import ProgressTerminal
from localdiff.ui.rate import Rate, shown_amount
from localdiff.ui.status import MIN_SECONDS, PAUSE
from localdiff.ui.terminal import keeps_waiting

DETAILED, WIDE, NARROW = 100, 80, 54
SPACE = "   "
"""Separates the parts of a detail; where there is no room, parts are left out from the end."""
STEP = 10
"""Percent between two lines."""


@dataclass(kw_only=True, slots=True)
class _Amount:
    total: int
    rate: Rate
    told_at: float
    done: int = 0
    told_percent: int = 0

    @property
    def figures(self) -> str:
        """See `shown_amount`."""
        return shown_amount(self.done, self.total, self.rate)


class ProgressDisplay:
    """Follows what is in progress, and shows nothing; subclasses that show it override `note` and the last methods."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._amounts: dict[str, _Amount] = {}
        self._lock = threading.RLock()

    def start(self, name: str, total: int, *, whole: bool = False) -> None:
        """Something of `total` bytes begins; `whole` if it is a whole phase."""
        with self._lock:
            if name not in self._amounts:
                amount = _Amount(total=total, rate=Rate(self._clock), told_at=self._clock())
                self._amounts[name] = amount
                self._begin(name, amount, whole=whole)

    def show(self, name: str, done: int, detail: str = "") -> None:
        """`done` bytes of it are done; `detail` says what is being worked on: parts `SPACE` apart, main part first."""
        with self._lock:
            if (amount := self._amounts.get(name)) is not None:
                amount.done = done
                amount.rate.see(done)
                self._update(name, amount, detail)

    def end(self, name: str) -> None:
        """Stop following what has this name."""
        with self._lock:
            if self._amounts.pop(name, None) is not None:
                self._remove(name)

    def note(self, text: str) -> None:
        """Print something that stays."""

    def _begin(self, name: str, amount: _Amount, *, whole: bool) -> None: ...

    def _update(self, name: str, amount: _Amount, detail: str) -> None: ...

    def _remove(self, name: str) -> None: ...


class _Name(ProgressColumn):
    """The name in one line, even where there are blanks in it; a column without line breaks would not give way."""

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


class Bars(ProgressDisplay):
    """Bars on a terminal, one for each thing in progress, with the bar for the whole on top."""

    def __init__(self, bars: Progress, stream: Stream, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self._bars, self._stream = bars, stream
        self._tasks: dict[str, TaskID] = {}

    def note(self, text: str) -> None:
        """See `ProgressDisplay`."""
        if self._stream.background:
            self._stream.write(printable(text) + "\n")
        else:
            self._bars.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def _begin(self, name: str, amount: _Amount, *, whole: bool) -> None:
        label = name if whole else f"  {name}"
        self._tasks[name] = self._bars.add_task(label, total=amount.total, amount=amount, detail="")

    def _update(self, name: str, amount: _Amount, detail: str) -> None:
        self._bars.update(self._tasks[name], completed=amount.done, detail=detail)

    def _remove(self, name: str) -> None:
        self._bars.remove_task(self._tasks.pop(name))


class Lines(ProgressDisplay):
    """A line for every tenth of the whole, or every half minute."""

    def __init__(self, stream: Stream, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self._stream = stream

    def start(self, name: str, total: int, *, whole: bool = False) -> None:
        """See `ProgressDisplay`; single files have no lines."""
        if whole:
            super().start(name, total)

    def note(self, text: str) -> None:
        """See `ProgressDisplay`."""
        with self._lock:
            self._stream.write(printable(text) + "\n")

    def _update(self, name: str, amount: _Amount, detail: str) -> None:
        percent = 100 * amount.done // max(amount.total, 1)
        tenth, since = percent // STEP * STEP, self._clock() - amount.told_at
        if (tenth > amount.told_percent and since >= MIN_SECONDS) or since >= PAUSE:
            amount.told_percent, amount.told_at = max(tenth, amount.told_percent), self._clock()
            self.note(f"{name} {percent} %: {', '.join(amount.figures.split('  '))}")


@contextmanager
def progress_display(
    output: Output,
    *,
    interrupted: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[ProgressDisplay]:
    """The display that suits stderr: bars, lines, or nothing with `--quiet`. Bars are removed when this ends.

    Args:
        interrupted: whether Ctrl-C was pressed, if that raises nothing.
    """
    stream = output.stderr
    if output.quiet:
        yield ProgressDisplay(clock)
    elif not stream.moving or stream.background:
        yield Lines(stream, clock)
    else:
        terminal = ProgressTerminal(stream, interrupted=interrupted)
        bars = _bars(stream, terminal)
        with terminal.watch(bars.live):
            bars.start()
            try:
                yield Bars(bars, stream, clock)
            finally:
                if not keeps_waiting(stream.file):
                    bars.stop()


def _bars(stream: Stream, terminal: ProgressTerminal) -> Progress:
    console = Console(
        file=terminal.file, force_terminal=True, no_color=not stream.color, color_system="standard", emoji=False
    )
    return Progress(
        _Name(),
        *([BarColumn(18 if stream.width >= WIDE else 8, table_column=_column())] if stream.width >= NARROW else []),
        # Recomputed whenever they are drawn, so that a stalled job does not keep its rate.
        TextColumn("{task.fields[amount].figures}", table_column=_column()),
        *([_Detail()] if stream.width >= DETAILED else []),
        console=console,
        transient=True,
        refresh_per_second=5,
        redirect_stdout=False,
        redirect_stderr=False,
    )


def _column() -> Column:
    """A column that gives way last, after names and details."""
    return Column(no_wrap=True, overflow="crop")
