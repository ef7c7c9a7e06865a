"""Commands about settings, sessions and what was said, as somebody at the keyboard meets them."""

from __future__ import annotations

import errno
import io
import re
from pathlib import Path

import pytest

from localdiff.chat import session_text
from localdiff.chat.session_store import SessionStore
from localdiff.chat.session_text import earlier_turns
from localdiff.chat.settings import DisplaySettings
from localdiff.errors import UsageError
from localdiff.options import GenerateOptions
from localdiff.ui.output import Stream
from tests.fakes.chat_model import ScriptedChatModel, said
from tests.localdiff.chat.conftest import QUIET, Room

UNCHANGED = "\nhint: nothing was changed; `/set` lists the current settings"


def test_every_setting_of_the_sampler_can_be_set(room: Room) -> None:
    room(
        "/set steps 12",
        "/set cap 9",
        "/set entropy-bound 0.2",
        "/set t-min 0.3",
        "/set t_max 0.9",
        "/set stability 2",
        "/set confidence 0.01",
        "/set max-tokens 99",
        "/set context 2000",
        "/set seed 5",
        "Hi",
        "/set t-min default",
        "/set t-max default",
        "/set temperature 0",
        "/set seed default",
        "Hi",
        options=GenerateOptions(),
    )
    first, second = (options for _, options in room.model.calls)
    assert first == GenerateOptions(
        steps=12,
        cap=9,
        entropy_bound=0.2,
        t_min=0.3,
        t_max=0.9,
        stability=2,
        confidence=0.01,
        max_tokens=99,
        context_size=2000,
        seed=5,
    )
    assert (second.t_min, second.t_max, second.temperature, second.seed) == (None, None, 0, None)


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("/set steps", "steps 48 (the model)"),
        ("/set steps 12", "steps 12 (/set)"),
        ("/set steps default", "steps 48 (the model)"),
        ("/set live off", "live off (/set)"),
        ("/set live default", "live auto (default)"),
        ("/set Live OFF", "live off (/set)"),
        ("/set STATS Off", "stats off (/set)"),
        ("/set Max-Tokens DEFAULT", "max-tokens 1,024 (default)"),
        ("/set stats\toff", "stats off (/set)"),
        ("/system OFF", "There is no system prompt."),
        ("/file OFF", "No files are attached to the next message."),
        ("/copy CODE", "error: there is no answer to copy"),
        ("/sessions ALL", "Nothing is saved yet."),
        ("/set steps none", f"error: `steps none` must be a whole number{UNCHANGED}"),
        ("/set seed 1e3", f"error: `seed 1e3` must be a whole number{UNCHANGED}"),
        ("/set steps 1.5", f"error: `steps 1.5` must be a whole number{UNCHANGED}"),
        ("/set steps 0", f"error: `steps 0` must be >= 1{UNCHANGED}"),
        ("/set t-min warm", f"error: `t-min warm` must be a number{UNCHANGED}"),
        ("/set live maybe", f"error: `live maybe` must be one of auto, on, off, line{UNCHANGED}"),
        ("/set stpes 3", "error: there is no setting `stpes`\nhint: did you mean `/set steps`?"),
        ("/set temp 0.5", "error: there is no setting `temp`\nhint: did you mean `/set temperature`?"),
        (
            "/set file x",
            "error: there is no setting `file`\nhint: `/file` is a command of its own: send text files "
            "with the next message",
        ),
        ("/set zzz", "error: there is no setting `zzz`\nhint: `/set` lists all settings"),
        ("/set max-tokens", "max-tokens 77 (command line)"),
        ("/set temperature default", "temperature is not set: t-min and t-max decide"),
        ("/set cap default", "cap is not set"),
        ("/set seed default", "seed is not set: drawn for every run"),
        ("/set temperature 0.5", "temperature 0.5 (/set)"),
        ("/exit now", "error: unknown argument in `/exit now`\nhint: `/exit` takes none"),
        ("/bye now", "error: unknown argument in `/exit now`\nhint: `/exit` takes none"),
        ("/clear all", "error: unknown argument in `/clear all`\nhint: `/clear` takes none"),
        ("/undo", "error: there is nothing to undo"),
        ("/undo x", "error: `/undo x` needs a whole number >= 1"),
        ("/undo 0", "error: `/undo 0` needs a whole number >= 1"),
        ("/retry", "error: there is no message yet"),
        ("/edit", "error: there is no message yet"),
        ("/copy", "error: there is no answer to copy"),
        ("/copy all", "error: unknown argument in `/copy all`\nhint: `/copy` copies the answer, `/copy code` its code"),
        ("/save ../x", "error: `../x` cannot name a session"),
        ("/save", "error: `/save` needs a name\nhint: `/save NAME`; turns are saved automatically"),
        ("/load", "error: `/load` needs a name\nhint: `/sessions` lists the saved sessions"),
        ("/load ../x", "error: `../x` cannot name a session"),
        ("/load gone", "error: there is no session `gone`\nhint: `/sessions` lists the saved sessions"),
        ("/delete", "error: `/delete` needs a name\nhint: `/sessions` lists the saved sessions"),
        ("/delete gone", "error: there is no session `gone`\nhint: `/sessions` lists the saved sessions"),
        ("/delete ../x", "error: `../x` cannot name a session"),
        ("/sessions", "Nothing is saved yet."),
        ("/?x", "Unknown command /?x. /help lists commands; // instead of / sends the line."),
        ("/trace", "error: there is no answer to record"),
        ("/file", "No files are attached to the next message."),
        ('/file "a', 'error: unclosed quote in `"a`'),
        ("/file ''", "error: an empty name in `''`\nhint: Tab completes paths"),
        ("/file gone.txt", "error: no such file: `gone.txt`\nhint: Tab completes paths after `/file`"),
        ("/file .", "error: `.` is a directory\nhint: `/file` takes text files"),
    ],
)
def test_answers(room: Room, typed: str, answer: str) -> None:
    shown = room(typed, options=GenerateOptions(max_tokens=77), origins={"max_tokens": "command line"})
    end = "" if answer.startswith("error: ") else ">>> \n"  # an error may have a hint
    assert f">>> {typed}\n{answer}\n{end}" in shown
    assert room.asked == []


