"""Markdown on a terminal: readable, copyable, and nothing that was written is gone."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from localdiff.chat.markdown import DRAWN, render
from localdiff.events import TextCommitted
from localdiff.view.paragraphs import Transcript, finished_length
from localdiff.view.widths import text_width

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
        ("root  \n    **child**\n  - item", "root\n    child\n\n- item\n"),
        ("*   item\n      more\nlazy", "- item\n    more\n  lazy\n"),
        ("# Head\ntext", "Head\n\ntext\n"),
        ("**bold** *it* `code` ~~old~~ new", "bold it code ~~old~~ new\n"),
        ("2*3*4 and a_b_c", "2*3*4 and a_b_c\n"),
        ("**in `__init__`** __init__.py, __This is bold__", "in __init__ __init__.py, This is bold\n"),
        ("src/*.py, a/**/*.py /*x*/", "src/*.py, a/**/*.py /x/\n"),
        ("x < y > z & <div>HTML</div>", "x < y > z & <div>HTML</div>\n"),
        (r"\(x_1\) \[y\] C:\new &amp;", r"\(x_1\) \[y\] C:\new &amp;" + "\n"),
        (r"\*no emphasis\*, a\_b, \$5, `\*`", r"*no emphasis*, a_b, $5, \*" + "\n"),
        ("[a]: http://b.c\n", "[a]: http://b.c\n"),
        ("[text](http://b.c)", "text (http://b.c)\n"),
        ("[http://b.c](http://b.c) [**x**](http://b.c) [a@b.c](mailto:a@b.c)", "http://b.c x (http://b.c) a@b.c\n"),
        ("[x](http://b.c/2*3/日*本*)", "x (http://b.c/2*3/日*本*)\n"),
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
    assert render(text, 40, color=False) == shown


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
    assert render("a\n\n---\n", 5, color=True) == "a\n\n\x1b[2m--------\x1b[0m\n"
    assert "\x1b" not in render("# a\n**a** `b`\n> c\n\n| d |\n|---|\n| e |\n", 40, color=False)


CODE = """\
- run:
  ```sh  -e
  a  \t
  \t

    2*3*4 端末*b*\x20\x20
  ```
> ```nothing_known
> c
> ```
"""


def test_code_is_exact_in_lists_and_quotes_and_has_a_label_where_that_is_faint() -> None:
    shown = ["- run:", "  a  \t", "  \t", "", "    2*3*4 端末*b*  ", "", "▌ c", ""]
    assert render(CODE, 40, color=False).split("\n") == shown
    lines = render(CODE, 40, color=True).split("\n")
    assert lines[1] == "  \x1b[2msh  -e\x1b[0m"
    assert "\x1b[2;3mnothing_known\x1b[0m" in lines[7]
    assert [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines[:1] + lines[2:7] + lines[8:]] == shown


def test_code_whose_language_is_not_known_has_one_colour() -> None:
    for info, label in (("", ""), ("nothing_known", "\x1b[2mnothing_known\x1b[0m\n")):
        shown = render(f"```{info}\nif x: # y\n    z\n```\n", 40, color=True)
        assert shown == f"{label}\x1b[36mif x: # y\x1b[0m\n\x1b[36m    z\x1b[0m\n"


def test_a_label_does_not_hide_that_letters_would_be_lost() -> None:
    code = "```languages\n1\n```\n"
    assert render(f"{code}\n{'>' * 40}kept\n", 40, color=True) == (
        f"\x1b[2mlanguages\x1b[0m\n\x1b[36m1\x1b[0m\n\n{'>' * 40}kept\n"
    )


def test_escapes_of_the_model_are_none() -> None:
    shown = render("a\x1b[31mb\x1b]8;;http://x\x07c `\x9b2J`\n\n```\n\x1b[H\n```", 40, color=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown) == "a▯[31mb▯]8;;http://x▯c ▯2J\n\n▯[H\n"


SURPLUS = """\
| operator | meaning |
|---|---|
| or | `a || b` |
"""


def test_what_a_layout_would_lose_is_shown_as_it_is() -> None:
    for text in (">" * 40 + "\nkept\n", SURPLUS):
        assert render(text, 40, color=False) == text
    assert render(SURPLUS.rstrip(), 40, color=False) == SURPLUS
    assert render(f"> a\n\n{SURPLUS}", 40, color=False, unicode=False) == f"| a\n\n{SURPLUS}"
    assert render(SURPLUS, 20, color=False) == SURPLUS.replace(" meaning", "\nmeaning"), "but between words"


MISCOUNTED = """\
| Name of the thing | Another_name_of_it |
|---|---|
| 1 | 2 | 3 |
| 4 |
"""


def test_names_of_columns_that_are_repeated_do_not_hide_that_a_cell_would_be_lost() -> None:
    assert render(MISCOUNTED, 24, color=False) == MISCOUNTED.replace(" Another", "\nAnother")


def test_only_the_block_that_would_lose_something_is_shown_as_it_is() -> None:
    assert render(f"**Table:**\n\n{SURPLUS}\n*   `b`\n", 40, color=False) == f"Table:\n\n{SURPLUS}\n- b\n"


def test_a_formula_and_blank_lines_stay_where_another_block_would_lose_something() -> None:
    text = "# Head\ntext\n\n$$\na\n- b\n$$\n"
    assert render(f"{text}\n{SURPLUS}", 40, color=False) == f"Head\n\n{text.removeprefix('# Head')[1:]}\n{SURPLUS}"


def test_quotes_and_tables_are_ascii_where_the_terminal_is() -> None:
    text = "> a\n\n| b | c |\n|---|---|\n| d | é |\n"
    shown = render(text, 40, color=False)
    assert set(DRAWN) <= set(shown)
    assert render(text, 40, color=False, unicode=False) == shown.replace("▌", "|").replace("─", "-")


NUMBERS = """\
1.  **One**

    goes on:
    ```sh
    pip install --no-cache-dir something
    ```
