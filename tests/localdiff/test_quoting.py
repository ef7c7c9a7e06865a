"""Text from outside in a line of ours, and in a command to copy."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from localdiff.quoting import printable, shell_word


@pytest.mark.parametrize("name", [b"plain", b"sp ace", b"it's", b"\xff1", b"new\nline", b"\x1b[31m'\\", "é".encode()])
@pytest.mark.skipif(shutil.which("bash") is None, reason="asks bash")
def test_a_shell_reads_a_word_as_it_was(name: bytes) -> None:
    word = shell_word(os.fsdecode(name))
    assert word.isprintable()
    bash = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True)
    assert bash.stdout == name


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("naïve 日本 `x`", "naïve 日本 `x`"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b2J", "\\x9b2J"),
        ("a\nb\r", "a\\nb\\r"),
        ("\u202eabc", "\\u202eabc"),
        ("n\udce9.txt", "n\\xe9.txt"),
        ("\udc80\udcff\udd00", "\\x80\\xff\\udd00"),
        ("\ud83d", "\\ud83d"),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown
