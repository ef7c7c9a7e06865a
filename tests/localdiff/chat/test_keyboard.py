"""Keys and what they do to the line, through prompt-toolkit's own parser of key sequences."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.layout import BufferControl
from prompt_toolkit.layout.processors import TransformationInput
from prompt_toolkit.output import DummyOutput
from prompt_toolkit.utils import get_cwidth

from localdiff.chat.completing import ChatCompleter, candidates
from localdiff.chat.history import open_history
from localdiff.chat.interrupts import Interrupts
from localdiff.chat.keyboard import KeyboardReader
from localdiff.chat.line_display import SeparateCharacters
from localdiff.chat.pastes import LONG, WIDE, Pastes
from localdiff.chat.slash import unquoted

ENTER, ALT_ENTER, CTRL_J, TAB, UP = "\r", "\x1b\r", "\n", "\t", "\x1b[A"
CTRL_C, CTRL_D, CTRL_G, CTRL_R, CTRL_Z, HOME = "\x03", "\x04", "\x07", "\x12", "\x1a", "\x01"


def pasted(text: str) -> str:
    return f"\x1b[200~{text}\x1b[201~"


class TypedReader:
    """A reader and the keys that are pressed.

    Attributes:
        on_stop: raised while the process is stopped, as by a signal.
        ahead: what was typed before the line is read.
    """

    on_stop: BaseException | None = None
    ahead = ""

    def __init__(self, keys: PipeInput) -> None:
        self.keys = keys
        self.history = InMemoryHistory()
        self.multiline = False
        self.edited: list[str] = []
        self.screen = Screen()
        self.interrupts = Interrupts()
        self.stops: list[str] = []
        self.reader = KeyboardReader(
            history=self.history,
            completer=ChatCompleter(lambda: ["plans", "plots", "other"]),
            multiline=lambda: self.multiline,
            interrupts=self.interrupts,
            edit=self.edit,
            ahead=self.take,
            suspend=self.suspend,
            input=keys,
            output=self.screen,
        )

    def take(self) -> str:
        ahead, self.ahead = self.ahead, ""
        return ahead

    def edit(self, text: str) -> str:
        self.edited.append(text)
        return text.upper()

    def suspend(self) -> None:
        with pytest.raises(RuntimeError):  # no loop runs here: it would lose an exception
            asyncio.get_running_loop()
        self.stops.append("stop")
        if self.on_stop is not None:
            raise self.on_stop

    def __call__(self, keys: str, text: str = "") -> str | None:
        self.keys.send_text(keys)
        return self.reader.read(text)


class Screen(DummyOutput):
    """A terminal that notes what is written, and whether pastes are marked."""

    marks = False
    written = ""

    def write(self, data: str) -> None:
        self.written += data

    def enable_bracketed_paste(self) -> None:
        self.marks = True

    def disable_bracketed_paste(self) -> None:
        self.marks = False


@pytest.fixture
def typed() -> Iterator[TypedReader]:
    with create_pipe_input() as keys:
        yield TypedReader(keys)


def test_enter_sends(typed: TypedReader) -> None:
    assert typed("hello" + ENTER) == "hello"


@pytest.mark.parametrize("key", [ALT_ENTER, CTRL_J])
def test_a_line_can_be_begun(typed: TypedReader, key: str) -> None:
    assert typed(f"one{key}two{ENTER}") == "one\ntwo"


def test_the_two_kinds_of_enter_can_be_exchanged(typed: TypedReader) -> None:
    typed.multiline = True
    assert typed(f"one{ENTER}two{ALT_ENTER}") == "one\ntwo"


@pytest.mark.parametrize("line", ["/set multiline off", "/hlep", "/", "exit"])
def test_enter_always_sends_a_command(typed: TypedReader, line: str) -> None:
    typed.multiline = True
    assert typed(line + ENTER) == line
    assert typed(f"//{line}{ENTER}two{ALT_ENTER}") == f"//{line}\ntwo"
    assert typed(f"one{ENTER}{line}{ENTER}{ALT_ENTER}") == f"one\n{line}\n"


def test_an_open_quote_goes_on_until_it_is_closed(typed: TypedReader) -> None:
    assert typed(f'"""one{ENTER}two{ENTER}"""{ENTER}') == '"""one\ntwo\n"""'


def test_pasted_code_that_begins_with_a_docstring_is_whole(typed: TypedReader) -> None:
    for code in ('"""What it does."""\nimport os', '"""\nWhat it does.\n"""\nimport os', '"""a"""\nb = """\nc\n"""'):
        assert typed(f"{pasted(code)}{ENTER}") == code
        assert unquoted(code) == code
    assert unquoted('"""\none\ntwo\n""" ') == "one\ntwo"
    assert unquoted('"""one"""') == "one"


@pytest.mark.parametrize("code", ["\x1b[31m", "\x1b[0m", "\x1b[38;5;1m", "\x1b[<0;1;2M", "\x1b[M !!"])
def test_what_looks_like_a_mouse_is_ignored(typed: TypedReader, code: str) -> None:
    assert typed(f"a{code}b" + ENTER) == "ab"


def test_pastes_are_marked_while_no_line_is_read_too(typed: TypedReader) -> None:
    typed("/trace" + ENTER)
    assert typed.screen.marks
    with pytest.raises(EOFError):
        typed(CTRL_D)
    assert not typed.screen.marks


def test_a_paste_is_one_message(typed: TypedReader) -> None:
    assert typed(pasted("one\r\ntwo\rthree\n") + "!" + ENTER) == "one\ntwo\nthree\n!"


@pytest.mark.parametrize("send", [ENTER, "\x0f", "\x1b#"], ids=["Enter", "Ctrl-O", "Alt-#"])
def test_a_long_paste_is_folded_in_the_line_and_whole_in_the_message(typed: TypedReader, send: str) -> None:
    text = "\n".join(f"line {number}" for number in range(143))
    other = text.replace("line", "row")
    assert typed(f"see {pasted(text)} and {pasted(other)}{send}") == f"see {text} and {other}"
    assert typed.history.get_strings() == [f"see {text} and {other}"]


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("\x7f", "see "),  # Backspace
        ("!\x7f", "see PASTE"),
        ("\x7f\x7f", "see"),
        ("\x17", "see "),  # Ctrl-W
        ("\x01" + "\x1b[C" * 4 + "\x1b[3~", "see "),  # Home, right, Delete
        ("\x01" + "\x1b[C" * 4 + "[\x7f", "see PASTE"),
        ("\x1b[D" * 3 + "\x0b", "see "),  # left, Ctrl-K
        ("\x1b[D" * 3 + "ab", "see PASTEab"),
        ("\x7f\x1f", "see PASTE"),  # Backspace, undone
        ("\x15", ""),  # Ctrl-U
    ],
)
def test_a_folded_paste_is_deleted_whole_or_not_at_all(typed: TypedReader, keys: str, line: str) -> None:
    for text in ("x\n" * 30, "x" * 6_000):
        assert typed(f"see {pasted(text)}{keys}{ENTER}") == line.replace("PASTE", text)


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("\x01\x1b[3~", " and SECOND."),  # Home, Delete
        ("\x01\x1b[Cab", "FIRSTab and SECOND."),  # Home, right
        ("\x7f\x7f", "FIRST and "),  # Backspace
        ("\x1b[D" * 3 + "\x15", "."),  # left, Ctrl-U
    ],
)
def test_of_two_folded_pastes_the_one_that_was_touched_is_deleted(typed: TypedReader, keys: str, line: str) -> None:
    first, second = "x\n" * 30, "y\n" * 40
    expected = line.replace("FIRST", first).replace("SECOND", second)
    assert typed(f"{pasted(first)} and {pasted(second)}.{keys}{ENTER}") == expected


def test_a_message_that_comes_back_stands_in_the_line(typed: TypedReader) -> None:
    assert typed(f"!{ENTER}", "hello") == "hello!"
    long = "x\n" * 30
    assert typed(f"!{ENTER}", long) == long + "!"


@pytest.mark.parametrize(
    ("ahead", "line"),
    [
        ("", "hello"),
        (" ", "hello\n "),
        ("more", "hello\nmore"),
        (f"more{ENTER}", "hello\nmore"),
        (f"more{ENTER}/exit{ENTER}{ENTER}", "hello\nmore\n/exit"),
        (f"more{ALT_ENTER}yet{ALT_ENTER}", "hello\nmore\nyet"),
        (ENTER, "hello"),
        (f"{ENTER}more", "hello\nmore"),
        (pasted("more") + ENTER, "hello\nmore"),
        (pasted("more\ryet\r") + "!", "hello\nmore\nyet\n!"),
        (f"\x15more{ENTER}", "more"),  # Ctrl-U
        (f"{CTRL_D}{ENTER}", "hello"),
        (f"more{CTRL_C}yet{ENTER}", "yet"),
    ],
)
@pytest.mark.parametrize("multiline", [False, True])
def test_what_was_typed_ahead_stands_below_a_message_that_came_back_and_sends_nothing(
    typed: TypedReader, ahead: str, line: str, multiline: bool
) -> None:
    typed.multiline, send = multiline, ALT_ENTER if multiline else ENTER
    typed.ahead = ahead
    assert typed(f"!{send}", "hello") == f"{line}!"
    assert typed(f"one{send}{ahead}{send}")  # all of it at once: prompt-toolkit keeps what follows the first line
    assert typed(f"!{send}", "hello") == f"{line}!"


def test_lines_typed_ahead_are_sent_one_by_one_if_no_message_came_back(typed: TypedReader) -> None:
    typed.ahead = f"one{ENTER}two{ENTER}"
    assert [typed(""), typed("")] == ["one", "two"]


FAMILY, FLAG, THUMB, HEART, KEYCAP = "👩\u200d👧", "🇫🇷", "👍🏽", "❤\ufe0f", "1\ufe0f\u20e3"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (f"a{FAMILY}b", "a👩👧b"),
        (f"a{FLAG}b", "aFRb"),
        (f"a{THUMB}b", "a👍b"),
        (f"a{HEART}b", "a❤b"),
        (f"a{KEYCAP}b", "a1\u20e3b"),
        ("a\u202eb\u202cc", "abc"),
        ("🏽", "🏽"),
        ("\U0001fa77 \ue0b0", "\U0001fa77 \ue0b0"),
        ("caf\u00e9 한 漢", "caf\u00e9 한 漢"),
    ],
)
def test_what_terminals_join_or_hide_is_shown_apart_and_sent_whole(typed: TypedReader, line: str, shown: str) -> None:
    assert typed(pasted(line) + ENTER) == line
    assert shown in typed.screen.written


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("\x1b[D" * 2 + "x", f"a{FAMILY[:2]}x{FAMILY[2:]}b"),
        ("\x7f\x7f", f"a{FAMILY[:2]}"),
        (HOME + "x", f"xa{FAMILY}b"),
    ],
)
def test_keys_move_over_what_is_typed_and_not_over_what_is_shown(typed: TypedReader, keys: str, line: str) -> None:
    assert typed(pasted(f"a{FAMILY}b") + keys + ENTER) == line


def test_places_in_a_line_that_is_shown_apart() -> None:
    text = f"a{FAMILY}{FLAG}\u3000b"
    buffer = TransformationInput(
        BufferControl(), Document(text), 0, lambda x: x, [("", text[:2]), ("", text[2:])], 80, 1
    )
    shown = SeparateCharacters().apply_transformation(buffer)
    assert [part[1] for part in shown.fragments] == ["a👩", "👧FR  b"]
    assert [shown.source_to_display(place) for place in range(len(text) + 1)] == [0, 1, 2, 2, 3, 4, 5, 7, 8]
    assert [shown.display_to_source(place) for place in range(9)] == [0, 1, 3, 4, 5, 6, 6, 7, 8]


def test_a_vowel_sign_that_has_a_column_in_most_terminals_has_it_in_a_line(typed: TypedReader) -> None:
    for text, columns in (("का", 2), ("कु", 1), ("दुनिया", 5), ("คำ", 2)):
        typed(text + ENTER)
        assert get_cwidth(text) == columns


def test_ctrl_c_clears_the_line_and_says_so_only_on_an_empty_one(typed: TypedReader) -> None:
    assert typed(f"hel{CTRL_C}lo{ENTER}") == "lo"
    assert typed(CTRL_C) is None
    assert typed(f"hel{CTRL_C}{CTRL_C}") is None


def test_ctrl_z_stops_the_process_and_the_line_goes_on_where_it_was(typed: TypedReader) -> None:
    text = "\n".join(["one line of many"] * 40)
    assert typed(f"world{HOME}hello {CTRL_Z}dear {ENTER}") == "hello dear world"
    assert typed(f"{pasted(text)}{CTRL_Z} after{ENTER}") == f"{text} after"
    assert typed(f"{CTRL_Z}{CTRL_Z}{ENTER}") == ""
    assert typed(f"hello{CTRL_R}anything{CTRL_Z} again{ENTER}") == "hello again"
    assert len(typed.stops) == 5


def test_a_process_that_is_told_to_end_while_it_is_stopped_ends(typed: TypedReader) -> None:
    typed.on_stop = SystemExit(129)
    with pytest.raises(SystemExit):
        typed(f"hello{CTRL_Z}")


def test_ctrl_d_leaves_on_an_empty_line_and_deletes_elsewhere(typed: TypedReader) -> None:
    assert typed(f"hello\x01{CTRL_D}{ENTER}") == "ello"
    with pytest.raises(EOFError):
        typed(CTRL_D)


def test_the_end_of_the_terminal_is_the_end(typed: TypedReader) -> None:
    typed.keys.close()
    with pytest.raises(EOFError):
        typed.reader.read()


def test_what_was_typed_comes_back_by_its_beginning_and_by_any_part_of_it(typed: TypedReader) -> None:
    for line in ("/set steps 3", "hello", "hello", "/help"):
        typed(line + ENTER)
    assert typed.history.get_strings() == ["/set steps 3", "hello", "/help"]
    assert typed(f"/s{UP}{ENTER}") == "/set steps 3"
    assert typed(f"{CTRL_R}ello{ENTER}{ENTER}") == "hello"


def test_the_line_can_be_edited_elsewhere(typed: TypedReader) -> None:
    """With the full text of folded pastes."""
    text = "one\n" * 30
    assert typed(f"see {pasted(text)}{CTRL_G}!{ENTER}") == "SEE " + "ONE\n" * 30 + "!"
    assert typed(f"two{CTRL_G}{CTRL_G}{ENTER}") == "TWO"
    assert typed.edited == ["see " + text, "two", "TWO"]


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (f"/he{TAB}", "/help"),
        (f"/set ste{TAB}", "/set steps"),
        (f"/set live of{TAB}", "/set live off"),
        (f"/load pla{TAB}", "/load plans"),
        (f"/copy {TAB}", "/copy code"),
        (f"hello{TAB}", "hello"),
    ],
)
def test_tab_completes(typed: TypedReader, keys: str, line: str) -> None:
    assert typed(keys + ENTER) == line


@pytest.mark.parametrize(
    ("line", "length", "words"),
    [
        ("/s", 2, ["/system", "/set", "/show", "/save", "/sessions"]),
        ("/sessions ", 0, ["all"]),
        ("/SE", 3, ["/set", "/sessions"]),
        ("/load pl", 2, ["plans", "plots"]),
        ("/save ", 0, []),  # it takes new names only
        ("/set t-", 2, ["t-min", "t-max"]),
        ("/set think ", 0, ["show", "hide", "off", "default"]),
        ("/set steps ", 0, ["default"]),
        ("/undo ", 0, []),
        ("/nothing x", 0, []),
        ("//s", 0, []),
        ("say /s", 0, []),
        ("", 0, []),
    ],
)
def test_what_could_come_next(line: str, length: int, words: list[str]) -> None:
    assert candidates(line, lambda: ["plans", "plots", "other"]) == (length, words)


def test_paths_are_completed_as_they_have_to_be_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my notes.txt").touch()
    (tmp_path / "my'quote").touch()
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "deep.txt").touch()
    (tmp_path / ".hidden").touch()
    monkeypatch.chdir(tmp_path)
    none: Callable[[], list[str]] = list
    assert candidates("/file m", none) == (1, ["more/", "my\\ notes.txt", "my\\'quote"])
    assert candidates("/file a.txt my\\ n", none) == (5, ["my\\ notes.txt"])
    assert candidates('/file "my n', none) == (5, ['"my notes.txt"'])
    assert candidates("/file 'my", none) == (3, ["'my notes.txt'", "my\\'quote"])
    assert candidates('/file "m', none) == (2, ['"more/', '"my notes.txt"', '"my\'quote"'])
    assert candidates('/file "a b.txt" "mo', none) == (3, ['"more/'])
    assert candidates('/file more"/"d', none) == (8, ["more/deep.txt"])
    assert candidates('/file "my notes.txt"', none) == (14, ['"my notes.txt"'])
    assert candidates("/file more/", none) == (5, ["more/deep.txt"])
    assert candidates("/file .h", none) == (2, [".hidden"])
    assert candidates("/file 'a\\' more/", none) == (5, ["more/deep.txt"])
    assert candidates("/file ", none) == (0, ["more/", "my\\ notes.txt", "my\\'quote"])
    assert candidates("/file nowhere/x", none) == (0, [])
    assert candidates("/file more\0/x", none) == (0, [])
    assert candidates(f"/trace {tmp_path}/mo", none) == (len(str(tmp_path)) + 3, [f"{tmp_path}/more/"])


def test_a_link_that_leads_nowhere_hides_no_other_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "notes").touch()
    monkeypatch.chdir(tmp_path)
    assert candidates("/file ", list) == (0, ["loop", "notes"])


def test_of_very_many_paths_only_what_all_share_is_completed(
    typed: TypedReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(300):
        (tmp_path / f"name-a{number:03}").touch()
    (tmp_path / "name-b").touch()
    monkeypatch.chdir(tmp_path)
    assert candidates("/file ", list)[1] == [*(f"name-a{number:03}" for number in range(300)), "name-b"]
    assert typed(f"/file {TAB}{ENTER}") == "/file name-"


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Counts the calls inside."""
    calls = Counter[str]()

    def count(_frame: object, event: str, _argument: object) -> None:
        calls["calls"] += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def test_what_comes_at_once_takes_few_steps(typed: TypedReader) -> None:
    """Counted in calls. Unmarked pastes and keys typed ahead come at once; the line may have a folded paste."""
    long, text = "x\n" * 30, "some words " * 1_000
    with counted() as calls:
        line = typed(pasted(long) + text + ENTER)
    assert line == long + text
    assert calls["calls"] < 200 * len(text)


