"""The vocabulary: lossless, aligned with the skills, reproducible, and readable by transformers."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from random import Random
from string import ascii_lowercase

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from localdiff.checkpoints.model_reference import DEMO_DIRECTORY
from localdiff.demo.skills.words import COMMON
from localdiff.demo.training.rendering import load_vocabulary
from localdiff.demo.training.turns import Render, compile_template
from localdiff.demo.training.vocabulary import (
    BYTES,
    SPECIAL,
    VOCABULARY_SIZE,
    WRITTEN,
    answered_text,
    asked_text,
    build_tokenizer,
    copying_text,
    encode_written,
    words,
    write_vocabulary,
    written_words,
)
from localdiff.text.prompt import as_messages
from localdiff.text.template import ChatTemplate

Vocabulary = tuple[Tokenizer, Render]


@cache
def tokenizer() -> Tokenizer:
    """Made by the first test, not when tests are only collected: it takes seconds."""
    return build_tokenizer()


def pieces(text: str) -> list[str]:
    return tokenizer().encode(text, add_special_tokens=False).tokens


def round_trip(text: str) -> str:
    ids = tokenizer().encode(text, add_special_tokens=False).ids
    return tokenizer().decode(ids, skip_special_tokens=False)


@given(st.text(max_size=30))
def test_any_text_survives_encoding_and_decoding(text: str) -> None:
    assert round_trip(text) == text


@given(st.text(alphabet=" \n\t.-09az<>|_\u2581é漢🙂", max_size=40))
def test_blanks_marks_and_wide_characters_survive(text: str) -> None:
    assert round_trip(text) == text


def test_special_tokens_have_the_released_names_and_the_first_five_ids() -> None:
    assert [tokenizer().token_to_id(name) for name in SPECIAL[:5]] == [0, 1, 2, 3, 4]
    assert SPECIAL[:5] == ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>")
    for name in SPECIAL:
        assert pieces(f"a{name}b") == ["a", name, "b"]
    assert tokenizer().decode([1, *tokenizer().encode("hi").ids, 0]) == "hi"


def test_every_byte_has_a_token_and_nothing_is_unknown() -> None:
    assert all(tokenizer().token_to_id(name) is not None for name in BYTES)
    assert pieces("é") == ["<0xC3>", "<0xA9>"]
    assert "<unk>" not in pieces("\x00 漢 \U0010ffff \x7f")


def test_the_size_is_what_it_says_and_ids_are_dense() -> None:
    ids = sorted(tokenizer().get_vocab().values())
    assert ids == list(range(len(ids)))
    assert len(ids) == VOCABULARY_SIZE


def test_digits_periods_and_newlines_stand_alone() -> None:
    assert pieces("1.3. ..42") == list("1.3. ..42")
    assert pieces("2024-03-05") == list("2024-03-05")
    assert pieces("a\n\nb 4") == ["a", "\n", "\n", "b", " ", "4"]
    for piece in tokenizer().get_vocab():
        if piece not in SPECIAL + BYTES and len(piece) > 1 and not piece.startswith("<unused"):
            assert not set(piece) & set("0123456789.\n"), piece


def test_a_spelled_letter_is_one_token() -> None:
    for letter in ascii_lowercase:
        assert pieces(f"z-{letter}-{letter}") == ["z", f"-{letter}", f"-{letter}"]
    assert "-c" not in pieces("self-conditioning")


def test_words_that_skills_copy_are_read_in_letters_and_those_of_questions_as_one_piece() -> None:
    for word in COMMON:
        assert pieces(f" {word}") == [" ", *word]
    for word in (" denoise", " diffusion", " localdiff", " entropy", " Sudoku", " JSON", "user", "model"):
        assert pieces(word) == [word]


def test_a_word_that_only_answers_have_is_read_in_letters() -> None:
    for word in ("world", "thousand", "lonely"):
        assert pieces(f" {word}") == [" ", *word]
        assert WRITTEN + word in written_words()


def test_what_skills_copied_by_chance_is_no_piece() -> None:
    """A made-up word in the prompts that were drawn does not occur in others."""
    texts = [*asked_text(), *answered_text(), *copying_text(Random(1))]
    found = {piece for text in texts for piece, _ in tokenizer().pre_tokenizer.pre_tokenize_str(text)}
    assert set(words()) - found <= {"user", "model", "thought"}


def test_a_copied_word_of_a_story_is_written_as_one_piece_and_never_read_as_one() -> None:
    assert {"▁castle", "▁robot", "▁night"} <= set(written_words())
    ids = encode_written("In a castle, a robot.", tokenizer())
    assert [tokenizer().id_to_token(id) for id in ids] == ["In", " a", "▁castle", ",", " a", "▁robot", "."]
    assert tokenizer().decode(ids) == "In a castle, a robot."
    written = {tokenizer().token_to_id(piece) for piece in written_words()}
    for piece in written_words():
        assert not written & set(tokenizer().encode(f"A{piece} {piece[1:]} {piece}").ids)


@given(st.text(max_size=30) | st.text(alphabet=" a\n.castle", max_size=30))
def test_any_text_survives_being_written(text: str) -> None:
    assert tokenizer().decode(encode_written(text, tokenizer()), skip_special_tokens=False) == text


def test_a_written_piece_is_a_marker_and_letters() -> None:
    assert all(piece.startswith(WRITTEN) and piece[1:].isalpha() for piece in written_words())


def test_writing_twice_gives_the_same_bytes(tmp_path: Path, demo_vocabulary_directory: Path) -> None:
    words.cache_clear()
    written_words.cache_clear()
    write_vocabulary(tmp_path)
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == ["chat_template.jinja", "tokenizer.json", "tokenizer_config.json"]
    for name in names:
        assert (tmp_path / name).read_bytes() == (demo_vocabulary_directory / name).read_bytes()


def test_the_model_that_ships_has_the_vocabulary_that_is_built(demo_vocabulary_directory: Path) -> None:
    for file in demo_vocabulary_directory.iterdir():
        assert (DEMO_DIRECTORY / file.name).read_bytes() == file.read_bytes()


def test_transformers_reads_the_directory(demo_vocabulary_directory: Path) -> None:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(demo_vocabulary_directory)
    ours, render = load_vocabulary(demo_vocabulary_directory)
    assert len(theirs) == ours.get_vocab_size()
    assert (theirs.pad_token_id, theirs.eos_token_id, theirs.bos_token_id) == (0, 1, 2)
    text = "  two  spaces\n\n\tTab é 漢字 🙂 4.2"
    assert theirs(text)["input_ids"] == ours.encode(text).ids
    assert theirs.decode(ours.encode(text).ids) == text
    turns = [("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello!"), ("user", "2+2?")]
    messages = [{"role": role, "content": content} for role, content in turns]
    assert theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) == render(turns)


def test_the_template_writes_the_released_turn_format() -> None:
    render = compile_template()
    assert render([("user", " Hi ")]) == "<bos><|turn>user\nHi<turn|>\n<|turn>model\n"
    assert render([("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello!"), ("user", "2+2?")]) == (
        "<bos><|turn>system\nBe brief.<turn|>\n<|turn>user\nHi<turn|>\n<|turn>model\nHello!<turn|>\n"
        "<|turn>user\n2+2?<turn|>\n<|turn>model\n"
    )


def test_the_template_drops_past_thoughts() -> None:
    render = compile_template()
    thought = "<|channel>thought\nsecret<channel|>Hello!"
    assert "<|turn>model\nHello!<turn|>" in render([("user", "Hi"), ("assistant", thought), ("user", "2+2?")])


def test_the_template_takes_every_message_that_an_engine_takes() -> None:
    template = ChatTemplate(DEMO_DIRECTORY)
    user, empty = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": ""}
    for message in (
        {"role": "assistant", "reasoning": "hm"},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
        {"role": "assistant", "content": [], "tool_responses": [{"name": "f", "response": "x"}]},
    ):
        assert template.render(as_messages([user, message, user])) == template.render([user, empty, user])
    for role in ("system", "user", "assistant", "tool"):
        for texts in ([" Hi\n"], ["one ", "\ntwo"], ["<channel|>so ", "it<channel|>is"]):
            parts = {"role": role, "content": [{"type": "text", "text": text} for text in texts]}
            last = [text.split("<channel|>")[-1] if role == "assistant" else text for text in texts]
            whole = {"role": role, "content": "".join(text.strip() for text in last)}
            assert template.render(as_messages([parts, user])) == template.render([whole, user])


def test_thinking_is_switched_on_in_the_system_turn(demo_vocabulary_directory: Path) -> None:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    source = (demo_vocabulary_directory / "chat_template.jinja").read_text(encoding="utf-8")
    template = ImmutableSandboxedEnvironment().from_string(source)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert template.render(messages=messages, bos_token="<bos>", enable_thinking=True) == (
        "<bos><|turn>system\n<|think|>\nBe brief.<turn|>\n<|turn>user\nHi<turn|>\n"
    )


def test_the_tokenizer_file_names_its_bytes_as_a_fallback(demo_vocabulary_directory: Path) -> None:
    stored = json.loads((demo_vocabulary_directory / "tokenizer.json").read_text(encoding="utf-8"))
    assert stored["model"]["byte_fallback"] is True
    assert stored["model"]["unk_token"] == "<unk>"
