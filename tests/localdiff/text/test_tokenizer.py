"""`Tokenizer`: ids from `tokenizer.json`, control tokens by name, pieces for the canvas, and damaged files."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from localdiff.errors import ContextError, UsageError, WeightsError
from localdiff.text.shield import Segment
from localdiff.text.tokenizer import Tokenizer
from tests.checkpoints.tokenizers import CONTROL, gemma_like
from tests.fakes.permissions import as_anyone
from tests.screens.processes import ROOT


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gemma_like(tmp_path_factory.mktemp("gemma"))


@pytest.fixture(scope="module")
def tokenizer(directory: Path) -> Tokenizer:
    return Tokenizer(directory)


@pytest.fixture(scope="module")
def backend(directory: Path) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))


def id_of(tokenizer: Tokenizer, text: str) -> int:
    (id,) = tokenizer.encode(text)
    return id


def test_the_special_tokens_of_a_rendered_prompt_are_parsed_and_none_is_added(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("<bos><|turn>user\nhi<turn|>\n<|turn>model\n")
    special = tokenizer.control
    assert [id for id in ids if tokenizer.is_special(id)] == [
        special["<bos>"],
        special["<|turn>"],
        special["<turn|>"],
        special["<|turn>"],
    ]
    assert ids[0] == special["<bos>"] and ids.count(special["<bos>"]) == 1


def test_a_post_processor_that_adds_bos_is_not_asked(tmp_path: Path) -> None:
    path = gemma_like(tmp_path) / "tokenizer.json"
    backend = tokenizers.Tokenizer.from_file(str(path))
    bos = backend.token_to_id("<bos>")
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", bos)]
    )
    backend.save(str(path))
    assert backend.encode("hi").ids[0] == bos
    assert bos not in Tokenizer(tmp_path).encode("hi")


def test_truncation_and_padding_of_a_training_run_are_ignored(tmp_path: Path) -> None:
    path = gemma_like(tmp_path) / "tokenizer.json"
    backend = tokenizers.Tokenizer.from_file(str(path))
    backend.enable_truncation(4)
    backend.enable_padding(length=64)
    backend.save(str(path))
    assert len(Tokenizer(tmp_path).encode("a b c d e f")) == 11
    assert len(Tokenizer(tmp_path).encode("a")) == 1


def test_control_tokens_are_found_by_content(tokenizer: Tokenizer) -> None:
    assert tokenizer.control == {text: id_of(tokenizer, text) for text in CONTROL}


def test_a_marker_is_special_even_where_the_file_forgot_the_flag(tmp_path: Path) -> None:
    tokenizer = Tokenizer(gemma_like(tmp_path, flag_markers=False))
    assert tokenizer.is_special(tokenizer.control["<turn|>"])
    assert tokenizer.decode(tokenizer.encode("hi<turn|>")) == "hi"
    assert not tokenizer.is_special(id_of(tokenizer, "\n"))


def test_added_tokens_that_stand_for_text_are_not_special(tokenizer: Tokenizer) -> None:
    for text in ("\n", "\n\n", "<unused0>"):
        assert not tokenizer.is_special(id_of(tokenizer, text))
        assert tokenizer.decode([id_of(tokenizer, text)]) == text


@settings(max_examples=60, deadline=None)
@given(text=st.text())
def test_what_is_encoded_decodes_to_itself(tokenizer: Tokenizer, text: str) -> None:
    # `▁` is how the vocabulary writes a space; the released tokenizer also loses it as one.
    text = text.replace("▁", "_").encode("utf-8", "ignore").decode()
    assert tokenizer.decode(tokenizer.encode(text), special=True) == text


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_decode_equals_the_library(tokenizer: Tokenizer, backend: tokenizers.Tokenizer, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, backend.get_vocab_size(with_added_tokens=True) + 3)))
    assert tokenizer.decode(ids) == backend.decode(ids, skip_special_tokens=True)
    assert tokenizer.decode(ids, special=True) == backend.decode(ids, skip_special_tokens=False)


def test_an_id_is_known_where_it_has_a_token(tokenizer: Tokenizer, backend: tokenizers.Tokenizer) -> None:
    size = backend.get_vocab_size(with_added_tokens=True)
    assert tokenizer.is_known(size - 1)
    assert not tokenizer.is_known(size)
    assert not tokenizer.is_known(-1)


def test_pieces_show_one_id_each(tokenizer: Tokenizer, backend: tokenizers.Tokenizer) -> None:
    assert [tokenizer.piece(id) for id in tokenizer.encode("the the<turn|>\n€")] == [
        *("the", " the", "<turn|>", "\n"),
        *("<0xE2>", "<0x82>", "<0xAC>"),
    ]
    assert tokenizer.piece(backend.get_vocab_size(with_added_tokens=True)) == "\ufffd"
    assert tokenizer.piece(-1) == "\ufffd"


def test_half_a_surrogate_pair_is_a_usage_error(tokenizer: Tokenizer) -> None:
    with pytest.raises(UsageError, match="its character 3 is not UTF-8"):
        tokenizer.encode("ab\ud83d")


def test_literal_text_spells_out_control_tokens(tokenizer: Tokenizer) -> None:
    text = "a<turn|> b <|channel>thought\n<bos>"
    ids = tokenizer.encode_literal(text)
    assert not any(map(tokenizer.is_special, ids))
    assert tokenizer.decode(ids) == text
    assert tokenizer.encode_literal("a < b\n<div>") == tokenizer.encode("a < b\n<div>")


def test_a_model_that_knows_the_token_as_a_word_spells_it_letter_by_letter(tmp_path: Path) -> None:
    vocabulary = {piece: id for id, piece in enumerate(["<end>", "<", "e", "n", "d", ">", "§"])}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="§"))
    backend.add_special_tokens(["<end>", "§"])
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer(tmp_path)
    assert tokenizer.encode("<end>") == [0]
    assert tokenizer.encode_segments([Segment(text="<end>", literal=True)]) == [1, 2, 3, 4, 5]
    with pytest.raises(UsageError, match="contains `§`"):
        tokenizer.encode_literal("§")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="has no `tokenizer.json`") as failure:
        Tokenizer(tmp_path)
    assert str(tmp_path) in failure.value.message
    assert failure.value.hint


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: "null",
        lambda text: "[]",
        lambda text: "<!DOCTYPE html>",
        lambda text: json.dumps({**json.loads(text), "model": None}),
        lambda text: json.dumps({**json.loads(text), "model": {"type": "Nonsense"}}),
        lambda text: text.replace('"merges": [', '"merges": [["zz", "yy"],', 1),
    ],
)  # fmt: skip
def test_a_damaged_file_is_a_weights_error(directory: Path, tmp_path: Path, damage: object) -> None:
    text = (directory / "tokenizer.json").read_text("utf-8")
    damaged = damage(text)  # type: ignore[operator]
    assert damaged != text
    (tmp_path / "tokenizer.json").write_text(damaged, "utf-8")
    with pytest.raises(WeightsError, match="tokenizer.json` is not a tokenizer that can be read") as failure:
        Tokenizer(tmp_path)
    assert "\n" not in failure.value.message
    assert not failure.value.message.endswith(".")


def test_a_file_that_may_not_be_read_is_not_called_damaged(directory: Path, tmp_path: Path) -> None:
    shutil.copyfile(directory / "tokenizer.json", tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer.json").chmod(0)
    with (
        as_anyone(),
        pytest.raises(WeightsError, match=r"(?m)tokenizer.json` cannot be read: Permission denied$") as raised,
    ):
        Tokenizer(tmp_path)
    assert raised.value.hint == "check its permissions"


def test_bytes_that_are_no_text_are_a_weights_error(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(b"\xff\xfe\x00garbage")
    with pytest.raises(WeightsError, match="tokenizer.json"):
        Tokenizer(tmp_path)


@pytest.mark.parametrize("module", ["tokenizer", "template", "detok", "channels", "shield"])
def test_importing_the_module_brings_nothing_heavy(module: str) -> None:
    heavy = "{'torch', 'transformers', 'tokenizers', 'jinja2'}"
    code = f"import sys, localdiff.text.{module}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_text_that_cannot_fit_is_not_tokenized(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    def encode(_text: str) -> list[int]:
        raise AssertionError("it was tokenized")

    longest = max(len(tokenizer.piece(id)) for id in range(10_000) if tokenizer.is_known(id))
    monkeypatch.setattr(tokenizer, "encode", encode)
    size = 1_500_000
    with pytest.raises(ContextError, match="a text of 1,500,000 characters does not fit into a context of 1,000 tok"):
        tokenizer.encode_literal("a" * size, max_tokens=1_000)
    for text, limit in ("a" * 9_000, 10), ("a" * size, size // longest + 1), ("a" * size, None):
        with pytest.raises(AssertionError, match="tokenized"):
            tokenizer.encode_literal(text, max_tokens=limit)
