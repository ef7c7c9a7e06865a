"""Colours of code: the parts that stand out, and not a character more or less."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pygments import plugin

from localdiff.chat import highlighting
from localdiff.chat.highlighting import MAX_BLANKS, MAX_LINE, highlighted
from localdiff.chat.markdown import render

LANGUAGES = [
    *("python", "py", "pycon", "bash", "sh", "console", "javascript", "js", "ts", "tsx", "json", "yaml", "toml", "ini"),
    *("html", "xml", "css", "c", "cpp", "c++", "c#", "java", "kotlin", "go", "rust", "swift", "ruby", "php", "perl"),
    *("lua", "r", "julia", "haskell", "scala", "sql", "dockerfile", "makefile", "cmake", "diff", "powershell"),
]


@pytest.mark.parametrize(
    ("language", "code", "parts"),
    [
        (
            "python",
            "@a\ndef f(b):  # why\n    return b or 'c' * 3\nclass D(ValueError):\n    '''e\n    f'''",
            "magenta @a|magenta def|bold f|dim # why|magenta return|magenta or|green 'c'|cyan 3|"
            "magenta class|bold D|cyan ValueError|green '''e|green f'''",
        ),
        ("bash", 'cd "x" && ls  # why', 'cyan cd|green "x"|dim # why'),
        ("json", '{"a": [1, null, "b"]}', 'magenta "a"|cyan 1|cyan null|green "b"'),
        ("html", "<a href='b'>c</a>", "magenta a|cyan href|green 'b'|magenta a"),
        ("console", "$ ls\na b", "dim $"),
        ("c++", "#include <a>\nint x;", "cyan #include|green <a>|cyan int"),
        ("diff", "--- a\n+++ b\n@@ -1 +1 @@\n-c\n+d\n e", "red --- a|green +++ b|cyan @@ -1 +1 @@|red -c|green +d"),
    ],
)
def test_what_stands_out(language: str, code: str, parts: str) -> None:
    lines = highlighted(code, language)
    assert lines is not None
    segments = [segment for line in lines for segment in line if segment.text.strip() and segment.style]
    assert [f"{segment.style} {segment.text.strip()}" for segment in segments] == parts.split("|")


@pytest.mark.parametrize(
    ("label", "known"),
    [
        ("python", True),
        ("Python", True),
        ('js title="a.js"', True),
        ("rust,no_run", True),
        ("{.python .numberLines}", True),
        ("python:main.py", True),
        ("", False),
        ("  ", False),
        ("!?", False),
        ("pythonish", False),
        ("text", False),
        ("output", False),
    ],
)
def test_a_language_is_known_by_its_name_and_never_guessed(
    label: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(*_arguments: object) -> None:
        raise AssertionError("nothing is looked for in other packages")

    monkeypatch.setattr(plugin, "iter_entry_points", search)
    assert (highlighted("#!/bin/sh\nimport os", label) is not None) == known


codes = st.lists(
    st.sampled_from(
        ["x", "def ", "'", '"', "'''", "/*", "*/", "#", "//", "<a>", "<?php", "{{", "}}", "(", ")", "$", "`", "\\", "+"]
        + ["\n", "\n\n", "\t", " ", "  \n", "日本", "é", "▯", "0x1f", "@", ":", "- ", "```", ">>> ", "$ ", "<<EOF\n"]
    ),
    max_size=30,
).map("".join)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(LANGUAGES), codes)
def test_code_is_exact(language: str, code: str) -> None:
    lines = highlighted(code, language)
    assert lines is not None
    assert "\n".join("".join(segment.text for segment in line) for line in lines) == code


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(LANGUAGES), codes)
def test_colours_are_those_that_can_be_read_on_any_ground(language: str, code: str) -> None:
    shown = render(f"~~~~~{language}\n{code}\n~~~~~", 80, color=True)
    assert set(re.findall(r"\x1b\[(.*?)m", shown)) <= {"0", "1", "2", "31", "32", "35", "36"}


def test_what_would_be_waited_for_is_left_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(highlighting, "MAX_SECONDS", 60)
    line = "x = 1\n"
    assert highlighted("x" * MAX_LINE, "python") is not None
    assert highlighted(line + "x" * (MAX_LINE + 1), "python") is None
    assert highlighted("x" + "\n" * MAX_BLANKS + "x", "c") is not None
    assert highlighted("x" + "\n" * (MAX_BLANKS + 1) + "x", "c") is None


@pytest.mark.parametrize(
    ("code", "language"),
    [("x" + "\n" * 20_000 + "x", "c"), ("x" + f"{' ' * 400}\n" * 50 + "x", "c"), ("/*\n" * 30_000, "chapel")],
)
def test_a_lexer_that_takes_quadratic_time_is_not_waited_for(code: str, language: str) -> None:
    """A model that repeats itself may write such code."""
    began = time.process_time()
    assert highlighted(code, language) is None
    assert time.process_time() - began < 5  # it would take a minute
