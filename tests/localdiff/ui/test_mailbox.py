"""Latest wins, kept things stay, and nobody waits who must not."""

from __future__ import annotations

import threading

from localdiff.ui.mailbox import Mailbox


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


def test_taking_waits_for_something_to_come() -> None:
    box: Mailbox[int] = Mailbox()
    taken: list[list[int]] = []
    reader = threading.Thread(target=lambda: taken.append(box.take(30)))
    reader.start()
    box.put(1)
    reader.join(30)
    assert taken == [[1]]


def test_closing_wakes_whoever_waits_and_loses_nothing() -> None:
    box: Mailbox[int] = Mailbox()
    woken: list[str] = []

    def wait() -> None:
        box.pause(30)
        woken.append("paused")

    sleeper = threading.Thread(target=wait)
    sleeper.start()
    box.put(1, keep=True)
    box.close()
    sleeper.join(30)
    assert woken == ["paused"]
    assert box.closed
    assert box.take(30) == [1]
    assert box.take(30) == []


def test_a_pause_is_not_ended_by_what_comes_meanwhile() -> None:
    box: Mailbox[int] = Mailbox()
    woken = threading.Event()

    def wait() -> None:
        box.pause(30)
        woken.set()

    sleeper = threading.Thread(target=wait)
    sleeper.start()
    for item in range(100):
        box.put(item, keep=item % 2 == 0)
    assert not woken.wait(0.1)
    box.close()
    sleeper.join(30)
    assert woken.is_set()
    assert len(box.take(0)) == 51