2.  two
    > quoted `and_a_word_wider_than_the_row`
10. ten
"""


def test_items_keep_their_numbers_their_blank_lines_and_lines_wider_than_the_screen() -> None:
    assert render(NUMBERS, 30, color=False) == (
        "1. One\n"
        "\n"
        "   goes on:\n"
        "   pip install --no-cache-dir something\n"
        "2. two\n"
        "   ▌ quoted\n"
        "   ▌ and_a_word_wider_than_the_row\n"
        "10. ten\n"
    )


NESTED = """\
9. nine
  - a
  - b
    ```
    c
      d

    ```

10. ten
   * e

     more
11. eleven

   - f
12. twelve
 - g
\t- h
"""


def test_bullets_below_a_number_are_within_its_item_though_they_are_indented_less_than_its_text() -> None:
    assert render(NESTED, 40, color=False) == (
        "9. nine\n   - a\n   - b\n     c\n       d\n\n10. ten\n    - e\n\n      more\n11. eleven\n"
        "\n    - f\n12. twelve\n\n- g\n  - h\n"
    )


def test_code_in_bullets_below_a_number_is_exact_with_tabs_too() -> None:
    for indent in ("    ", "  \t"):
        shown = render(f"1. a\n  - b\n{indent}```\n{indent}\tc\n{indent}```\n", 40, color=False)
        assert shown.endswith("  \tc\n"), shown


def test_equal_numbers_count() -> None:
    assert render("1) x\n" * 12, 40, color=False) == "".join(f"{number}) x\n" for number in range(1, 13))
    assert render("01. a\n2. b\n2. c\n2. d\n1. e\n", 40, color=False) == "01. a\n2. b\n3. c\n4. d\n1. e\n"


def test_an_address_that_no_row_has_room_for_is_whole_and_scripts_without_blanks_are_broken_anywhere() -> None:
    address = "https://example.org/" + "a" * 30
    assert render(f"See {address} now", 30, color=False) == f"See\n{address}\nnow\n"
    assert render(f"See:\n{address}\n", 30, color=False) == f"See:\n{address}\n"
    assert render("- 日本語: 端末の幅より長い、とても長い文。\n", 20, color=False) == (
        "- 日本語: 端末の幅\n  より長い、とても\n  長い文。\n"
    )
    assert render("端末「の」幅", 9, color=False) == "端末\n「の」幅\n"


@pytest.mark.parametrize("text", ["यह एक लंबा वाक्य है जो यह जाँचता है कि टर्मिनल में पाठ", "⚠️ a ⚠️ b ⚠️ c ⚠️ d ⚠️ e ⚠️ f ⚠️ g"])
@pytest.mark.parametrize("width", [cell_len, text_width])
def test_no_line_is_too_wide_whether_or_not_the_terminal_joins_characters(
    text: str, width: Callable[[str], int]
) -> None:
    lines = render(text, 21, color=False).split("\n")
    assert max(map(width, lines)) <= 20
    assert len(lines) < 6


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("**注意：**日本語と**「重要」**です", "注意：日本語と「重要」です"),
        ("これは*強調*です", "これは強調です"),
        ('**bold**, not **"x"**y', 'bold, not **"x"**y'),
    ],
)
def test_emphasis_beside_scripts_without_blanks(text: str, shown: str) -> None:
    assert render(text, 60, color=False) == f"{shown}\n"


def test_no_line_begins_with_a_full_stop_where_emphasis_ends_before_it() -> None:
    for columns in range(20, 40):
        lines = render("これは**長い**、とても*長い*。" * 6, columns, color=False).split("\n")
        assert not [line for line in lines if line.startswith(("、", "。"))]


@pytest.mark.parametrize(
    "text",
    [
        "$f^*(x)$ and $g^*(y)$, $a_{*}$ and $b_{*}$",
        "$$\n- a *b* + c\n+ _d_ [e](f)\n# g\n$$",
        "so $$a *b* + c\n- _d_$$, and\n  $$\n  - a *b*\n  $$",
        "1. $$\n   - a *b*\n   $$",
        "数$x_1 *a*$ 3 and $2*a*b$, ($0$) and $*c*$",
        r"$a\_b$ and \(f^*\) and \(g^*\)" + "\n\n" + r"\[ h^* _x_ i^* \]",
    ],
)
def test_a_formula_has_no_markup(text: str) -> None:
    assert render(text, 60, color=False) == f"{text}\n"


def test_prices_are_no_formula() -> None:
    assert render("from $5, *or* US$10, to $ **20** $", 60, color=False) == "from $5, or US$10, to $ 20 $\n"
    assert render("$5 *and* US$ 7, US$8 *or* A$ to $9", 60, color=False) == "$5 and US$ 7, US$8 or A$ to $9\n"
    levels = "- Tacos: $\n- *Sushi* (raw) $$\n- Steak: $$$\n- Fugu: $$$$\n- Wine: $$\n- More: $$$\n"
    assert render(levels, 60, color=False) == levels.replace("*", "")


def test_runs_of_blanks_do_not_take_quadratic_time() -> None:
    blanks = " " * 100_000
    began = time.process_time()
    render(f"| a |\n|---|\n| b{blanks}c |\n\n```\nd{blanks}e\n```\n", 40, color=False)
    assert time.process_time() - began < 10  # quadratic time would take a hundred times as long


TABLE = """\
| Name | What it is about | n |
| :--- | :---: | ---: |
| **a** | one<br>two, and `<br>` | 1 |
| bcd | some words that go on | 100 |
"""


def test_a_table_is_as_narrow_as_its_words_or_a_list() -> None:
    assert render(TABLE, 30, color=False) == (
        "Name   What it is about     n\n"
        "─────────────────────────────\n"
        "a            one            1\n"
        "        two, and <br>\n"
        "bcd   some words that go  100\n"
        "              on\n"
    )
    assert render(TABLE, 20, color=False) == (
        "Name: a\n"
        "What it is about:\n"
        "  one\n"
        "  two, and <br>\n"
        "n: 1\n"
        "\n"
        "Name: bcd\n"
        "What it is about:\n"
        "  some words that\n"
        "  go on\n"
        "n: 100\n"
    )


def test_a_column_of_prose_gives_way_to_one_of_addresses() -> None:
    table = "| Page | What it says |\n|---|---|\n| https://example.org/long | some words that go on and on |\n"
    assert render(table, 45, color=False) == (
        "Page                      What it says\n"
        "────────────────────────────────────────────\n"
        "https://example.org/long  some words that go\n"
        "                          on and on\n"
    )


def test_a_column_is_as_wide_as_the_longest_line_of_its_cells() -> None:
    table = "| a | b |\n|---|---|\n| one<br>two | c |\n"
    assert render(table, 45, color=False) == "a    b\n──────\none  c\ntwo\n"


def test_a_table_without_rows_becomes_the_names_of_its_columns() -> None:
    table = "| Name | **What** it is about |\n|---|---|\n"
    assert render(table, 30, color=False) == "Name  What it is about\n──────────────────────\n"
    assert render(table.replace("Name", "Specification"), 20, color=False) == "Specification:\nWhat it is about:\n"


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
    assert sum(map(str.isalpha, shown)) >= sum(
        map(str.isalpha, re.sub(r"^[\s>\-\d.]*(```|~~~).*$", "", text, flags=re.M))
    )
    assert shown == "" or shown.endswith("\n")
    for line in shown.split("\n"):
        # Code may be wider, and so may a single word after the marks of its block.
        bare = re.sub(r"^(?:▌ |- |\d+\. | )+", "", line)
        assert cell_len(line) < columns or bare in text or " " not in bare
    assert render(text, columns, color=True).count("\n") >= shown.count("\n")  # labels of code have lines of their own


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
    shown = "- Install: run:\n\n  pip install foo\n\n  pip install bar\n\n- Use: then\n\n  a continuation\n"
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
    + ["10. ten\n   - a\n11. b\n", "2. b\n  * c\n    d\n", "10. d\n\n   - e\n\n     f\n", " - g\n"]
    + ["- a\n- b\n* c\n", "9. x\n10. y\n\n11. z\n", "1. x\n1. y\n2. z\n2. z\n", "\n$$\n- a *b*\n- _c_\n$$\n"]
    + ["- a\n  - b\n\n    inner\n", "    indented\n", "  text\n", "| a | b |\n|---|---|\n| 1 | 2 |\n", "```\nopen\n"]
)
documents = st.lists(st.tuples(blocks, st.sampled_from(["", "\n", "\n\n"])).map("".join), max_size=8).map("".join)


@settings(max_examples=100, deadline=None)
@given(documents, st.integers(1, 40))
def test_what_is_rendered_piece_by_piece_looks_like_the_whole(text: str, step: int) -> None:
    pieces, whole = piecewise(text, step), render(text, 40, color=False)
    assert pieces.strip("\n") == whole.strip("\n")
