"""`ChannelSplitter`: thought and answer by token id, wherever pushes are split."""

from __future__ import annotations

from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localdiff.text.channels import NAME_LIMIT, ChannelSplitter
from localdiff.text.tokenizer import Tokenizer
from tests.checkpoints.tokenizers import CONTROL, gemma_like, size_of

Run = tuple[str, str]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer(gemma_like(tmp_path_factory.mktemp("gemma")))


def split(tokenizer: Tokenizer, text: str, *, tool_calls: bool = False, prompt: str = "") -> list[Run]:
    splitter = ChannelSplitter(tokenizer, tool_calls=tool_calls, prompt=tokenizer.encode(prompt))
    runs = splitter.push(tokenizer.encode(text))
    return [(channel, tokenizer.decode(ids, special=True)) for channel, ids in runs]


def test_an_answer_without_channels_is_all_answer(tokenizer: Tokenizer) -> None:
    assert split(tokenizer, "Hello\nthere<turn|>") == [("answer", "Hello\nthere")]


def test_a_thought_is_split_off_and_its_name_dropped(tokenizer: Tokenizer) -> None:
    reply = "<|channel>thought\nlet me see\nyes<channel|>Four.<turn|>"
    assert split(tokenizer, reply) == [("thought", "let me see\nyes"), ("answer", "Four.")]


@pytest.mark.parametrize(
    "empty", ["<|channel>thought\n<channel|>", "<|channel>thought<channel|>", "<|channel><channel|>"]
)
def test_an_empty_channel_shows_nothing(tokenizer: Tokenizer, empty: str) -> None:
    assert split(tokenizer, f"{empty}Four.") == [("answer", "Four.")]


@pytest.mark.parametrize(("piece", "is_thought"), [("thought\nhm", True), ("thought\n ", False), ("\n", False)])
def test_the_token_that_ends_a_name_may_begin_the_thought(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, piece: str, is_thought: bool
) -> None:
    (first,), rest, opening = tokenizer.encode("x"), tokenizer.encode("y"), tokenizer.encode("<|channel>")
    monkeypatch.setattr(tokenizer, "decode", lambda ids: piece if ids == [first] else "y")
    expected = [first, *rest] if is_thought else rest
    assert ChannelSplitter(tokenizer).push([*opening, first, *rest]) == [("thought", expected)]


def test_a_channel_that_never_closes_is_thought_to_the_end(tokenizer: Tokenizer) -> None:
    assert split(tokenizer, "a<|channel>thought\nhm hm") == [("answer", "a"), ("thought", "hm hm")]


@pytest.mark.parametrize("border", ["<turn|>", "<|turn>", "<|tool_response>", "<eos>", "<bos>"])
def test_the_end_of_the_turn_closes_a_channel(tokenizer: Tokenizer, border: str) -> None:
    assert split(tokenizer, f"<|channel>thought\nhm{border}b") == [("thought", "hm"), ("answer", "b")]
    assert split(tokenizer, f"<|channel>tho{border}b") == [("answer", "b")]


def test_several_channels_alternate(tokenizer: Tokenizer) -> None:
    reply = "a<|channel>x\nb<channel|>c<|channel>y\nd<channel|>e"
    assert split(tokenizer, reply) == [
        (name, text) for name, text in zip(cycle(("answer", "thought")), "abcde", strict=False)
    ]


def test_a_channel_inside_a_channel_begins_anew(tokenizer: Tokenizer) -> None:
    assert split(tokenizer, "<|channel>x\na<|channel>y\nb<channel|>c") == [("thought", "ab"), ("answer", "c")]


def test_a_close_without_an_open_is_dropped(tokenizer: Tokenizer) -> None:
    assert split(tokenizer, "a<channel|>b") == [("answer", "ab")]


def test_a_name_that_does_not_end_is_thought(tokenizer: Tokenizer) -> None:
    short, long = "x" * (NAME_LIMIT - 1), "x" * NAME_LIMIT
    assert split(tokenizer, f"<|channel>{short}<channel|>a") == [("answer", "a")]
    assert split(tokenizer, f"<|channel>{short}<channel|>a<|channel>{short}<channel|>b") == [("answer", "ab")]
    assert split(tokenizer, f"<|channel>{short}\ny<channel|>a") == [("thought", "y"), ("answer", "a")]
    assert split(tokenizer, f"<|channel>{long}\ny<channel|>a") == [("thought", f"{long}\ny"), ("answer", "a")]


def test_a_blank_line_ends_the_name_too(tokenizer: Tokenizer) -> None:
    assert split(tokenizer, "<|channel>thought\n\nhm<channel|>a") == [("thought", "hm"), ("answer", "a")]


def test_a_newline_that_is_a_byte_ends_the_name(tokenizer: Tokenizer) -> None:
    opening = tokenizer.encode("<|channel>x")
    byte = next(id for id in range(size_of(tokenizer)) if tokenizer.piece(id) == "<0x0A>")
    runs = ChannelSplitter(tokenizer).push([*opening, byte, *tokenizer.encode("y")])
    assert runs == [("thought", tokenizer.encode("y"))]


