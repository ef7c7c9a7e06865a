"""Where and in which order the text of a reply is printed."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from localdiff.chat.interrupts import Interrupts
from localdiff.chat.reply_printer import ReplyPrinter
from localdiff.chat.reply_runner import ReplyRunner
from localdiff.chat.settings import DisplaySettings
from localdiff.events import BlockCommitted, Event, TextCommitted
from localdiff.options import GenerateOptions
from localdiff.ui.output import Stream, decide
from tests.fakes.chat_model import Said, ScriptedChatModel
from tests.fakes.engine import Block


def committed(channel: str, text: str) -> Event:
    return TextCommitted(block=1, channel=channel, text=text)  # type: ignore[arg-type]


def everything(reader: int) -> str:
    """What a pipe holds now."""
    try:
        return os.read(reader, 1000).decode()
    except BlockingIOError:
        return ""


def test_a_thought_is_printed_to_its_end_before_the_answer() -> None:
    paper = io.StringIO()
    stream = Stream(file=paper, terminal=True, width=80, color=False)
    printer = ReplyPrinter(answers=stream, thoughts=stream)
    for event in (committed("thought", "first\n\nsecond\nlast"), committed("answer", "The answer.")):
        printer.on_event(event)
    printer.close()
    assert paper.getvalue().split() == ["first", "second", "last", "The", "answer."]
    assert paper.getvalue().endswith("last\nThe answer.\n")


def test_lines_are_broken_between_words_on_a_terminal() -> None:
    for is_terminal, written in ((True, "hm hm\nhm\none two\nthree\n"), (False, "hm hm hm\none two three\n")):
        paper = io.StringIO()
        stream = Stream(file=paper, terminal=is_terminal, width=8)
        printer = ReplyPrinter(answers=stream, thoughts=stream)
        for event in (committed("thought", "hm hm hm"), committed("answer", "one two thr"), committed("answer", "ee")):
            printer.on_event(event)
        printer.close()
        assert paper.getvalue() == written


def test_a_terminal_gets_the_last_line_of_a_continued_answer_whole_and_a_pipe_the_rest() -> None:
    for is_terminal, written in ((True, "two three\n"), (False, "ree\n")):
        paper = io.StringIO()
        printer = ReplyPrinter(
            answers=Stream(file=paper, terminal=is_terminal, width=80), thoughts=None, begun="one\ntwo th"
        )
        for text in ("r", "ee"):
            printer.on_event(committed("answer", text))
        printer.close()
        assert paper.getvalue() == written


def test_code_that_an_answer_had_begun_is_code_where_it_is_continued() -> None:
    paper = io.StringIO()
    stream = Stream(file=paper, terminal=True, width=11)
    printer = ReplyPrinter(answers=stream, thoughts=None, begun="```\nx\none tw")
    printer.on_event(committed("answer", "o three\n```\none two three\n"))
    printer.close()
    assert paper.getvalue() == "one two three\n```\none two\nthree\n"


def test_a_continued_answer_that_gets_nothing_more_is_not_printed_again() -> None:
    for is_terminal, render in ((True, None), (True, lambda text, _: text), (False, None)):
        paper = io.StringIO()
        stream = Stream(file=paper, terminal=is_terminal, width=80)
        ReplyPrinter(answers=stream, thoughts=None, render=render, begun="one").close()
        assert paper.getvalue() == ""


def test_a_pipe_gets_whole_lines_where_its_reader_may_share_the_screen() -> None:
    for whole_lines, written in ((True, ["", "one\n", "one\n"]), (False, ["on", "one\ntw", "one\ntwo"])):
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        with open(writer, "w") as file:
            printer = ReplyPrinter(answers=Stream(file=file), thoughts=None, whole_lines=whole_lines)
            seen = [""]
            for text in ("on", "e\ntw", "o"):
                printer.on_event(committed("answer", text))
                seen.append(seen[-1] + everything(reader))
            assert seen[1:] == written
            printer.close()
            printer.close()
            assert seen[-1] + everything(reader) == "one\ntwo\n"
        os.close(reader)


class WarningModel(ScriptedChatModel):
    """Warns before each block that it commits."""

    def answer(self, *arguments: Any, **options: Any) -> Iterator[Event]:
        for event in super().answer(*arguments, **options):
            if isinstance(event, BlockCommitted):
                logging.getLogger("localdiff").warning("block %d", event.block)
            yield event


def test_a_warning_in_the_middle_of_a_reply_begins_a_line_in_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "both"
    with path.open("w") as out, open(os.dup(out.fileno()), "w") as err:
        output = decide(stdout=out, stderr=err, env={})
        model = WarningModel(replies=[Said(blocks=(Block(text="One "), Block(text="line.\nTwo")))])
        runner = ReplyRunner(model, output, open_view=lambda *_: None, interrupts=Interrupts(), record=None)
        runner.run([{"role": "user", "content": "Hi"}], GenerateOptions(seed=7), DisplaySettings())
    assert path.read_text() == "warning: block 1\nwarning: block 2\nOne line.\nTwo\n"
