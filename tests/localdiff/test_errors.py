"""What Python shows of an error that nobody has caught."""

from __future__ import annotations

import traceback

from localdiff.errors import UsageError, one_line, without_password


def test_a_traceback_has_the_hint_as_it_is_in_the_end() -> None:
    error = UsageError("no such thing", "look here")
    error.hint = "look elsewhere"
    error.add_note("of a caller")
    words = "localdiff.errors.UsageError: no such thing\nhint: look elsewhere\nof a caller\n"
    assert "".join(traceback.format_exception(error)) == words
    assert "hint" not in "".join(traceback.format_exception(UsageError("no such thing")))


def test_what_a_library_says_of_an_address_is_said_without_its_password() -> None:
    words = "503 for url https://me:pa:ss@word@hub.test:80/a@b, through http://him@proxy.test (x@y)"
    expected = "503 for url https://****@hub.test:80/a@b, through http://****@proxy.test (x@y)"
    assert without_password(words) == one_line(ValueError(words)) == expected
    long = ValueError(f"{'x ' * 95}https://me:{'secret' * 20}@hub.test")
    assert "secret" not in one_line(long)  # although the line is cut before the address ends
