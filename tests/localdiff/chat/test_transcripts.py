"""Chats to the letter: what is typed, what the model answers, and what the program says."""

from __future__ import annotations

import json
import re
import textwrap
from dataclasses import replace
from typing import Any

import pytest

from localdiff.chat.settings import DisplaySettings
from localdiff.chat.slash import COMMANDS
from localdiff.chat.state import ChatState
from localdiff.errors import ContextError, ResourceError
from localdiff.events import FinishReason
from localdiff.options import MAX_SEED, GenerateOptions
from localdiff.ui.output import Stream
from localdiff.ui.terminal import LiveOption
from localdiff.ui.watch import Watch
from localdiff.view.ansi import encode_row
from localdiff.view.palette import SETTLED, PaletteName, resolve_palette
from localdiff.view.style import Span
from tests.fakes import engine as fakes
from tests.fakes.chat_model import Said, ScriptedChatModel, said
from tests.fakes.engine import Block
from tests.localdiff.chat.conftest import BANNER, INTERRUPT, Room

END = ">>> \nSaved as `TIME`; `localdiff chat -c` continues it.\n"
QUIET = DisplaySettings(stats=False)


def paper(*parts: str) -> str:
    return BANNER + "\n" + "".join(textwrap.dedent(part).lstrip("\n") for part in parts)


def test_two_turns(room: Room) -> None:
    room.model = ScriptedChatModel(replies=[said("Hello."), said("Fine.")])
    assert room("Hi", "How are you?", width=100) == paper(
        """
        >>> Hi
        Hello.
        6 tokens · 1 block · 3 steps · 8.0 tok/s · prompt 6 tok in 0.50 s · ctx 12/8,192
        >>> How are you?
        Fine.
        5 tokens · 1 block · 3 steps · 6.7 tok/s · prompt 12 tok in 0.50 s · ctx 23/8,192
        """,
        END,
    )
    assert room.asked == [["Hi"], ["Hi", "Hello.", "How are you?"]]
    assert room.model.calls[1][0][1]["ids"] == list(Block(text="Hello.").ids)


