"""Which committed text is finished."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localdiff.events import Channel, TextCommitted
from localdiff.view.paragraphs import Passage, Transcript, finished_length, finished_lines


@pytest.mark.parametrize(
    ("text", "finished"),
    [
        ("one", ""),
        ("one\ntwo\n", ""),
        ("one\n\ntwo", "one\n\n"),
        ("one\n \t\ntwo\n\nthree", "one\n \t\ntwo\n\n"),
        ("```python\na = 1\n\nb = 2\n", ""),
        ("```\ncode\n\n", ""),
        ("before\n\n```\ncode\n\ncode\n", "before\n\n"),
        ("```\ncode\n\n```\n\nafter", "```\ncode\n\n```\n\n"),
        ("~~~\n```\n\n~~~\n\nafter", "~~~\n```\n\n~~~\n\n"),
        ("````\n```\na\n```\n\nb\n", ""),
        ("````\n```\na\n\nb\n", ""),
        ("````\n```\na\n\nb\n```\n\n````\n\nafter", "````\n```\na\n\nb\n```\n\n````\n\n"),
        ("```\na\n\n````\n\nafter", "```\na\n\n````\n\n"),
        ("```ls -la``` lists\n\nafter", "```ls -la``` lists\n\n"),
        ("    ```\n\nno fence\n", "    ```\n\n"),
        ("    code\n\n", ""),
        ("- one\n\n", ""),
        ("- one\n\n- two\n\n  more\n", "- one\n\n"),
        ("Two:\n- one\n- two", ""),
        ("Two:\n- one\n- two\n", "Two:\n- one\n"),
        ("9. one\n   - inner\n   - inner\n10. two\n", "9. one\n   - inner\n   - inner\n"),
        ("1. one\n1. two\n1. three\n", ""),
        ("10. one\n\n   - inner\n", ""),
        ("10. one\n\n   - inner\n\n11. two\n", "10. one\n\n   - inner\n\n"),
        ("1. one\n1. two\n2. three\n2. four\n", "1. one\n1. two\n"),
        ("- one\n- two\n* three\n", "- one\n"),
        ("> - one\n> - two\n", ""),
        ("- `- one`\n  ```\n- two\n", "- `- one`\n  ```\n"),
        ("- one\n  ```\n  - two\n", ""),
        ("$$\n- one\n- two\n$$\n", ""),
        ("\\[\n- one\n- two\n\\]\n", ""),
        ("- one\n\ntext", ""),
        ("- one\n\ntext\n", "- one\n\n"),
        ("- one\n\n* another\n", "- one\n\n"),
        ("1. one\n\n   ```\n   code\n\n   code\n   ```\n\n2. two\n\n# Head\n\n", None),
        ("1. one\n```\ncode\n\ncode\n", ""),
        ("1. one\n```\ncode\n```\n\n2. two\n", "1. one\n```\ncode\n```\n\n"),
        ("> said\n\n", "> said\n\n"),
        ("| a |\n|---|\n| b |\n\ntext", "| a |\n|---|\n| b |\n\n"),
        ("\n\ntext", "\n\n"),
        ("a\r\n\r\nb", "a\r\n\r\n"),
        ("a\x0c\n\x0b\nb", ""),
    ],
)
def test_text_is_finished_at_a_blank_line_between_blocks_and_before_an_item(text: str, finished: str | None) -> None:
    assert text[: finished_length(text)] == (text if finished is None else finished)


@pytest.mark.parametrize(
    ("text", "finished"), [("one", ""), ("one\ntwo", "one\n"), ("one\n\n", "one\n\n"), ("\n", "\n"), ("", "")]
)
def test_plain_text_is_finished_line_by_line(text: str, finished: str) -> None:
    assert text[: finished_lines(text)] == finished
    transcript = Transcript(finished_lines)
    if text:
        transcript.add(said(text))
    assert "".join(passage.text for passage in transcript.take_finished()) == finished
    assert transcript.pending == text[len(finished) :]


def said(text: str, channel: Channel = "answer") -> TextCommitted:
    return TextCommitted(block=1, channel=channel, text=text)


def test_paragraphs_leave_one_by_one() -> None:
    transcript = Transcript(finished_length)
    transcript.add(said("one\n\ntw"))
    assert transcript.take_finished() == (Passage(channel="answer", text="one\n\n"),)
    assert transcript.pending == "tw"
    transcript.add(said("o\n"))
    assert transcript.take_finished() == ()
    assert transcript.take_all() == (Passage(channel="answer", text="two\n"),)
    assert transcript.take_all() == ()


def test_the_last_line_is_ended() -> None:
    transcript = Transcript(finished_length)
    transcript.add(said("one"))
    assert transcript.take_all() == (Passage(channel="answer", text="one\n"),)


def test_a_change_of_channel_finishes_what_was_begun() -> None:
    transcript = Transcript(finished_length)
    transcript.add(said("hm", "thought"))
    transcript.add(said("yes"))
    assert transcript.take_finished() == (Passage(channel="thought", text="hm\n"),)
    assert transcript.pending == "yes"


def test_what_an_answer_left_unfinished_comes_again_with_what_continues_it() -> None:
    transcript = Transcript(finished_length, begun="one\n\ntw")
    assert transcript.pending == "tw"
    assert transcript.take_all() == ()  # nothing has come
    transcript.add(said("o\n\nthree"))
    assert transcript.take_finished() == (Passage(channel="answer", text="two\n\n"),)
    assert transcript.take_all() == (Passage(channel="answer", text="three\n"),)


def test_what_an_answer_left_unfinished_is_no_part_of_a_thought() -> None:
    transcript = Transcript(finished_length, begun="one")
    transcript.add(said("hm", "thought"))
    transcript.add(said("two"))
    assert [passage.text for passage in transcript.take_all()] == ["hm\n", "two\n"]


@given(st.lists(st.text(alphabet="ab \n`~", max_size=30)))
def test_nothing_is_lost_or_printed_twice(parts: list[str]) -> None:
    transcript = Transcript(finished_length)
    out = ""
    for part in parts:
        transcript.add(said(part))
        out += "".join(passage.text for passage in transcript.take_finished())
    out += "".join(passage.text for passage in transcript.take_all())
    text = "".join(parts)
    assert out == text + ("\n" if text and not text.endswith("\n") else "")
