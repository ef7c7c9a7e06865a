"""The live canvas: an observer that draws a run while it happens and leaves only final text behind.

Knows events, a drawing thread and what may be said on the screen; knows nothing about the engine or about
how a scene looks. The engine's thread only folds events and leaves frames in a mailbox; it never waits for
the screen.

    on_event ─► fold ─► mailbox ─► drawing thread ─► painter ─► one write
    (engine's thread)   latest frame wins            at most 20 frames per second
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import TextIO, get_args

from localdiff.events import (
    BlockCommitted,
    BlockStarted,
    Channel,
    DenoiseStep,
    Event,
    RunFinished,
    TextCommitted,
)
from localdiff.ui.mailbox import Mailbox
from localdiff.ui.painter import Frame, Painter
from localdiff.ui.region import LEAVE
from localdiff.ui.terminal import keeps_waiting, takes_output, terminal_size
from localdiff.ui.terminal_guard import TerminalGuard
from localdiff.ui.terminal_signals import held
from localdiff.ui.watch import Watch
from localdiff.view.ansi import encode_thought
from localdiff.view.canvas_view import CanvasView
from localdiff.view.layout import Size
from localdiff.view.palette import Palette
from localdiff.view.paragraphs import Passage, Transcript, finished_length, finished_lines
from localdiff.view.pieces import Pieces
from localdiff.view.sanitize import safe_text
from localdiff.view.scene import Scene, fold
from localdiff.view.word_wrap import WordWrap

DEFAULT_FPS = 20.0
LINE_FPS = 4.0

_POLL_SECONDS = 0.25
_PATIENCE_SECONDS = 2.0
_NAP_SECONDS = 0.05
_ASIDE_SECONDS = 0.15


class LiveView:
    """Draws a run on a terminal.

    Use it as a context manager around the loop that reads the engine's events, and pass it each event before any
    observer that prints after the run: at `RunFinished` the canvas is removed and the text printed.

    Args:
        stream: the terminal to draw on, usually stderr.
        one_line: draw one status line instead of a canvas, at most four times per second.
        fps: maximum frames per second.
        slow: seconds that the engine waits after each step, for watching; the measured speed then means nothing.
        size: current size of the terminal; by default the terminal is asked.
    """

    def __init__(
        self,
        *,
        stream: TextIO,
        pieces: Pieces,
        watch: Watch,
        palette: Palette,
        one_line: bool = False,
        fps: float = DEFAULT_FPS,
        slow: float = 0.0,
        size: Callable[[], Size] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._stream = stream
        self._watch = watch
        self._size = size or (lambda: terminal_size(stream))
        self._answers = "answer" in watch.prints
        self._slow = slow
        self._clock, self._sleep = clock, sleep
        self._screen = threading.RLock()
        self._guard = TerminalGuard(
            stream=stream,
            keys=watch.keys,
            on_resumed=self._on_resumed,
            leave=lambda: LEAVE,
            undrawn=lambda: held(self._screen),
        )
        self._painter = Painter(
            stream=stream,
            view=CanvasView(pieces=pieces, palette=palette),
            size=self._size,
            one_line=one_line,
            fps=min(fps, LINE_FPS) if one_line else fps,
            stopping=watch.cancelled,
            away=self._guard.is_away,
            clock=clock,
        )
        self._scene = Scene(slowed=slow > 0, legend=watch.legend)
        self._wraps = {channel: WordWrap(lambda: self._size().columns) for channel in get_args(Channel)}
        self._wraps["answer"].add(safe_text(watch.begun[: finished_lines(watch.begun)]))  # code may have begun there
        self._transcript = Transcript(finished_lines if watch.render is None else finished_length, begun=watch.begun)
        self._mailbox: Mailbox[Frame] = Mailbox()
        self._undrawn: list[Frame] = []
        self._rests_until = -math.inf
        self._failure: BaseException | None = None
        self._resumed = False
        self._closed = False
        self._hurry = False
        self._thread: threading.Thread | None = None

    def __enter__(self) -> LiveView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A process that was told to end must not wait for a terminal that is held with Ctrl-S.
        self.close(patience=None if kind is None else _PATIENCE_SECONDS)

    def on_event(self, event: Event) -> None:
        """Take note of an event; returns at once, except for the wait that `slow` asks for.

        Raises:
            OSError: the terminal is gone, and the answer with it.
        """
        if isinstance(self._failure, OSError) and self._answers:
            raise self._failure
        self._scene = fold(self._scene, event)
        match event:
            case TextCommitted():
                # Drawn with the next block: until then the settled page stays, and no frame is empty.
                self._transcript.add(event)
                if event.channel in self._watch.elsewhere and "\n" in event.text:
                    self._step_aside()
            case BlockStarted():
                passages = self._transcript.take_finished()
                self._scene = replace(self._scene, pending=self._transcript.pending)
                self._put(Frame(scene=self._scene, above=self._printed(passages)), keep=True)
            case RunFinished():
                self.close()
            case _:
                self._put(Frame(scene=self._scene), keep=isinstance(event, BlockCommitted))
        if self._slow and isinstance(event, DenoiseStep):
            self._wait(self._slow)

    def above(self, line: str) -> None:
        """Print a line that stays: above the canvas while there is one, and as usual before and after."""
        if self._thread is None or self._closed:
            with suppress(OSError):  # only a remark; `close` reports an answer that cannot be shown
                self._stream.write(line + "\n")
                self._stream.flush()
        else:
            self._put(Frame(scene=self._scene, above=safe_text(line) + "\n"), keep=True)

    def close(self, *, patience: float | None = None) -> None:
        """Leave the final text in place of the canvas and restore the terminal; a second call does nothing.

        Args:
            patience: maximum seconds to wait for a terminal that takes no output, None for as long as it takes.

        Raises:
            OSError: the terminal is gone, and the answer with it.
            Exception: the drawing failed; the text has been printed nevertheless.
        """
        if self._closed:
            return
        self._hurry = patience is not None
        self._mailbox.close()
        if self._thread is not None:
            with suppress(RuntimeError):  # a signal came before the thread had begun
                self._thread.join(patience)
        self._closed = True
        if self._thread is not None and (self._thread.is_alive() or keeps_waiting(self._stream)):
            # The terminal accepts no output, even if no thread waits, as when the picture has not changed. What can
            # be restored is restored now, and again at the very end.
            self._guard.restore()
            return
        try:
            self._finish()
        finally:
            if self._failure is not None:
                self._guard.restore()
            self._guard.stop(interrupted=self._watch.cancelled())
        if self._failure is not None and (self._answers or not isinstance(self._failure, OSError)):
            raise self._failure

    def _finish(self) -> None:
        frames = self._undrawn + self._mailbox.take(0)
        text = "".join(frame.above for frame in frames) + self._printed(self._transcript.take_all())
        try:
            self._painter.finish(text)
        except OSError as error:
            self._failure = self._failure or error

    def _printed(self, passages: tuple[Passage, ...]) -> str:
        return "".join(self._encoded(passage) for passage in passages if passage.channel in self._watch.prints)

    def _encoded(self, passage: Passage) -> str:
        if passage.channel == "answer" and self._watch.render is not None:
            return self._watch.render(passage.text, self._size().columns)
        text = self._wraps[passage.channel].add(safe_text(passage.text))
        return encode_thought(text) if passage.channel == "thought" else text

    def _put(self, frame: Frame, *, keep: bool) -> None:
        if self._thread is None:
            self._guard.start()
            self._thread = threading.Thread(target=self._draw, name="live-canvas", daemon=True)
            self._thread.start()
        self._mailbox.put(frame, keep=keep)

    def _draw(self) -> None:
        while True:
            self._undrawn += self._mailbox.take(0 if self._undrawn else _POLL_SECONDS)
            if self._mailbox.closed and (self._hurry or self._rests or not self._undrawn):
                return
            try:
                with self._screen:
                    if not self._rests:
                        self._draw_frames()
            except BaseException as error:  # raised again by `close`
                self._failure = error
                return
            self._mailbox.pause(self._painter.interval)

    def _draw_frames(self) -> None:
        if self._resumed:
            self._resumed = False
            self._painter.restart()
        if not self._undrawn:
            self._painter.refresh()
        while self._undrawn and not self._hurry:
            self._painter.paint(self._undrawn[0])
            self._undrawn.pop(0)

    @property
    def _rests(self) -> bool:
        return self._clock() < self._rests_until

    def _step_aside(self) -> None:
        # Only the drawing thread may wait for a terminal that accepts no output.
        if self._thread is None or not takes_output(self._stream) or not self._screen.acquire(timeout=_NAP_SECONDS):
            return
        try:
            self._rests_until = self._clock() + _ASIDE_SECONDS
            self._painter.step_aside()
        except OSError as error:
            self._failure = self._failure or error
        finally:
            self._screen.release()

    def _on_resumed(self) -> None:
        self._resumed = True

    def _wait(self, seconds: float) -> None:
        while seconds > 0 and not self._watch.cancelled():
            self._sleep(min(seconds, _NAP_SECONDS))
            seconds -= _NAP_SECONDS