def test_the_colours_are_explained_with_the_first_canvas_alone(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    explained: list[bool] = []

    def open_view(_option: LiveOption, watch: Watch) -> None:
        explained.append(watch.legend)

    monkeypatch.setattr("localdiff.commands.chat.command._views", lambda *_: open_view)
    room("Hi", "Ho")
    assert explained == [True, False]


def test_undo_retry_and_what_they_ask_again(room: Room) -> None:
    room.model = ScriptedChatModel(replies=[said("One."), said("Two."), said("Three."), said("Four.")])
    assert room("Hi", "/retry", "/retry 3", "/undo", "/undo", "Again", display=QUIET) == paper(
        """
        >>> Hi
        One.
        >>> /retry
        seed 8
        Two.
        >>> /retry 3
        seed 3
        Three.
        >>> /undo
        Took back 1 turn; none is left.
        >>> /undo
        error: there is nothing to undo
        hint: `/load` opens an earlier session
        >>> Again
        Four.
        """,
        END,
    )
    assert room.asked == [["Hi"]] * 3 + [["Again"]]
    assert [options.seed for _, options in room.model.calls] == [7, 8, 3, 7]


def test_a_retry_replaces_the_answer_and_nothing_else(room: Room) -> None:
    room.model = ScriptedChatModel(replies=[said("One."), said("Two."), said("Three."), said("Four.")])
    room("a", "b", "/retry", "c")
    assert room.asked[-1] == ["a", "One.", "b", "Three.", "c"]


def test_undo_takes_back_several(room: Room) -> None:
    shown = room("a", "b", "c", "/undo 2", "d", "/undo 9", "/undo 2", display=QUIET)
    assert "Took back 2 turns; 1 turn left.\n" in shown
    assert (
        ">>> /undo 9\nerror: there are 2 turns to take back, not 9\nhint: `/undo 2` takes back all\n"
        ">>> /undo 2\nTook back 2 turns; none is left.\n"
    ) in shown
    assert room.asked[-1] == ["a", "Hello.", "d"]


def test_the_seed_after_the_last_one_is_the_first(room: Room) -> None:
    room("Hi", "/retry", options=GenerateOptions(seed=MAX_SEED))
    assert [options.seed for _, options in room.model.calls] == [MAX_SEED, 0]


def test_any_seed_that_is_printed_can_be_typed_and_none_beyond(room: Room) -> None:
    retries = (f"/retry {seed}" for seed in (9007199254740991, MAX_SEED, MAX_SEED + 1))
    shown = room("Hi", *retries, options=GenerateOptions(seed=1))
    assert f"error: `/retry {MAX_SEED + 1}` needs a whole number from 0 to {MAX_SEED}\n" in shown
    assert [options.seed for _, options in room.model.calls] == [1, 9007199254740991, MAX_SEED]


@pytest.mark.parametrize(
    ("reason", "hint"),
    [
        ("length", "reached max-tokens 4; `/continue` gives the rest\n"),
        ("context_full", "the context of 8,192 tokens is full"),
    ],
)
def test_a_reply_of_thoughts_alone_says_what_can_be_done(room: Room, reason: FinishReason, hint: str) -> None:
    thought = Said(blocks=(Block(thought="Hm."),), reason=reason)
    room.model = ScriptedChatModel(replies=[thought])
    shown = room("Hi", options=GenerateOptions(seed=7, max_tokens=4))
    assert "The reply ended before its answer began.\n" in shown
    assert hint in shown


def test_a_narrow_terminal_breaks_no_word_of_what_is_said_and_nothing_that_somebody_wrote(room: Room) -> None:
    prompt = "answer in verses of which each has a rhyme"
    shown = room("/nonsense", f"/system {prompt}", "/system", "/set file", width=36)
    assert "\nUnknown command /nonsense. /help\nlists commands; // instead of /\nsends the line.\n" in shown
    assert f">>> /system\n{prompt}\n" in shown
    assert "\nhint: `/file` is a command of its\nown: send text files with the next\nmessage\n" in shown


@pytest.mark.parametrize(
    ("typed", "advice"),
    [
        ("/reset", "Did you mean /clear?"),
        ("/NEW", "Did you mean /clear?"),
        ("/regenerate", "Did you mean /retry?"),
        ("/redo", "Did you mean /retry?"),
        ("/more", "Did you mean /continue?"),
        ("/resume", "Did you mean /continue or /load?"),
        ("/add a.txt", "Did you mean /file?"),
        ("/read a.txt", "Did you mean /file?"),
        ("/history", "Did you mean /show?"),
        ("/export", "Did you mean /copy or /trace?"),
        ("/temp 0.5", "Did you mean /set temperature?"),
        ("/temperature 0.5", "Did you mean /set temperature?"),
        ("/Max-Tokens 9", "Did you mean /set max-tokens?"),
        ("/think", "Did you mean /set think?"),
        ("/model demo", "The model is chosen at the start: localdiff chat -m MODEL."),
    ],
)
def test_a_command_of_another_program_is_answered_with_what_does_the_same(room: Room, typed: str, advice: str) -> None:
    assert f"Unknown command {typed.split()[0]}. {advice}\n" in room(typed)


def test_a_mistyped_command_never_reaches_the_model(room: Room) -> None:
    shown = room("/svae notes", "/frobnicate", "/", "/ help", "//usr/bin is a folder", " /usr too", display=QUIET)
    assert shown == paper(
        """
        >>> /svae notes
        Unknown command /svae. Did you mean /save?
        >>> /frobnicate
        Unknown command /frobnicate. /help lists commands; // instead of / sends the line.
        >>> /
        Unknown command /. /help lists commands; // instead of / sends the line.
        >>> / help
        Unknown command /. /help lists commands; // instead of / sends the line.
        >>> //usr/bin is a folder
        Hello.
        >>>  /usr too
        Hello.
        """,
        END,
    )
    assert room.asked[-1] == ["/usr/bin is a folder", "Hello.", " /usr too"]


@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        ("//help", "/help"),
        ("///help", "//help"),
        ("//svae", "/svae"),
        ("//help\nme", "/help\nme"),
        ("// a comment", "// a comment"),
        ("// a comment\nint x;", "// a comment\nint x;"),
        ("//int x;\n//int y;", "//int x;\n//int y;"),
        ("/// documents\nfn f() {}", "/// documents\nfn f() {}"),
        ("//", "//"),
        ("/* C */\nint x;", "/* C */\nint x;"),
        ("/usr/bin/foo: error\nin line 1", "/usr/bin/foo: error\nin line 1"),
    ],
)
def test_what_begins_with_slashes_and_is_no_command_is_sent_unchanged(room: Room, typed: str, sent: str) -> None:
    room(typed)
    assert room.asked == [[sent]]


def test_several_lines_may_be_the_argument_of_a_command(room: Room) -> None:
    room("/system Be brief.\nBe kind.", "Hi")
    assert room.model.calls[0][1].system == "Be brief.\nBe kind."
    assert "Unknown command" in room("/svae\n")


def test_nothing_is_sent_for_nothing(room: Room) -> None:
    assert room("", "   ", '""""""') == paper(">>> \n>>>    \n" + '>>> """"""\n>>> \n')
    assert room.asked == []


