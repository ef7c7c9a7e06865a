"""Takes the screens of `docs/chat.md`: `python -m tests.pages.chat_screens` holds a chat with the demo model in tmux.

Each screen of the page follows a line `<!-- screen: NAME -->` and is replaced; the text around it stays. The figures on
the screens are those of the machine that took them, which the page names. The screen of `/help` is only for tests.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.screens.processes import ROOT

PAGE = ROOT / "docs" / "chat.md"
TIMEOUT = 120.0


class Tmux:
    """A terminal of 80 columns and 24 rows with a shell in it.

    Args:
        home: where the chats in it keep everything.
    """

    def __init__(self, home: Path) -> None:
        self._name = f"localdiff-{os.getpid()}"
        programs = Path(sys.executable).parent
        shell = f"env PATH={programs}:$PATH LOCALDIFF_HOME={home} PS1='$ ' bash --norc --noprofile"
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "-c", str(ROOT), shell)

    def __enter__(self) -> Tmux:
        return self

    def __exit__(self, *_: object) -> None:
        self._tmux("kill-server")

    def press(self, *keys: str) -> None:
        """Keys as tmux calls them."""
        self._tmux("send-keys", *keys)

    def say(self, text: str) -> None:
        """A line and Enter."""
        self._tmux("send-keys", "-l", text)
        self.press("Enter")

    def screen(self) -> str:
        """The rows, without blanks at their ends and without empty ones at the bottom."""
        rows = self._tmux("capture-pane", "-p").split("\n")
        return "\n".join(row.rstrip() for row in rows).rstrip("\n")

    def wait_for(self, words: str) -> str:
        """The first screen that has these words."""
        return self.wait_for_match(re.escape(words))

    def wait_for_match(self, pattern: str) -> str:
        """The first screen in which something matches."""
        deadline = time.monotonic() + TIMEOUT
        while not re.search(pattern, shown := self.screen()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{pattern!r} never came:\n{shown}")
            time.sleep(0.02)
        return shown

    def wait_for_prompt(self, words: str) -> str:
        """The screen with these words, once the next line can be typed."""
        self.wait_for(words)
        deadline = time.monotonic() + TIMEOUT
        while not (shown := self.screen()).endswith(("\n>>>", "\n$")):
            if time.monotonic() > deadline:
                raise TimeoutError(f"no prompt behind {words!r}:\n{shown}")
            time.sleep(0.05)
        return shown

    def _tmux(self, *arguments: str) -> str:
        done = subprocess.run(["tmux", "-L", self._name, *arguments], capture_output=True, text=True, check=True)
        return done.stdout


def take(home: Path) -> dict[str, str]:
    """The screens by name: a chat is started, stopped, undone, saved, left and continued."""
    screens: dict[str, str] = {}
    with Tmux(home) as terminal:
        terminal.wait_for("$")
        terminal.say("localdiff chat -m demo")
        terminal.wait_for_prompt("/help lists keys and commands")
        terminal.say("Spell the word planet.")
        screens["first"] = terminal.wait_for_prompt("tok/s")
        terminal.say("Write a story about a dragon and a spaceship.")  # an unknown place, so it takes its time
        screens["condensing"] = terminal.wait_for_match(r"step ([ 1][3-9]|\d\d)/")
        terminal.press("C-c")
        screens["stopped"] = terminal.wait_for("nothing was kept.\n>>> Write a story")
        terminal.press("C-c")
        terminal.say("Spell the word moon.")
        terminal.wait_for_prompt("m-o-o-n")
        terminal.say("/undo")
        terminal.wait_for_prompt("Took back 1 turn")
        terminal.say("/svae words")
        terminal.wait_for_prompt("Did you mean")
        terminal.say("/save words")
        terminal.wait_for_prompt("Saved as `words`")
        screens["commands"] = terminal.screen()
        terminal.press("C-l")
        terminal.say("/help")
        screens["help"] = terminal.wait_for_prompt("/trace [FILE]")
        terminal.say("/exit")
        terminal.wait_for_prompt("`localdiff chat -c` continues it")
        terminal.press("C-l")
        time.sleep(0.5)
        terminal.say("localdiff chat -c")
        terminal.wait_for_prompt("the last message was")
        terminal.say("Spell the word river.")
        screens["continued"] = terminal.wait_for_prompt("tok/s")
        terminal.press("C-d")
        terminal.wait_for_prompt("`localdiff chat -c` continues it")
    return screens


def fill(page: str, screens: dict[str, str]) -> str:
    """The page with these screens in their places."""
    for name, screen in screens.items():
        pattern = re.compile(rf"(<!-- screen: {name} -->\n```\n).*?(^```$)", re.DOTALL | re.MULTILINE)
        page, found = pattern.subn(lambda match, shown=screen: f"{match[1]}{shown}\n{match[2]}", page)
        if found != 1:
            raise ValueError(f"the page has {found} places for the screen {name!r}")
    return page


def main() -> None:
    if shutil.which("tmux") is None:
        sys.exit("tmux is not here")
    with tempfile.TemporaryDirectory() as home:
        screens = take(Path(home))
    del screens["help"]  # the page has its tables already
    PAGE.write_text(fill(PAGE.read_text(), screens))


if __name__ == "__main__":
    main()