@pytest.mark.parametrize(
    ("first", "second", "hint"),
    [
        ("temperature .5", "t-min .2", "`/set temperature default` takes the other one back"),
        ("t-max .5", "temperature .2", "`/set t-max default` takes the other one back"),
        ("t-max .5", "t-min .6", "`/set t-max default` takes the other one back"),
        ("steps 5", "t-min .9", "`/set` lists the current settings"),  # above the `t-max` of the model
    ],
)
def test_a_setting_that_excludes_another_says_how_to_take_that_back(
    room: Room, first: str, second: str, hint: str
) -> None:
    assert f"\nhint: nothing was changed; {hint}\n" in room(f"/set {first}", f"/set {second}")


def test_all_sessions_can_be_listed(room: Room) -> None:
    for number in range(session_text.SHOWN_SESSIONS + 2):
        room("Hi", session=f"plan-{number}")
    shown = room("/sessions", "/sessions all", "/sessions every")
    latest, whole = shown.split(">>> /sessions all\n")
    assert latest.count("plan-") == session_text.SHOWN_SESSIONS
    assert "  and 2 more; `/sessions all` lists them too\n" in latest
    assert whole.count("plan-") == session_text.SHOWN_SESSIONS + 2
    assert "error: unknown argument in `/sessions every`\n" in whole


def test_a_session_is_one_row_of_the_terminal(room: Room) -> None:
    long = "Which of all the words there are is the longest one?"
    shown = room(long, "/save " + "a" * 40, "/sessions", width=72, display=QUIET)
    (row,) = (line for line in shown.splitlines() if line.startswith("* aaa"))
    assert row.endswith("1 turn  W…")
    assert len(row) == 72


def test_settings_are_listed_with_their_values_and_origins(room: Room) -> None:
    shown = room("/set", options=GenerateOptions(t_min=0.2), origins={"t_min": "LOCALDIFF_T_MIN"})
    assert "error: " not in shown
    rows = [line.split("  ") for line in shown.split("\n") if line.startswith(("t-min", "t-max", "cap", "think"))]
    assert [[word.strip() for word in row if word.strip()] for row in rows] == [
        ["cap", "none", "default"],
        ["t-min", "0.2", "LOCALDIFF_T_MIN"],
        ["t-max", "0.8", "the model"],
        ["think", "off", "default"],
    ]


def test_both_ends_of_a_schedule_come_from_where_one_temperature_for_all_steps_does(room: Room) -> None:
    shown = room("/set temperature 0.5", "/set t-min", "/set t-max", "/set temperature 0", "/set t-max")
    assert ">>> /set t-min\nt-min 0.5 (/set)\n>>> /set t-max\nt-max 0.5 (/set)\n" in shown
    assert ">>> /set t-max\nt-max 0.8 (the model)\n" in shown


def test_undo_of_more_than_there_is_says_so_however_long_the_number(room: Room) -> None:
    shown = room("Hi", f"/undo {'9' * 5000}", display=QUIET)
    assert f"error: there is 1 turn to take back, not {'9' * 60}\nhint: `/undo 1` takes back all\n" in shown


