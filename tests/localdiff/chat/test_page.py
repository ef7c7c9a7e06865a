"""`docs/chat.md` says what the program does, and its screens can be taken again."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest

from localdiff.chat import settings
from localdiff.chat.help import usage
from localdiff.chat.session_file import HEADER_FIELDS, TURN_FIELDS
from localdiff.chat.slash import COMMANDS
from tests.pages.chat_screens import PAGE, fill, take

TEXT = PAGE.read_text()


def test_every_command_is_on_the_page_as_help_has_it() -> None:
    rows = re.findall(r"^\| `(/.*?)` \| (.*) \|$", TEXT, re.MULTILINE)
    assert rows == [(usage(command).replace("|", "\\|"), command.help) for command in COMMANDS]


def test_every_setting_is_on_the_page() -> None:
    for name in settings.names():
        assert f"`{name}`" in TEXT, name


def test_every_field_of_a_session_is_on_the_page() -> None:
    table = TEXT.partition("| Line | Field |")[2].partition("\n\n")[0]
    named = re.findall(r"`(\w+)`(?=[ ,][^\n]*\|)", "\n".join(row.split("|")[2] + "|" for row in table.splitlines()[1:]))
    assert sorted(named) == sorted(["session", *HEADER_FIELDS, *TURN_FIELDS])


def test_screens_are_filled_into_their_places() -> None:
    page = "a\n<!-- screen: x -->\n```\nold\n```\nb\n"
    assert fill(page, {"x": "new\\1\nrows"}) == "a\n<!-- screen: x -->\n```\nnew\\1\nrows\n```\nb\n"
    with pytest.raises(ValueError, match="0 places"):
        fill(page, {"y": "new"})


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not here")
def test_a_chat_in_a_terminal_multiplexer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Started, answered, stopped, undone, saved, left, continued: the page's screens, without their times."""
    monkeypatch.delenv("TMUX", raising=False)
    monkeypatch.setenv("LANG", os.environ.get("LANG") or "C.UTF-8")
    with tempfile.TemporaryDirectory() as home:
        screens = take(Path(home))
    names = re.findall(r"<!-- screen: (\w+) -->", TEXT)
    assert list(screens) == ["first", "condensing", "stopped", "commands", "help", "continued"]
    assert sorted([*names, "help"]) == sorted(screens)
    shown = dict(re.findall(r"<!-- screen: (\w+) -->\n```\n(.*?)\n```", TEXT, re.DOTALL))
    for name in ("first", "continued"):
        assert words(screens[name]) == words(shown[name])
    assert screens["help"].removeprefix(">>> /help\n").startswith("Enter ")  # the page may fill all other rows
    assert all(usage(command) in screens["help"] for command in COMMANDS)
    assert screens["stopped"].endswith("nothing was kept.\n>>> Write a story about a dragon and a spaceship.")
    assert screens["commands"].endswith("Saved as `words`; `localdiff chat --session words` continues it.\n>>>")


def words(screen: str) -> str:
    """A screen without figures that depend on the machine, or `prompt …`, which is left out where those are long."""
    return re.sub(r" · prompt \d+ tok in [\d.]+ s|[\d.]+ (steps?|tok/s)", "", screen)
