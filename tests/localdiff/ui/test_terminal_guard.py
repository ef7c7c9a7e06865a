"""Who gets a terminal back while a guard gives it up."""

from __future__ import annotations

import io

from localdiff.ui.terminal_guard import TerminalGuard


class Keys:
    """Keys that note what is done to them, and a process that is continued just when they have been restored."""

    def __init__(self) -> None:
        self.guard: TerminalGuard | None = None
        self.done: list[str] = []

    def take_over(self) -> None:
        self.done.append("take over")

    def give_back(self) -> None:
        self.done.append("give back")

    def leave(self, *, interrupted: bool) -> None:
        self.restore()

    def restore(self) -> None:
        self.done.append("restore")
        if self.guard is not None:
            self.guard._on_continued()


def test_a_process_that_is_continued_while_it_ends_leaves_the_terminal_restored() -> None:
    keys = Keys()
    guard = TerminalGuard(stream=io.StringIO(), keys=keys)
    guard.start()
    guard._on_continued()
    keys.guard = guard
    guard.stop()
    assert keys.done == ["take over", "take over", "restore"]
