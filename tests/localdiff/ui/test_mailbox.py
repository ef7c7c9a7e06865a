"""The latest item wins, kept items stay, and no thread waits that should not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

import pytest

from localdiff.ui.mailbox import Mailbox

TIMEOUT = 30.0
HANGING = 600.0
"""Seconds that a wait only takes if nothing wakes the thread."""


def in_background(run: Callable[[], object]) -> None:
    threading.Thread(target=run, daemon=True).start()


def test_the_latest_wins() -> None:
    box: Mailbox[int] = Mailbox()
    for item in range(10_000):
        box.put(item)
    assert box.take(0) == [9_999]
    assert box.take(0) == []


def test_what_is_kept_stays_in_order_and_ends_what_came_before() -> None:
    box: Mailbox[str] = Mailbox()
    box.put("old")
    box.put("first", keep=True)
    box.put("second", keep=True)
    box.put("newer")
    box.put("newest")
    assert box.take(0) == ["first", "second", "newest"]


def test_whoever_takes_is_woken_by_what_comes() -> None:
    """Each item comes once the one before it was taken: the reader waits for most of them."""
    box: Mailbox[int] = Mailbox()
    taken: SimpleQueue[list[int]] = SimpleQueue()
    in_background(lambda: [taken.put(box.take(HANGING)) for _ in range(100)])
    for number in range(100):
        box.put(number)
        assert taken.get(timeout=TIMEOUT) == [number]


@pytest.mark.parametrize("wait", [Mailbox.pause, Mailbox.take], ids=lambda wait: wait.__name__)
def test_closing_wakes_whoever_waits(wait: Callable[[Mailbox[int], float], object]) -> None:
    woken: SimpleQueue[object] = SimpleQueue()
    for _ in range(20):  # most threads wait by the time that their box is closed
        box: Mailbox[int] = Mailbox()
        in_background(lambda box=box: woken.put(wait(box, HANGING)))
        box.close()
        assert not woken.get(timeout=TIMEOUT)


def test_closing_loses_nothing() -> None:
    box: Mailbox[int] = Mailbox()
    box.put(1, keep=True)
    box.close()
    assert box.closed
    assert box.take(HANGING) == [1]
    assert box.take(HANGING) == []


def test_a_pause_is_not_ended_by_what_comes_meanwhile() -> None:
    box: Mailbox[int] = Mailbox()
    woken = threading.Event()
    in_background(lambda: (box.pause(HANGING), woken.set()))
    for item in range(100):
        box.put(item, keep=item % 2 == 0)
    assert not woken.wait(0.1)
    box.close()
    assert woken.wait(TIMEOUT)
    assert len(box.take(0)) == 51