def test_save_load_and_list(room: Room) -> None:
    room.model = ScriptedChatModel(replies=[said("One."), said("Two."), said("Three."), said("Four.")])
    shown = room("First", "/save plans", "More", "/clear", "Other", "/load plans", "Last", "/sessions", display=QUIET)
    assert "Saved as `plans`; `localdiff chat --session plans` continues it.\n" in shown
    assert "Session `plans`, 2 turns; the last message was: More\n`/show` shows the conversation.\n" in shown
    assert room.asked[-1] == ["First", "One.", "More", "Two.", "Last"]
    assert sorted(path.name for path in room.sessions.iterdir())[1] == "plans.jsonl"
    listing = shown.partition(">>> /sessions\n")[2].split("\n")
    assert listing[0].startswith("* plans")
    assert listing[0].endswith("3 turns  First")
    assert listing[1].startswith("  TIME")
    assert listing[1].endswith("1 turn   Other")


def test_a_session_is_not_deleted_while_it_is_open_or_where_nobody_can_be_asked(room: Room) -> None:
    shown = room("First", "/save one", "/delete one", "/clear", "/delete one")
    assert "error: session `one` is this one\nhint: `/clear` starts another; then `/delete one` deletes it\n" in shown
    hint = f"hint: the session is the file `{room.sessions}/one.jsonl`\n"
    assert f"error: cannot ask for confirmation: there is no keyboard\n{hint}" in shown
    assert (room.sessions / "one.jsonl").exists()


@pytest.mark.parametrize(
    ("answer", "then"), [(True, "Deleted session `one`."), (False, "Nothing was deleted.")], ids=["yes", "no"]
)
def test_the_question_before_a_session_is_deleted_says_what_is_in_it(room: Room, answer: bool, then: str) -> None:
    questions: list[str] = []

    def ask(question: str) -> bool:
        questions.append(question)
        return answer

    room("First one", "Second", session="one")
    assert f">>> /delete one\n{then}\n" in room("/delete one", ask=ask)
    assert questions == ["Delete session `one` (2 turns: First one)?"]
    assert (room.sessions / "one.jsonl").exists() == (not answer)


def test_a_message_is_made_safe_in_the_list_as_it_is_where_it_is_shown(room: Room) -> None:
    shown = room("\x1b[31mred\tand\n\u202egreen", "/show", "/sessions", display=QUIET)
    assert ">>> ▯[31mred\tand\n... green\n" in shown.partition(">>> /show\n")[2]
    assert shown.partition(">>> /sessions\n")[2].split("\n")[0].endswith("1 turn  ▯[31mred and green")


@pytest.mark.parametrize("name", ["plans", "2026-11-21-120000"])
def test_a_session_may_be_named_before_its_first_message(room: Room, name: str) -> None:
    shown = room(f"/save {name}", "/sessions", "First", "More", private=True)
    shown = shown.replace("TIME", name)
    assert f">>> /save {name}\nThe session is saved as `{name}` from its first turn on.\n" in shown
    assert ">>> /sessions\nNothing is saved yet.\n" in shown
    assert shown.endswith(f"Saved as `{name}`; `localdiff chat -c` continues it.\n")
    assert [path.name for path in room.sessions.iterdir()] == [f"{name}.jsonl"]
    room("Last", session=name)
    assert room.asked[-1] == ["First", "Hello.", "More", "Hello.", "Last"]


def test_what_is_said_of_a_chat_without_a_name_is_true_of_one_that_is_not_saved(room: Room) -> None:
    assert "hint: `/save NAME`; this chat is not saved before that\n" in room("/save", private=True)
    assert "hint: `/save NAME`; turns are saved automatically\n" in room("/save x", "/save", private=True)


@pytest.mark.parametrize("lines", [("Second", "/save plans"), ("/save plans", "Second")])
def test_a_name_that_is_taken_is_not_written_over(room: Room, lines: tuple[str, ...]) -> None:
    room("First", "/save plans")
    before = (room.sessions / "plans.jsonl").read_bytes()
    shown = room(*lines)
    assert "error: session `plans` already exists\nhint: choose another name, or `/load plans`\n" in shown
    assert (room.sessions / "plans.jsonl").read_bytes() == before


def test_a_named_session_saved_again_is_a_copy(room: Room) -> None:
    shown = room("First", "/save plans", "/save other", "/save other", "More")
    assert shown.count("stays as it was") == 1
    assert "`localdiff chat --session other` continues it.\n`plans` stays as it was.\n" in shown
    assert {path.name for path in room.sessions.iterdir()} == {"plans.jsonl", "other.jsonl"}
    assert len((room.sessions / "plans.jsonl").read_text().splitlines()) == 2
    assert len((room.sessions / "other.jsonl").read_text().splitlines()) == 3


def test_a_null_byte_in_the_name_of_a_file_ends_the_command_and_not_the_chat(room: Room) -> None:
    shown = room("/file a\0b", "Ho", display=QUIET)
    assert re.search(r" cannot be read: .*embedded null .*\nhint: `/file` takes text files\n", shown)
    assert room.asked == [["Ho"]]


