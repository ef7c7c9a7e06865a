"""What Python shows of an error that nobody has caught."""

from __future__ import annotations

import traceback

from localdiff.errors import UsageError


def test_a_traceback_has_the_hint_as_it_is_in_the_end() -> None:
    error = UsageError("no such thing", "look here")
    error.hint = "look elsewhere"
    error.add_note("of a caller")
    words = "localdiff.errors.UsageError: no such thing\nhint: look elsewhere\nof a caller\n"
    assert "".join(traceback.format_exception(error)) == words
    assert "hint" not in "".join(traceback.format_exception(UsageError("no such thing")))
