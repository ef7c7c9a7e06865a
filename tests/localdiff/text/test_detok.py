"""Streaming: text that never changes, never half a character, and in sum exactly the whole decoded text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localdiff.text.channels import ChannelSplitter
from localdiff.text.detok import ReplyDecoder, StreamDecoder, is_local
from localdiff.text.tokenizer import Tokenizer
from tests.checkpoints.tokenizers import CONTROL, gemma_like, no_decoder, size_of, word_pieces

KINDS: dict[str, Callable[[Path], Path]] = {
    "gemma": gemma_like,
    "llama": lambda directory: gemma_like(directory, decoder="llama"),
    "word pieces": word_pieces,
    "no decoder": no_decoder,
}


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    return {name: Tokenizer(write(tmp_path_factory.mktemp("kind"))) for name, write in KINDS.items()}


@pytest.fixture(scope="module")
def gemma(tokenizers: dict[str, Tokenizer]) -> Tokenizer:
    return tokenizers["gemma"]


def stream(decoder: StreamDecoder, ids: Sequence[int], cuts: Sequence[int]) -> list[str]:
    """The text of each push and of `finish`; `cuts` gives the lengths of pushes, and one more takes the rest."""
    texts, rest = [], list(ids)
    for cut in cuts:
        texts.append(decoder.push(rest[:cut]))
        rest = rest[cut:]
    return [*texts, decoder.push(rest), decoder.finish()]


def some_ids(tokenizer: Tokenizer) -> st.SearchStrategy[list[int]]:
    """Ids of every kind, with many runs of bytes that are characters, or nearly so."""
    text = st.sampled_from(["é", "€", "😀", " the", "\ufffd", " ", "x", "\n"]).map(tokenizer.encode)
    any_id = st.integers(0, size_of(tokenizer) + 2).map(lambda id: [id])
    byte_ids = [[id] for id in range(size_of(tokenizer)) if tokenizer.is_byte(id)]
    parts = [text, any_id, *([st.sampled_from(byte_ids)] if byte_ids else [])]
    return st.lists(st.one_of(parts), max_size=14).map(lambda runs: [id for run in runs for id in run])


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_the_pushes_add_up_to_the_decoded_whole(
    tokenizers: dict[str, Tokenizer], kind: str, data: st.DataObject
) -> None:
    tokenizer = tokenizers[kind]
    ids = data.draw(some_ids(tokenizer))
    cuts = data.draw(st.lists(st.integers(0, 4)))
    assert "".join(stream(StreamDecoder(tokenizer), ids, cuts)) == tokenizer.decode(ids, special=True)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_text_that_is_out_holds_whatever_follows(
    tokenizers: dict[str, Tokenizer], kind: str, data: st.DataObject
) -> None:
    tokenizer = tokenizers[kind]
    ids, more = data.draw(some_ids(tokenizer)), data.draw(some_ids(tokenizer))
    out = StreamDecoder(tokenizer).push(ids)
    assert tokenizer.decode([*ids, *more], special=True).startswith(out)


def test_a_character_in_pieces_comes_whole(gemma: Tokenizer) -> None:
    text = "a€😀é z"
    texts = stream(StreamDecoder(gemma), gemma.encode(text), [1] * 40)
    assert "".join(texts) == text
    assert not any("\ufffd" in part for part in texts)


def test_text_comes_at_once_where_nothing_is_open(gemma: Tokenizer) -> None:
    decoder = StreamDecoder(gemma)
    assert decoder.push(gemma.encode("the user")) == "the user"
    assert decoder.push(gemma.encode(" the")) == " the"
    assert decoder.push(gemma.encode("\ufffd")) == "\ufffd"
    assert decoder.finish() == ""


def test_bytes_are_held_until_their_run_is_over(gemma: Tokenizer) -> None:
    decoder = StreamDecoder(gemma)
    euro = gemma.encode("€")
    assert len(euro) == 3
    assert decoder.push([*gemma.encode("a"), *euro[:2]]) == "a"
    assert decoder.push(euro[2:]) == ""  # a wrong byte could still spoil it
    assert decoder.push(gemma.encode("b")) == "€b"
    assert decoder.push(euro) == ""
    assert decoder.push(euro[:1]) == ""
    assert decoder.finish() == "\ufffd" * 4


def test_a_control_token_ends_a_run_of_bytes(gemma: Tokenizer) -> None:
    euro, turn = gemma.encode("€"), gemma.encode("<turn|>")
    ids = [*euro[:1], *turn, *euro[1:]]
    decoder = StreamDecoder(gemma)
    assert decoder.push(ids) + decoder.finish() == gemma.decode(ids, special=True) == "\ufffd<turn|>\ufffd\ufffd"


def test_an_id_without_a_token_does_not_end_a_run_of_bytes(gemma: Tokenizer) -> None:
    letter, wrong = (next(id for id in range(300) if gemma.piece(id) == name) for name in ("<0x41>", "<0xFF>"))
    ids = [letter, size_of(gemma) + 9, wrong]
    assert gemma.decode(ids) == "\ufffd\ufffd"
    assert stream(StreamDecoder(gemma), ids, [1, 1, 1]) == ["", "", "", "", "\ufffd\ufffd"]


def test_the_leading_space_goes_once(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["llama"]
    ids = tokenizer.encode(" the the")
    assert stream(StreamDecoder(tokenizer), ids, [1, 1]) == ["", "", "", "the the"]


def test_a_vocabulary_that_tidies_up_is_decoded_at_the_end(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["word pieces"]
    ids = [id for token in ("a", "##b", ".", "n't") for id in tokenizer.encode(token)]
    decoder = StreamDecoder(tokenizer)
    assert decoder.push(ids) == ""
    assert decoder.finish() == tokenizer.decode(ids)


@pytest.mark.parametrize(
    ("steps", "local"),
    [
        (["Replace", "ByteFallback", "Fuse"], True),
        (["ByteFallback", "Replace", "Fuse"], True),
        (["Replace", "ByteFallback"], True),
        (["Replace", "ByteFallback", "Fuse", "Strip"], False),
        (["Fuse", "Replace"], False),
        (["ByteLevel"], False),
        ([], False),
    ],
)
def test_a_reply_grows_where_no_id_depends_on_its_neighbours(steps: list[str], local: bool) -> None:
    assert is_local(steps) is local


# The reply


def reply(tokenizer: Tokenizer, *blocks: str, tool_calls: bool = False) -> list[tuple[str, str]]:
    decoder = ReplyDecoder(tokenizer, tool_calls=tool_calls)
    return [piece for block in blocks for piece in decoder.push(tokenizer.encode(block))] + decoder.finish()


def test_thought_and_answer_come_in_order_across_blocks(gemma: Tokenizer) -> None:
    assert reply(gemma, "<|channel>tho", "ught\nlet me", " see<channel|>Fo", "ur.<turn|>") == [
        *(("thought", "let me"), ("thought", " see"), ("answer", "Fo"), ("answer", "ur.")),
    ]


def test_a_character_across_a_block_border_comes_whole(gemma: Tokenizer) -> None:
    ids = gemma.encode("é€ ok")
    for cut in range(len(ids) + 1):
        decoder = ReplyDecoder(gemma)
        pieces = decoder.push(ids[:cut]) + decoder.push(ids[cut:]) + decoder.finish()
        assert "".join(text for _, text in pieces) == "é€ ok"
        assert not any("\ufffd" in text for _, text in pieces)


def test_a_reply_that_ends_inside_a_character_says_so(gemma: Tokenizer) -> None:
    decoder = ReplyDecoder(gemma)
    assert decoder.push(gemma.encode("a€")[:2]) == [("answer", "a")]
    assert decoder.finish() == [("answer", "\ufffd")]


def test_a_thought_that_ends_in_bytes_is_out_before_the_answer(gemma: Tokenizer) -> None:
    assert reply(gemma, "<|channel>thought\nhm €<channel|>ok", " the end") == [
        *(("thought", "hm "), ("thought", "€"), ("answer", "ok"), ("answer", " the end")),
    ]


def test_a_character_does_not_go_on_after_another_channel(gemma: Tokenizer) -> None:
    euro, opening, closing = gemma.encode("€"), gemma.encode("<|channel>x\n"), gemma.encode("<channel|>")
    decoder = ReplyDecoder(gemma)
    pieces = decoder.push([*euro[:1], *opening, *gemma.encode("hm"), *closing, *euro[1:]]) + decoder.finish()
    assert pieces == [("answer", "\ufffd"), ("thought", "hm"), ("answer", "\ufffd\ufffd")]


def test_tool_calls_are_text_when_asked_for(gemma: Tokenizer) -> None:
    call = '<|tool_call>call:f{city:<|"|>Rome €<|"|>}<tool_call|>'
    blocks = (f"Wait.{call[:20]}", f"{call[20:]}<|tool_response>")
    assert "".join(text for _, text in reply(gemma, *blocks, tool_calls=True)) == f"Wait.{call}"
    assert reply(gemma, *blocks) == [("answer", "Wait.")]


def test_a_reply_to_an_open_channel_begins_as_thought(gemma: Tokenizer) -> None:
    decoder = ReplyDecoder(gemma, prompt=gemma.encode("<|turn>model\n<|channel>thought\n"))
    assert decoder.push(gemma.encode("hm<channel|>a")) == [("thought", "hm"), ("answer", "a")]


def test_nothing_shows_of_an_empty_reply(gemma: Tokenizer) -> None:
    assert reply(gemma, "", "<turn|>", "<pad><pad>") == []


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_each_run_of_a_channel_is_decoded_before_the_next(gemma: Tokenizer, data: st.DataObject) -> None:
    marker = st.sampled_from([*CONTROL, "<|channel>thought\n", "<|channel>\n€", "€<channel|>"]).map(gemma.encode)
    runs = data.draw(st.lists(st.one_of(marker, some_ids(gemma)), max_size=12))
    ids = [id for run in runs for id in run]
    tool_calls = data.draw(st.booleans())
    decoder, pieces = ReplyDecoder(gemma, tool_calls=tool_calls), []
    for start, stop in pairwise([0, *sorted(data.draw(st.lists(st.integers(0, len(ids))))), len(ids)]):
        pieces += decoder.push(ids[start:stop])
    pieces += decoder.finish()
    assert all(text for _, text in pieces)
    runs_of = ChannelSplitter(gemma, tool_calls=tool_calls).push(ids)
    expected = [(channel, gemma.decode(run, special=True)) for channel, run in runs_of]
    assert _joined(pieces) == _joined(expected)


def _joined(pieces: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Joins consecutive texts of the same channel."""
    groups = groupby((piece for piece in pieces if piece[1]), itemgetter(0))
    return [(channel, "".join(text for _, text in group)) for channel, group in groups]