def test_several_lines_in_quotes_are_one_message(room: Room) -> None:
    room('"""one\n\ntwo"""', '"""\nthree\n"""')
    assert room.asked[-1] == ["one\n\ntwo", "Hello.", "three"]


def test_where_nobody_types_words_that_look_like_leaving_go_to_the_model_with_a_word_about_it_once(room: Room) -> None:
    assert room("exit", "quit", display=QUIET) == paper(
        """
        >>> exit
        This is sent to the model; /exit leaves.
        Hello.
        >>> quit
        Hello.
        """,
        END,
    )


def test_every_word_for_leaving_leaves(room: Room) -> None:
    for word in ("/exit", "/quit", "/bye", "/EXIT"):
        assert room(word, "Hi") == paper(f">>> {word}\n")
    assert room.asked == []


@pytest.mark.parametrize("word", ["exit", "quit", ":q", "Exit", "exit "])
def test_a_typed_word_for_leaving_leaves(room: Room, word: str) -> None:
    assert room(word, "Hi", ask=lambda _: False) == paper(f">>> {word}\n")
    assert room.asked == []


@pytest.mark.parametrize("word", ["help", "?", "Help"])
def test_a_typed_word_for_help_shows_it(room: Room, word: str) -> None:
    shown = room(word, ask=lambda _: False, moving=True)
    assert shown.replace(f">>> {word}", ">>> /help") == room("/help", ask=lambda _: False, moving=True)
    assert "sends /help as a message; a blank in front sends exit, quit or help\n" in shown
    room(word)
    assert room.asked == [[word]]


@pytest.mark.parametrize(
    ("typed", "sent"),
    [(" exit", " exit"), ('"""exit"""', "exit"), ("exit now", "exit now"), ("exit\nquit", "exit\nquit"), (" ?", " ?")],
)
def test_a_word_that_would_leave_can_be_sent(room: Room, typed: str, sent: str) -> None:
    assert ">>> " + typed.replace("\n", "\n... ") + "\nHello.\n" in room(typed, ask=lambda _: False, display=QUIET)
    assert room.asked == [[sent]]


def test_ctrl_c_on_an_empty_line_is_answered_once_in_a_hurry(room: Room) -> None:
    assert room(INTERRUPT, INTERRUPT) == paper(">>> \nCtrl-D or /exit to leave.\n>>> \n>>> \n")


def test_an_empty_reply_is_drawn_again_and_that_is_said(room: Room) -> None:
    room.model = ScriptedChatModel(replies=[said(""), said(" "), said("At last.")])
    assert room("Hi", display=QUIET) == paper(
        """
        >>> Hi
        The reply is empty; trying again with seed 8 (1 of 2).
        """,
        " \n",
        """
        The reply is empty; trying again with seed 9 (2 of 2).
        At last.
        """,
        END,
    )
    assert [options.seed for _, options in room.model.calls] == [7, 8, 9]


def test_three_empty_replies_are_enough(room: Room) -> None:
    room.model = ScriptedChatModel(replies=[said(""), said(""), said(""), said("Now.")])
    shown = room("Hi", "", "/retry", display=QUIET)
    assert shown == paper(
        """
        >>> Hi
        The reply is empty; trying again with seed 8 (1 of 2).
        The reply is empty; trying again with seed 9 (2 of 2).
        The reply is still empty. `/retry` tries again, `/edit` changes your message.
        >>> Hi
        Now.
        >>> /retry
        seed 8
        Now.
        """,
        END,
    )


def test_an_empty_reply_leaves_the_answer_that_was_there(room: Room) -> None:
    room.model = ScriptedChatModel(replies=[said("First."), said(""), said(""), said(""), said("Last.")])
    shown = room("Hi", "/retry", "and?", display=QUIET)
    assert "The previous answer is kept.\n>>> and?\n" in shown
    assert room.asked[-1] == ["Hi", "First.", "and?"]


def test_a_retry_after_an_empty_reply_draws_beyond_the_seeds_that_gave_nothing(room: Room) -> None:
    room.model = ScriptedChatModel(replies=[said("First."), said(""), said(""), said(""), said("Last.")])
    assert "seed 11\nLast.\n" in room("Hi", "/retry", "/retry", display=QUIET)
    assert [options.seed for _, options in room.model.calls] == [7, 8, 9, 10, 11]


