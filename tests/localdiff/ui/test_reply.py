"""What is collected of a reply: how far it got."""

from __future__ import annotations

from localdiff.options import GenerateOptions
from localdiff.ui.reply import Reply
from tests.fakes.engine import Block, ScriptedEngine


def test_where_a_run_got_to_is_the_last_thing_that_was_over() -> None:
    reply, places = Reply(), []
    engine = ScriptedEngine(blocks=(Block(text="four", steps=2), Block(text=" is it", steps=1)))
    for event in engine.generate("hi", GenerateOptions()):
        reply.on_event(event)
        if not places or places[-1] != reply.where:
            places.append(reply.where)
    assert places == [
        "while reading the prompt",
        "in block 1",
        "in block 1 at step 1",
        "in block 1 at step 2",
        "after block 1",
        "in block 2",
        "in block 2 at step 1",
        "after block 2",
    ]


def test_a_block_of_which_nothing_is_kept_is_not_unsettled() -> None:
    """Such as one of padding, after the last block of an answer, which has no end token then."""
    reply = Reply()
    blocks = (Block(text="four", reason="step_limit"), Block(text="", reason="step_limit"))
    for event in ScriptedEngine(blocks=blocks).generate("hi", GenerateOptions()):
        reply.on_event(event)
    assert (reply.answer, reply.unsettled) == ("four", (1,))