@pytest.mark.parametrize("command", ["/trace", "/file", "/file ./", "/save", "/load", "/sessions"])
def test_a_name_that_no_file_can_have_ends_a_command_and_not_the_chat(room: Room, command: str) -> None:
    shown = room("Hi", command + " " + "a" * 300, "Ho", display=QUIET)
    assert "\nerror: " in shown
    assert "\n>>> Ho\nHello.\n>>> \n" in shown
    assert command != "/trace" or "cannot be written: File name too long\nhint: give" in shown


def test_a_failure_that_no_command_expects_ends_the_command_alone(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(text: str, *, max_tokens: int | None = None) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(room.model, "count", fail)
    assert "\nerror: `/file` failed: Input/output error\n>>> Hi\nHello.\n" in room("/file pyproject.toml", "Hi")

    def leave(text: str, *, max_tokens: int | None = None) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(room.model, "count", leave)
    with pytest.raises(BrokenPipeError):
        room("/file pyproject.toml", "Hi")


def test_ctrl_c_ends_a_command_and_not_the_chat(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(text: str, *, max_tokens: int | None = None) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(room.model, "count", interrupt)
    assert ">>> /file pyproject.toml\nStopped.\n>>> Hi\n" in room("/file pyproject.toml", "Hi")


def test_a_request_that_cannot_be_met_is_refused_before_the_model_is_loaded(room: Room) -> None:
    for request, words in (
        ({"resume": True}, "there is no session to continue"),
        ({"resume": True, "session": "x"}, "`-c` and `--session` both name a session"),
        ({"session": "a/b"}, "cannot name a session"),
    ):
        with pytest.raises(UsageError, match=words):
            room(**request)  # type: ignore[arg-type]


def test_a_setting_that_goes_with_no_other_changes_nothing(room: Room) -> None:
    clash = f"error: `t-min 2` must be <= `t-max 0.8`{UNCHANGED}"
    shown = room("/set t-min 2", "/set steps 9", "/set t-max 3", "/set t-min 2", "/set t-max default", "Hi")
    assert f">>> /set t-min 2\n{clash}\n>>> /set steps 9\nsteps 9 (/set)\n>>> /set t-max 3\n" in shown
    other = "\nhint: nothing was changed; `/set t-min default` takes the other one back"
    assert f">>> /set t-max default\n{clash.removesuffix(UNCHANGED)}{other}\n" in shown
    ((_, options),) = room.model.calls
    assert (options.steps, options.t_min, options.t_max) == (9, 2, 3)


def test_options_that_exclude_each_other_end_the_chat_before_its_first_line(room: Room) -> None:
    with pytest.raises(UsageError, match=r"t_min=2.0 must be <= t_max=0.8"):
        room(options=GenerateOptions(t_min=2.0))


def test_a_session_that_is_continued_can_be_shown(room: Room, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    answer = "Use **this**:\n\n- a\n\n- b\n\x1b[2J\n\n"
    room.model = ScriptedChatModel(replies=[said(answer, thought="secret"), said("Two.")])
    room(f"/file {tmp_path}/a.txt", "Hi\nthere", "More", "/save plans", display=QUIET)
    shown = room("/show", "/show 1", "/show 9", "/show 0", session="plans", display=QUIET)
    first = ">>> Hi\n... there\nwith a.txt\nUse this:\n\n- a\n\n- b\n  ▯[2J\n"
    last = ">>> More\nTwo.\n"
    assert f">>> /show\n{first}{last}>>> /show 1\n{last}>>> /show 9\n{first}{last}>>> /show 0\nerror: " in shown
    shown = room("/show 1", session="plans", display=DisplaySettings(markdown=False))
    assert ">>> /show 1\n>>> More\nTwo.\n" in shown
    shown = room("/load plans", "/show 2", display=DisplaySettings(markdown=False))
    assert "Use **this**:\n\n- a\n\n- b\n▯[2J\n>>> More\n" in shown
    assert "error: there is no turn to show\n" in room("/show")


def test_markup_is_shown_as_it_is_where_there_is_no_terminal(room: Room) -> None:
    room.model = ScriptedChatModel(replies=[said("Use **this**.")])
    room("Hi", session="plans")
    turns = SessionStore(room.sessions).look("plans").session.turns
    assert earlier_turns(turns, Stream(file=io.StringIO()), markdown=True) == ">>> Hi\nUse **this**."


def test_earlier_answers_are_broken_between_words_as_they_were_printed(room: Room) -> None:
    room.model = ScriptedChatModel(replies=[said("Use **this** and that.")])
    room("Hi", session="plans")
    turns = SessionStore(room.sessions).look("plans").session.turns
    screen = Stream(file=io.StringIO(), terminal=True, width=16)
    assert earlier_turns(turns, screen, markdown=False) == ">>> Hi\nUse **this**\nand that."
