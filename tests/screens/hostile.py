"""Text that tries to harm whoever shows it."""

from __future__ import annotations

PIECES = (
    "\x1b[2J\x1b[H",
    "\x1b]52;c;ZXZpbA==\x07",
    "\x9b31m",
    "\u202egnp.exe",
    "\u2066x\u2069",
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "<!--",
    "]]>",
    "'\"&<>`${document.title='owned'}",
    "\u2028\u2029",
    "\x00\x07\x08\r\x7f",
    "\ufeff\u200b\u200d",
    "a\u0300\u0301\u0302\u0303\u0304\u0305",
    "👩‍👩‍👧‍👦🏳️‍🌈",
    "\U0010ffff\ue000",
)

TEXT = " ".join(PIECES) + "\n"


def is_tame(text: str) -> bool:
    """Whether a terminal would only show this text, apart from line ends and tabs."""
    return all(character in "\n\t" or (character >= " " and not "\x7f" <= character < "\xa0") for character in text)