def test_undo_takes_back_a_message_without_an_answer_first(room: Room) -> None:
    room.model = ScriptedChatModel(
        replies=[said("First."), said("Second."), said(""), said(""), said(""), said("Last.")]
    )
    shown = room("Hi", "and?", "lost", INTERRUPT, "/undo", "/undo", "Again", display=QUIET)
    assert room.typist is not None
    assert room.typist.given == ["", "", "", "lost", "", "", "", ""]
    assert ">>> /undo\nTook back the message that has no answer.\n>>> /undo\nTook back 1 turn; 1 turn left.\n" in shown
    assert room.asked[-1] == ["Hi", "First.", "Again"]


def test_undo_of_several_counts_a_message_without_an_answer(room: Room) -> None:
    room.model = ScriptedChatModel(replies=[said("First."), said("Second."), said("")])
    shown = room("Hi", "and?", "lost", INTERRUPT, "/undo 4", "/undo 2", display=QUIET)
    assert "error: there are 3 turns to take back, not 4\n" in shown
    assert ">>> /undo 2\nTook back the message that has no answer.\nTook back 1 turn; 1 turn left.\n" in shown


def test_a_limit_of_one_step_is_one_step(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room.model = ScriptedChatModel(replies=[Said(blocks=(Block(text="a", steps=1, reason="step_limit"),))])
    monkeypatch.setattr(fakes, "MAX_STEPS", 1)
    assert "block 1 reached the limit of 1 step before settling" in room("Hi", display=QUIET)


def test_a_block_that_did_not_settle_is_marked_and_advice_given_once(room: Room) -> None:
    blocks = (Block(text="a ", steps=48, reason="step_limit"), Block(text="b "), Block(text="c", reason="step_limit"))
    room.model = ScriptedChatModel(replies=[Said(blocks=blocks[:2]), Said(blocks=blocks)])
    assert room("Hi", "Hi", display=QUIET) == paper(
        """
        >>> Hi
        a b
        block 1 reached the limit of 48 steps before settling; `/retry` answers again
        >>> Hi
        a b c
        blocks 1 and 3 reached the limit of 48 steps before settling
        """,
        END,
    )


def test_the_advice_waits_for_an_answer_that_did_not_settle(room: Room) -> None:
    lost = Said(blocks=(Block(thought="Hm.", reason="step_limit"),), reason="length")
    room.model = ScriptedChatModel(replies=[said("a"), lost, said("b", reason="step_limit")])
    assert room("Hi", "Hi", "/retry", display=QUIET).count("`/retry` answers again") == 1


def test_the_context_is_worth_a_word_from_four_fifths_on(room: Room) -> None:
    room.model = ScriptedChatModel(replies=[said("x" * 9), said("x" * 10), Said(reason="context_full")])
    shown = room("Hi", "/undo", "Hi", "/undo", "Hi", options=GenerateOptions(context_size=20, seed=7))
    assert "ctx 15/20\n>>> /undo" in shown
    assert "ctx 16/20\ncontext 80 % full; /undo or /clear frees space\n>>> /undo" in shown
    assert shown.count("% full") == 1
    assert (
        "hint: the context of 20 tokens is full; `/undo` or `/clear` frees space, `/set context N` makes more\n"
        in shown
    )


CUT = Said(blocks=(Block(text="One.\n\nTw"),), reason="length")


def test_an_answer_that_was_cut_is_continued(room: Room) -> None:
    room.model = ScriptedChatModel(replies=[CUT, Said(blocks=(Block(text="o, th"),), reason="length"), said("ree.")])
    shown = room("Hi", "/continue", "/continue", "/show", "And?", display=QUIET)
    assert shown.startswith(
        paper(
            """
            >>> Hi
            One.

            Tw
            hint: reached max-tokens 1,024; `/continue` gives the rest
            >>> /continue
            Two, th
            hint: reached max-tokens 1,024; `/continue` gives the rest
            >>> /continue
            Two, three.
            >>> /show
            >>> Hi
            One.

            Two, three.
            >>> And?
            """
        )
    )
    assert room.asked[:3] == [["Hi"], ["Hi", "One.\n\nTw"], ["Hi", "One.\n\nTwo, th"]]
    assert room.asked[3] == ["Hi", "One.\n\nTwo, three.", "And?"]
    ids = [message["ids"] for message in room.model.calls[3][0] if message["role"] == "assistant"]
    assert ids == [[*Block(text="One.\n\nTw").ids, *Block(text="o, th").ids, *Block(text="ree.").ids]]


def test_a_continued_answer_keeps_its_thought(room: Room) -> None:
    begun = Said(blocks=(Block(thought="Hm."), Block(text="One")), reason="length")
    room.model = ScriptedChatModel(replies=[begun, said(" two.")])
    room("Hi", "/continue", display=QUIET)
    (file,) = room.sessions.iterdir()
    saved = json.loads(file.read_text(encoding="utf-8").splitlines()[-1])
    assert (saved["thought"], saved["answer"]) == ("Hm.", "One two.")


def test_an_answer_that_the_model_ended_is_not_continued(room: Room) -> None:
    shown = room("/continue", "Hi", "/continue", display=QUIET)
    assert "error: there is no message yet\n" in shown
    assert "error: the last answer is complete\nhint: `/retry` gives another one\n" in shown
    assert len(room.asked) == 1


def test_an_answer_stays_if_nothing_is_added_before_ctrl_c(room: Room) -> None:
    stopped = Said(blocks=(), reason="cancelled")
    room.model = ScriptedChatModel(replies=[CUT, stopped, Said(blocks=(Block(text="o, th"),), reason="cancelled")])
    shown = room("Hi", "/continue", "/continue", display=QUIET)
    nothing = "Stopped while reading the prompt; nothing was kept.\nThe previous answer is kept.\n"
    assert f">>> /continue\n{nothing}>>> /continue\nTwo, th\nStopped after block 1; kept 5 tokens.\n>>> " in shown


def test_a_continued_answer_has_figures_only_of_what_is_added(room: Room) -> None:
    room.model = ScriptedChatModel(replies=[CUT, Said(blocks=(), reason="cancelled"), CUT, said("")])
    replies = room("Hi", "/continue", "/continue", "/continue").split("\n>>> ")[1:5]
    assert [" tok/s · " in reply for reply in replies] == [True, False, True, False], replies


def test_the_last_turn_is_continued_whatever_was_answered_after_it(room: Room) -> None:
    room.model = ScriptedChatModel(replies=[said("Hello."), CUT, said("Yes."), said("o.")])
    room("Hi", "More", "And?", "/undo", "/continue", display=QUIET)
    assert room.asked[-1] == ["Hi", "Hello.", "More", CUT.blocks[0].text]


def test_an_answer_to_which_nothing_is_added_is_complete_from_then_on(room: Room) -> None:
    """An empty reply is tried again; this one is not empty."""
    room.model = ScriptedChatModel(replies=[CUT, said("")])
    shown = room("Hi", "/continue", "/continue", display=QUIET)
    assert ">>> /continue\nThere was nothing to add to the answer.\n>>> /continue\nerror: the last answer is" in shown
    assert len(room.asked) == 2


def test_an_answer_for_which_there_is_no_more_room_is_not_called_complete(room: Room) -> None:
    room.model = ScriptedChatModel(replies=[CUT, Said(blocks=(Block(text=""),), reason="context_full")])
    shown = room("Hi", "/continue", display=QUIET)
    assert "nothing to add" not in shown and "is full" in shown


def test_a_message_without_an_answer_is_not_continued(room: Room) -> None:
    room.model = ScriptedChatModel(replies=[CUT, Said(blocks=(), error=ResourceError("no")), said("Yes.")])
    shown = room("Hi", "And?", INTERRUPT, "/continue", "/undo", "/continue", display=QUIET)
    assert "error: the last message has no answer to go on with\nhint: `/retry` sends it again\n" in shown
    assert room.asked[-1] == ["Hi", CUT.blocks[0].text]


@pytest.mark.parametrize("thought", ["", "Hm."])
def test_an_empty_reply_is_not_continued(room: Room, thought: str) -> None:
    room.model = ScriptedChatModel(replies=[said("", thought=thought)])
    assert "error: the last message has no answer to go on with\n" in room("Hi", INTERRUPT, "/continue", display=QUIET)


def test_a_thought_that_was_cut_is_continued(room: Room) -> None:
    thought = Said(blocks=(Block(thought="Hm."),), reason="length")
    room.model = ScriptedChatModel(replies=[thought, thought, said("Yes."), said("No.")])
    shown = room("Hi", "/continue", "/continue", "/retry", display=QUIET, options=GenerateOptions(max_tokens=4, seed=7))
    cut = "Hm.\nThe reply ended before its answer began.\nhint: reached max-tokens 4; `/continue` gives the rest\n>>> "
    assert f">>> Hi\n{cut}/continue\n{cut}/continue\nYes.\n>>> /retry\nseed 8\nNo.\n" in shown
    asked = [messages for messages, _ in room.model.calls]
    thought_ids = [*thought.blocks[0].ids]
    assert [messages[1:] for messages in asked] == [
        [],
        [{"role": "assistant", "content": "", "ids": thought_ids}],
        [{"role": "assistant", "content": "", "ids": thought_ids * 2}],
        [],
    ]


def test_after_a_continued_thought_a_retry_begins_anew(room: Room) -> None:
    thought = Said(blocks=(Block(thought="Hm."),), reason="length")
    room.model = ScriptedChatModel(replies=[thought, thought, said("Yes.")])
    room("Hi", "/continue", "/retry", display=QUIET)
    assert room.asked[-1] == ["Hi"]


@pytest.mark.parametrize("error", [ResourceError("no"), ContextError("full", "raise `--context`")], ids=["no", "full"])
def test_an_answer_that_cannot_be_continued_stays(room: Room, error: Exception) -> None:
    room.model = ScriptedChatModel(replies=[CUT, Said(blocks=(), error=error), said("o.")])
    shown = room("Hi", "/continue", "/continue", "/retry", display=QUIET)
    assert f"error: {error}\n" in shown and "shorten" not in shown
    assert room.asked[1:] == [["Hi", CUT.blocks[0].text]] * 2 + [["Hi"]]
    room.model = ScriptedChatModel(replies=[CUT, Said(blocks=(), error=error), said("Yes.")])
    shown = room("Hi", "/continue", "/retry", display=QUIET, options=GenerateOptions(max_tokens=4, seed=7))
    assert ">>> /retry\nseed 8\nYes.\n" in shown, "what is retried is the answer"


@pytest.mark.parametrize("error", [ResourceError("no"), ContextError("full", "raise `--context`")], ids=["no", "full"])
def test_a_thought_that_cannot_be_continued_stays(room: Room, error: Exception) -> None:
    thought = Said(blocks=(Block(thought="Hm."),), reason="length")
    room.model = ScriptedChatModel(replies=[thought, Said(blocks=(), error=error), said("Yes."), said("No.")])
    shown = room("Hi", "/continue", "/set context 9000", "/continue", "/retry", display=QUIET)
    assert f"error: {error}\n" in shown and ">>> /continue\nYes.\n>>> /retry\nseed 8\nNo.\n" in shown
    begun = [{"role": "assistant", "content": "", "ids": [*thought.blocks[0].ids]}]
    assert [messages[1:] for messages, _ in room.model.calls] == [[], begun, begun, []]


def test_an_answer_is_continued_under_its_own_message_and_not_under_what_that_was_changed_to(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ChatState, "edited", lambda _, text: f"{text}!")
    room.model = ScriptedChatModel(replies=[CUT, Said(blocks=(), error=ResourceError("no")), said("o.")])
    room("Hi", "/edit", "/continue", "And?", display=QUIET)
    assert room.asked[1:] == [["Hi!"], ["Hi", CUT.blocks[0].text], ["Hi", "One.\n\nTwo.", "And?"]]


def test_a_message_that_does_not_fit_comes_back(room: Room) -> None:
    error = ContextError("the prompt has 30 tokens and the context holds 20, the answer included", "raise `--context`")
    room.model = ScriptedChatModel(replies=[Said(blocks=(), error=error), said("Fine.")])
    shown = room("Hi", " again", display=QUIET)
    assert shown == paper(
        """
        >>> Hi
        error: the prompt has 30 tokens and the context holds 20, the answer included
        hint: shorten the message, `/set context N` makes more
        >>> Hi again
        Fine.
        """,
        END,
    )


def test_no_more_context_is_offered_than_the_model_takes(room: Room) -> None:
    error = ContextError("the prompt has 30 tokens and the context holds 20, the answer included", "raise `--context`")
    replies = [Said(blocks=(), error=error), Said(reason="context_full"), Said(blocks=(), error=error)]
    room.model = ScriptedChatModel(replies=replies, max_positions=20)
    shown = room("/set context 99", "Hi", "", "And", moving=True, ask=lambda _: False)
    assert "context 99 (/set)\n20 is the maximum for this model.\n" in shown
    hints = re.findall("hint: (.*)\n", shown)
    limit = "20 is the maximum for this model"
    assert hints == [
        f"shorten the message: {limit}",
        f"the context of 20 tokens is full; `/undo` or `/clear` frees space: {limit}",
        f"shorten it; `/undo` or `/clear` frees space: {limit}; Up brings the message back",
    ]


def test_no_key_is_named_where_there_is_no_keyboard(room: Room) -> None:
    error = ContextError("the prompt has 30 tokens and the context holds 20, the answer included", "raise `--context`")
    room.model = ScriptedChatModel(replies=[said("One."), Said(blocks=(), error=error)], max_positions=20)
    shown = room("Hi", "more")
    assert "hint: shorten it; `/undo` or `/clear` frees space: 20 is the maximum for this model\n" in shown


@pytest.mark.parametrize("again", ["/retry", "more"])
def test_the_commands_that_make_room_can_be_typed_at_once(room: Room, again: str) -> None:
    """Where the terminal itself edits lines, the hint names no key that does nothing there."""
    error = ContextError("the prompt has 30 tokens and the context holds 20, the answer included", "raise `--context`")
    room.model = ScriptedChatModel(replies=[said("One."), Said(blocks=(), error=error), said("Two.")])
    shown = room("Hi", "more", "/undo", again, display=QUIET, ask=lambda _: False)
    assert shown == paper(
        f"""
        >>> Hi
        One.
        >>> more
        error: the prompt has 30 tokens and the context holds 20, the answer included
        hint: shorten it; `/undo` or `/clear` frees space, `/set context N` makes more; `/retry` sends it again
        >>> /undo
        Took back 1 turn; none is left.
        >>> {again}
        Two.
        """,
        END,
    )
    assert room.asked[-1] == ["more"]


def test_a_run_that_breaks_off_keeps_what_was_committed(room: Room) -> None:
    room.model = ScriptedChatModel(
        replies=[Said(blocks=(Block(text="Half"),), error=ResourceError("out of memory", "use less")), said("Go on.")]
    )
    shown = room("Hi", "continue", display=QUIET)
    assert ">>> Hi\nHalf\nerror: out of memory\nhint: use less\n>>> continue\n" in shown
    assert room.asked[-1] == ["Hi", "Half", "continue"]


def test_a_device_that_is_full_ends_a_reply_and_not_the_conversation(room: Room) -> None:
    """Such as torch's own error, which is not one of ours: another program may have taken the memory."""

    class OutOfMemoryError(RuntimeError):
        pass

    error = OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
    room.model = ScriptedChatModel(replies=[Said(blocks=(Block(text="Half"),), error=error), said("Go on.")])
    shown = room("Hi", "continue", display=QUIET)
    assert ">>> Hi\nHalf\nerror: out of memory\nhint: close other programs that use the device, or give" in shown
    assert "back with `/set context N`" in shown
    assert room.asked[-1] == ["Hi", "Half", "continue"]


def test_a_fault_of_the_program_is_not_taken_for_a_full_device(room: Room) -> None:
    room.model = ScriptedChatModel(replies=[Said(error=RuntimeError("shapes do not match"))])
    with pytest.raises(RuntimeError, match="shapes do not match"):
        room("Hi")


def test_thoughts_are_shown_apart_and_never_part_of_the_conversation(room: Room) -> None:
    room.model = ScriptedChatModel(replies=[said("Four.", thought="two and two"), said("Five.", thought="hm")])
    shown = room("2+2?", "/set think hide", "and one?", display=replace(QUIET, think="show"), color=True)
    assert "\x1b[2mtwo and two\x1b[0m\nFour.\n" in shown
    assert "hm" not in shown
    assert room.asked[-1] == ["2+2?", "Four.", "and one?"]
    assert [options.think for _, options in room.model.calls] == [True, True]


def test_thinking_belongs_to_the_whole_context(room: Room) -> None:
    shown = room("/set think show", "Hi", "/set think off", "/set think hide", "/set think show", "Hi", display=QUIET)
    first = "The model is asked to think; this applies from the next turn.\n"
    assert f">>> /set think show\nthink show (/set)\n{first}" in shown
    again = "this applies from the next turn, for which the whole context is read again.\n"
    assert f">>> /set think off\nthink off (/set)\nThe model is no longer asked to think; {again}" in shown
    assert ">>> /set think show\nthink show (/set)\n>>> Hi" in shown


def test_a_system_prompt_that_stays_costs_nothing(room: Room) -> None:
    shown = room("/system off", "/system Be brief.", "/system Be brief.", display=QUIET)
    assert ">>> /system off\nThere is no system prompt.\n" in shown
    assert shown.count("The system prompt is set; this applies from the next turn.\n") == 1
    assert ">>> /system Be brief.\nThat is already the system prompt.\n" in shown


def test_the_system_prompt(room: Room) -> None:
    shown = room("/system", "/system Be brief.", "/system", "Hi", "/system off", "/system", "Hi", display=QUIET)
    assert shown == paper(
        """
        >>> /system
        There is no system prompt.
        >>> /system Be brief.
        The system prompt is set; this applies from the next turn.
        >>> /system
        Be brief.
        >>> Hi
        Hello.
        >>> /system off
        The system prompt is removed; this applies from the next turn, for which the whole context is read again.
        >>> /system
        There is no system prompt.
        >>> Hi
        Hello.
        """,
        END,
    )
    assert [options.system for _, options in room.model.calls] == ["Be brief.", None]


def test_clear_begins_a_new_session_and_keeps_the_old_one(room: Room) -> None:
    room("/set steps 5", "Hi", "/clear", "Ho", options=GenerateOptions(seed=7, system="Be brief."))
    assert room.asked == [["Hi"], ["Ho"]]
    assert [(options.steps, options.system) for _, options in room.model.calls] == [(5, "Be brief.")] * 2
    assert len(list(room.sessions.iterdir())) == 2


def test_markdown_is_laid_out_and_can_be_left_as_it_is(room: Room) -> None:
    room.model = ScriptedChatModel(replies=[said("# Title\n\n- **one**\n- two\n")])
    assert ">>> Hi\nTitle\n\n- one\n- two\n>>> /set markdown off\nmarkdown off (/set)\n" in (
        shown := room("Hi", "/set markdown off", "Hi", display=QUIET)
    )
    assert ">>> Hi\n# Title\n\n- **one**\n- two\n>>> \n" in shown


def test_marks_are_ascii_where_the_terminal_is(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room.model = ScriptedChatModel(replies=[said("> *one*\n")])
    assert room("Hi", "/show", display=QUIET).count("▌ one\n") == 2
    monkeypatch.setattr(Stream, "encodes", lambda _stream, text: text.isascii())
    assert room("Hi", "/show", display=QUIET).count("| one\n") == 2


def test_escape_codes_from_the_model_do_not_reach_the_terminal(room: Room) -> None:
    room.model = ScriptedChatModel(replies=[said("a\x1b]52;c;aGk=\x07b", thought="\x1b[2J")])
    for markdown in (True, False):
        shown = room("Hi", display=replace(QUIET, think="show", markdown=markdown))
        assert "]52;c;aGk=" in shown and "[2J" in shown and "\x1b" not in shown


def help_page(room: Room, **screen: Any) -> list[str]:
    """The lines of the help, without styles."""
    lines = re.sub("\x1b\\[[0-9;]*m", "", room("/help", **screen)).split("\n")
    return lines[lines.index(">>> /help") + 1 : lines.index(">>> ")]


def test_help_fits_a_screen(room: Room) -> None:
    page = help_page(room, moving=True)
    assert len(page) <= 23
    assert max(map(len, page)) <= 79
    assert page[0].startswith("Enter")
    for command in COMMANDS:
        assert any(f"/{command.name}" in line and command.help in line for line in page)


@pytest.mark.parametrize("width", [70, 40, 24])
def test_help_is_wrapped_between_words_in_a_narrow_window(room: Room, width: int) -> None:
    page = help_page(room, width=width, moving=True)
    assert max(map(len, page)) < max(width, 31)  # the longest command
    words = f" {' '.join(' '.join(page).split())} "
    for command in COMMANDS:
        assert f" {command.help} " in words
    assert " .. noise forming leaning settled (stable, not correct) changed bars: " in words


@pytest.mark.parametrize("palette", ["dark", "light", "16", "mono"])
def test_help_shows_the_marks_of_the_canvas_as_they_are_drawn(room: Room, palette: PaletteName) -> None:
    chosen = resolve_palette(palette, env={}, encoding=None)
    (drawn,) = [line for line in room("/help", moving=True, palette=palette).split("\n") if line.startswith("Canvas ")]
    for stage, name in zip(chosen.stages, ("settled", "leaning", "forming", "noise"), strict=True):
        assert encode_row((Span(name, len(name), stage),)) in drawn
    assert encode_row((Span("changed", 7, chosen.stages[SETTLED].underlined()),)) in drawn


def test_help_explains_no_canvas_where_none_is_drawn(room: Room) -> None:
    assert "Canvas" not in room("/help", moving=False)


def test_help_says_what_enter_does(room: Room) -> None:
    assert "Enter     sends. Alt-Enter or Ctrl-J: a new line;" in room("/help", moving=True)
    shown = room("/help", moving=True, display=replace(QUIET, multiline=True))
    assert "Enter     a new line; sends a command. Alt-Enter: sends the message\n" in shown
    assert "Enter     sends." not in shown


def test_help_names_no_key_that_does_nothing_where_the_terminal_edits_lines(room: Room) -> None:
    shown = room("/help", moving=False, display=replace(QUIET, multiline=True))
    assert 'Enter     sends. """ … """: several lines\n' in shown
    assert "Ctrl-D    leaves, on an empty line\n" in shown
    assert not any(key in shown for key in ("Alt-Enter", "Ctrl-J", "Ctrl-G", "Ctrl-R", "Tab"))


def test_a_narrow_terminal_gets_a_short_footer(room: Room) -> None:
    assert "\n6 tok · 8.0 tok/s · ctx 0 %\n" in room("Hi", width=40)