def test_marks_are_looked_for_once_per_line_and_not_per_character() -> None:
    pastes, line = Pastes(), "word [pasted 21 lines " * 1_000
    pastes.fold("x\n" * (LONG + 1))
    with counted() as calls:
        assert pastes.mended(line) is None
        assert pastes.mended(line + "!") is None
    assert calls["calls"] < 100


def test_the_history_is_private_and_shared(tmp_path: Path) -> None:
    path = tmp_path / "state" / "history"
    complaints: list[str] = []
    history = open_history(path, complaints.append)
    history.append_string("one\ntwo")
    history.append_string("half \ud83d")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    again = open_history(path, complaints.append)
    assert list(again.load_history_strings()) == ["half ?", "one\ntwo"]
    path.chmod(0o644)
    open_history(path, complaints.append)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert complaints == []


def test_a_history_that_cannot_be_kept_is_said_once_and_costs_nothing(tmp_path: Path) -> None:
    complaints: list[str] = []
    history = open_history(tmp_path, complaints.append)
    history.append_string("one")
    assert complaints == [f"the history `{tmp_path}` cannot be used: Is a directory"]
    gone = open_history(tmp_path / "history", complaints.append)
    (tmp_path / "history").unlink()
    (tmp_path / "history").mkdir()
    gone.append_string("two")
    gone.append_string("three")
    assert complaints[1:] == ["the history cannot be written: Is a directory"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such pipes")
def test_a_history_that_is_no_file_keeps_nothing_and_stays_as_it_is(tmp_path: Path) -> None:
    """Such as `/dev/null`: a user who wants no history may link to it, and root could make it private."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "pipe").chmod(0o666)
    (tmp_path / "history").symlink_to("pipe")
    complaints: list[str] = []
    assert isinstance(open_history(tmp_path / "history", complaints.append), InMemoryHistory)
    assert stat.S_IMODE((tmp_path / "pipe").stat().st_mode) == 0o666
    assert complaints == []


def test_without_a_path_nothing_is_kept() -> None:
    assert isinstance(open_history(None, print), InMemoryHistory)


def test_folding() -> None:
    pastes = Pastes()
    assert pastes.fold("x\n" * LONG) == "x\n" * LONG
    long, other = "x\n" * (LONG + 1), "y\n" * (LONG + 1)
    assert pastes.fold(long) == pastes.fold(long) == "[pasted 21 lines]"
    assert pastes.fold(other) == "[pasted 21 lines, 2]"
    assert pastes.unfold("a [pasted 21 lines] b [pasted 21 lines, 2]") == f"a {long} b {other}"
    assert pastes.unfold("[pasted 22 lines]") == "[pasted 22 lines]"
    pastes.begin()
    assert pastes.unfold("[pasted 21 lines]") == "[pasted 21 lines]"


def test_a_paste_of_few_lines_is_folded_where_it_is_long() -> None:
    pastes = Pastes()
    assert pastes.fold("x" * WIDE) == "x" * WIDE
    lines, line, other = "z\n" * WIDE, "x" * (WIDE + 1), "x " * LONG + "y" * (WIDE - 2 * LONG + 1)
    assert pastes.fold(line) == "[pasted 5,001 characters]"
    assert pastes.fold(other) == "[pasted 5,001 characters, 2]"
    assert pastes.fold(lines) == "[pasted 5,000 lines]"
    marks = "a [pasted 5,001 characters] b [pasted 5,001 characters, 2] [pasted 5,000 lines]"
    assert pastes.unfold(marks) == f"a {line} b {other} {lines}"


def test_what_was_pasted_is_not_unfolded_again() -> None:
    pastes = Pastes()
    pastes.fold("y\n" * 30)
    nasty = "[pasted 30 lines]\n" * 40
    assert pastes.unfold(pastes.fold(nasty)) == nasty
