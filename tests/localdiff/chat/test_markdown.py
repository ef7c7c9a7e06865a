"""Markdown on a terminal: readable, copyable, and nothing that was written is gone."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from localdiff.chat.markdown import render
from localdiff.events import TextCommitted
from localdiff.view.paragraphs import Transcript, finished_length

ITEMS = """\
1. first
2. second, which is so long that it goes on in another line of this narrow page
   - inner
3. third
"""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("hello", "hello\n"),
        ("hello\n", "hello\n"),
        ("hello\n\n", "hello\n\n"),
        ("one\ntwo\n", "one\ntwo\n"),
        ("# Head\ntext", "Head\n\ntext\n"),
        ("**bold** *it* `code` ~~old~~ new", "bold it code ~~old~~ new\n"),
        ("2*3*4 and a_b_c", "2*3*4 and a_b_c\n"),
        ("x < y > z & <div>HTML</div>", "x < y > z & <div>HTML</div>\n"),
        (r"\(x_1\) \[y\] a\_b &amp;", r"\(x_1\) \[y\] a\_b &amp;" + "\n"),
        ("[a]: http://b.c\n", "[a]: http://b.c\n"),
        ("[text](http://b.c)", "text (http://b.c)\n"),
        ("![alt](http://b.c)", "!alt (http://b.c)\n"),
        ("text\n---\nmore", "text\n\n" + "-" * 39 + "\n\nmore\n"),
        ("```py\nif x:\n    y()\n\n\nz\n```\n", "if x:\n    y()\n\n\nz\n"),
        ("```\n" + "long " * 20 + "\n```", "long " * 20 + "\n"),
        ("```\nopen", "open\n"),
        ("> said", "▌ said\n"),
        ("", ""),
        ("\n\n", ""),
        ("[/foo] [bold]x[/bold] :smile:", "[/foo] [bold]x[/bold] :smile:\n"),
    ],
)
def test_what_is_shown(text: str, shown: str) -> None:
    assert render(text, 40, color=False) == shown.replace("long \n", "long\n")


def test_lists_keep_their_numbers_and_hang() -> None:
    assert render(ITEMS, 40, color=False) == (
        "1. first\n"
        "2. second, which is so long that it\n"
        "   goes on in another line of this\n"
        "   narrow page\n"
        "   - inner\n"
        "3. third\n"
    )


def test_colour_is_a_matter_of_the_terminal() -> None:
    assert render("**a** `b`", 40, color=True) == "\x1b[1ma\x1b[0m \x1b[36mb\x1b[0m\n"
    assert render("~~old~~ new", 40, color=True) == "\x1b[9mold\x1b[0m new\n"
    assert "\x1b" not in render("# a\n**a** `b`\n> c\n\n| d |\n|---|\n| e |\n", 40, color=False)


def test_escapes_of_the_model_are_none() -> None:
    shown = render("a\x1b[31mb\x1b]8;;http://x\x07c `\x9b2J`\n\n```\n\x1b[H\n```", 40, color=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown) == "a▯[31mb▯]8;;http://x▯c ▯2J\n\n▯[H\n"


def test_what_a_layout_would_lose_is_shown_as_it_is() -> None:
    for text in (">" * 40 + " kept\n", "1. one\n10. ten\n"):
        assert render(text, 40, color=False) == text


markdown = st.lists(
    st.sampled_from(
        ["word", "**", "*", "_", "`", "```\n", "~~~\n", "\n", "\n\n", "# ", "- ", "1. ", "> ", "| a | b |\n|---|---|\n"]
        + ["| 1 | 2 |\n", "[x](y)", "<b>", "</b>", "<!-- c -->", "---\n", "    ", "\\", "&lt;", "計画", "é", "2*3"]
    ),
    max_size=25,
).map("".join)


@settings(max_examples=150, deadline=None)
@given(markdown, st.integers(10, 60))
def test_no_letter_is_lost_and_no_laid_out_line_is_too_long(text: str, columns: int) -> None:
    shown = render(text, columns, color=False)
    assert sum(map(str.isalpha, shown)) >= sum(map(str.isalpha, re.sub(r"^\s*(```|~~~).*$", "", text, flags=re.M)))
    assert shown == "" or shown.endswith("\n")
    for line in shown.split("\n"):
        assert cell_len(line) < columns or line.strip() in text
    assert render(text, columns, color=True).count("\n") == shown.count("\n")


LOOSE = """\
*   **Install**: run:

    ```bash
    pip install foo

    pip install bar
    ```

*   **Use**: then

    a *continuation*
"""


def piecewise(text: str, step: int) -> str:
    """What a chat prints of a text that is committed `step` characters at a time."""
    transcript, printed = Transcript(finished_length), ""
    for start in range(0, len(text), step):
        transcript.add(TextCommitted(block=1, channel="answer", text=text[start : start + step]))
        printed += "".join(render(passage.text, 40, color=False) for passage in transcript.take_finished())
    return printed + "".join(render(passage.text, 40, color=False) for passage in transcript.take_all())


@pytest.mark.parametrize("step", [1, 16, 1000])
def test_a_list_is_one_however_many_blank_lines_it_has(step: int) -> None:
    shown = "- Install: run:\n  pip install foo\n\n  pip install bar\n- Use: then\n  a continuation\n"
    assert piecewise(LOOSE, step) == shown
    assert piecewise(LOOSE + "\nAfterwards.\n", step) == f"{shown}\nAfterwards.\n"


blocks = st.sampled_from(
    [
        "text\n*more*\n",
        "# head\n",
        "> quote\n",
        "> quote\n>\n> more\n",
        "```py\ncode\n\ncode\n```\n",
        "~~~\ncode\n~~~\n",
    ]
    + [
        "- item\n",
        "*   item\n\n    text\n",
        "1. one\n",
        "2. two\n\n   ```\n   code\n\n   code\n   ```\n",
        "- \n",
        "---\n",
    ]
    + ["- a\n  - b\n\n    inner\n", "    indented\n", "  text\n", "| a | b |\n|---|---|\n| 1 | 2 |\n", "```\nopen\n"]
)
documents = st.lists(st.tuples(blocks, st.sampled_from(["", "\n", "\n\n"])).map("".join), max_size=8).map("".join)


@settings(max_examples=100, deadline=None)
@given(documents, st.integers(1, 40))
def test_what_is_rendered_piece_by_piece_looks_like_the_whole(text: str, step: int) -> None:
    # Around a table the whole has more than one blank line.
    pieces, whole = (
        re.sub("\n{3,}", "\n\n", shown) for shown in (piecewise(text, step), render(text, 40, color=False))
    )
    assert pieces.strip("\n") == whole.strip("\n")
