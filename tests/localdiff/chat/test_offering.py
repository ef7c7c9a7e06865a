"""The names that Tab lists, in columns."""

from __future__ import annotations

from localdiff.chat.offering import _page


def test_vowel_signs_have_the_column_that_most_terminals_give_them() -> None:
    assert _page(["हिन्दी", "ab", "日本", "c"], 2, 6) == "हिन्दी 日本  \nab    c     \n"