@pytest.mark.parametrize("token", CONTROL)
def test_no_control_token_shows(tokenizer: Tokenizer, token: str) -> None:
    for text in (f"a{token}b", f"<|channel>x\na{token}b", token):
        shown = "".join(part for _, part in split(tokenizer, text))
        assert shown.startswith("a") or not text.startswith("a")
        assert not any(map(tokenizer.is_special, tokenizer.encode(shown)))


CALL = '<|tool_call>call:weather{city:<|"|>Rome<|"|>,days:2}<tool_call|>'


def test_a_tool_call_is_kept_whole_when_asked_for(tokenizer: Tokenizer) -> None:
    reply = f"Wait.{CALL}{CALL}<|tool_response>"
    assert split(tokenizer, reply, tool_calls=True) == [("answer", f"Wait.{CALL}{CALL}")]
    assert split(tokenizer, reply) == [("answer", "Wait.")]


def test_a_tool_call_inside_a_thought_belongs_to_the_answer(tokenizer: Tokenizer) -> None:
    reply = f"<|channel>thought\nhm{CALL}more<channel|>ok"
    assert split(tokenizer, reply, tool_calls=True) == [
        *(("thought", "hm"), ("answer", CALL), ("thought", "more"), ("answer", "ok")),
    ]
    assert split(tokenizer, reply) == [("thought", "hmmore"), ("answer", "ok")]


def test_a_channel_marker_inside_a_tool_call_is_text_of_the_call(tokenizer: Tokenizer) -> None:
    call = "<|tool_call>call:f{x:<|channel>}<tool_call|>"
    assert split(tokenizer, f"{call}a", tool_calls=True) == [("answer", f"{call}a")]
    assert split(tokenizer, f"{call}a") == [("answer", "a")]


def test_a_tool_call_ends_with_the_turn_and_holds_no_padding(tokenizer: Tokenizer) -> None:
    assert split(tokenizer, "<|tool_call>call:f<turn|>a<pad>", tool_calls=True) == [("answer", "<|tool_call>call:fa")]
    assert split(tokenizer, "<|tool_call>call:f<turn|>a") == [("answer", "a")]
    assert split(tokenizer, "<|tool_call>a<pad>b<tool_call|>", tool_calls=True) == [
        ("answer", "<|tool_call>ab<tool_call|>"),
    ]


OPEN = "<bos><|turn>user\nx<turn|>\n<|turn>model\n<|tool_response>response:f{}<tool_response|><|channel>thought\n"


def test_a_prompt_that_leaves_a_channel_open_starts_the_reply_as_thought(tokenizer: Tokenizer) -> None:
    assert split(tokenizer, "hm<channel|>a", prompt=OPEN) == [("thought", "hm"), ("answer", "a")]
    assert split(tokenizer, "\nhm<channel|>a", prompt="<|channel>thought") == [
        ("thought", "hm"),
        ("answer", "a"),
    ]


@pytest.mark.parametrize(
    "prompt",
    [
        "<bos><|turn>model\n",
        "<|turn>model\n<|channel>thought\n<channel|>",
        "<|channel>thought\nhm<turn|>\n<|turn>model\n",
        "",
    ],
)
def test_any_other_prompt_starts_it_as_answer(tokenizer: Tokenizer, prompt: str) -> None:
    assert split(tokenizer, "a", prompt=prompt) == [("answer", "a")]


parts_of_interest = st.one_of(
    st.sampled_from(["<|channel>thought\n", "hm<channel|>", "a", "<|tool_call>b<tool_call|>"]),
    st.sampled_from([*CONTROL, "b", "thought", "\n", "\n\n", "é", "€"]),
)


@settings(max_examples=60, deadline=None)
@given(parts=st.lists(parts_of_interest, max_size=20), cuts=st.lists(st.integers(0, 5)), tool_calls=st.booleans())
def test_where_the_pushes_are_cut_makes_no_difference(
    tokenizer: Tokenizer, parts: list[str], cuts: list[int], tool_calls: bool
) -> None:
    ids = [id for part in parts for id in tokenizer.encode(part)]
    whole = ChannelSplitter(tokenizer, tool_calls=tool_calls).push(ids)
    splitter, pieces, rest = ChannelSplitter(tokenizer, tool_calls=tool_calls), [], ids
    for cut in cuts:
        pieces += splitter.push(rest[:cut])
        rest = rest[cut:]
    pieces += splitter.push(rest)
    assert flat(pieces) == flat(whole)
    assert all(run for _, run in whole)
    assert all(before[0] != after[0] for before, after in zip(whole, whole[1:], strict=False))
    if not tool_calls:
        assert not any(tokenizer.is_special(id) for _, run in whole for id in run)


def flat(runs: list[tuple[str, list[int]]]) -> list[tuple[str, int]]:
    return [(channel, id) for channel, ids in runs for id in ids]
