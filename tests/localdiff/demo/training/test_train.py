"""The start of a training: a vocabulary, and new weights or those of a checkpoint."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from tokenizers import Tokenizer, models

from localdiff.checkpoints.model_reference import DEMO_DIRECTORY
from localdiff.demo.training import adapt, train
from localdiff.demo.training.rendering import load_vocabulary
from localdiff.demo.training.train import begin_from, prepare
from localdiff.demo.training.trainer import TrainingOptions
from localdiff.demo.training.vocabulary import SPECIAL
from localdiff.engine import Engine
from localdiff.model.diffusion_gemma import DiffusionGemma

SHIPPED, _ = load_vocabulary(DEMO_DIRECTORY)


@pytest.fixture
def model() -> DiffusionGemma:
    """The demo model with every weight at zero."""
    model = Engine.load("demo", device="cpu", dtype="fp32").model
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return model


def with_pieces(*others: str) -> Tokenizer:
    """The shipped vocabulary with its last words replaced, and pieces between the special tokens in reverse order."""
    pieces = sorted(SHIPPED.get_vocab(), key=SHIPPED.token_to_id)
    unused = [piece for piece in pieces if piece.startswith("<unused")]
    special, kept = pieces[: len(SPECIAL)], pieces[len(SPECIAL) : len(pieces) - len(unused) - len(others)]
    tokenizer = Tokenizer.from_str(SHIPPED.to_str())
    vocabulary = {piece: id for id, piece in enumerate([*special, *reversed(kept), *others, *unused])}
    tokenizer.model = models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True, ignore_merges=True)
    return tokenizer


def test_a_known_piece_keeps_its_embedding_and_the_rest_its_weights(model: DiffusionGemma) -> None:
    tokenizer = with_pieces()
    begin_from(model, tokenizer, DEMO_DIRECTORY)
    shipped = Engine.load("demo", device="cpu", dtype="fp32").model.state_dict()
    for name, tensor in model.state_dict().items():
        if name != "embed_tokens.weight":
            assert torch.equal(tensor, shipped[name]), name
    for piece in ("user", "\n", "<0xE2>", "<turn|>"):
        ours = model.embed_tokens.weight[tokenizer.token_to_id(piece)]
        assert torch.equal(ours, shipped["embed_tokens.weight"][SHIPPED.token_to_id(piece)])


def test_a_new_piece_begins_as_what_its_text_was(model: DiffusionGemma) -> None:
    tokenizer = with_pieces("qz", " zebraq")
    begin_from(model, tokenizer, DEMO_DIRECTORY)
    shipped = Engine.load("demo", device="cpu", dtype="fp32").model.embed_tokens.weight
    for piece in ("qz", " zebraq"):
        parts = shipped[SHIPPED.encode(piece, add_special_tokens=False).ids]
        assert len(parts) == len(piece)
        begun = model.embed_tokens.weight[tokenizer.token_to_id(piece)]
        assert torch.cosine_similarity(begun, parts.mean(dim=0), dim=0) > 0.9999
        assert torch.isclose(begun.norm(), parts.norm(dim=-1).mean())


def test_a_new_piece_begins_as_the_same_word_in_another_form(model: DiffusionGemma) -> None:
    forms = {"tELL": "Tell", " TELL": "Tell", "sPELLING": "Spelling", " SPELLING": "Spelling"}
    tokenizer = with_pieces(*forms)
    begin_from(model, tokenizer, DEMO_DIRECTORY)
    shipped = Engine.load("demo", device="cpu", dtype="fp32").model.embed_tokens.weight
    for piece, known in forms.items():
        begun = model.embed_tokens.weight[tokenizer.token_to_id(piece)]
        assert torch.equal(begun, shipped[SHIPPED.token_to_id(known)])


def test_a_reserved_piece_that_the_base_lacks_begins_with_numbers(model: DiffusionGemma, tmp_path: Path) -> None:
    """No other piece has its text, and decoding skips it along with special tokens."""
    shutil.copytree(DEMO_DIRECTORY, tmp_path, dirs_exist_ok=True)
    vocabulary = (tmp_path / "tokenizer.json").read_text()
    assert vocabulary.count('"<unused0>"') == 2
    (tmp_path / "tokenizer.json").write_text(vocabulary.replace('"<unused0>"', '"<other>"'))
    begin_from(model, SHIPPED, tmp_path)
    assert all(tensor.isfinite().all() for tensor in model.state_dict().values())
    assert model.embed_tokens.weight[SHIPPED.token_to_id("<unused0>")].norm() > 0


def test_a_new_folder_gets_its_vocabulary_and_a_used_one_keeps_its_own(tmp_path: Path) -> None:
    options = TrainingOptions(updates=1)
    first = prepare(tmp_path, options)
    written = (tmp_path / "tokenizer.json").read_bytes()
    assert first.model.config.vocab_size == load_vocabulary(tmp_path)[0].get_vocab_size()
    with_pieces().save(str(tmp_path / "tokenizer.json"))
    other = (tmp_path / "tokenizer.json").read_bytes()
    prepare(tmp_path, options)
    assert other != written
    assert (tmp_path / "tokenizer.json").read_bytes() == other
    (tmp_path / "chat_template.jinja").unlink()
    prepare(tmp_path, options)
    assert (tmp_path / "tokenizer.json").read_bytes() == written, "writing it had been broken off"


def test_training_continues_from_a_checkpoints_weights(tmp_path: Path, demo_vocabulary_directory: Path) -> None:
    shutil.copytree(demo_vocabulary_directory, tmp_path, dirs_exist_ok=True)
    trainer = prepare(tmp_path, TrainingOptions(updates=1), base=DEMO_DIRECTORY)
    shipped = Engine.load("demo", device="cpu", dtype="fp32").model.state_dict()
    assert torch.equal(trainer.model.state_dict()["norm.weight"], shipped["norm.weight"])
    assert all(parameter.requires_grad for parameter in trainer.model.parameters())


@pytest.mark.parametrize("command", [adapt, train])
@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        (KeyboardInterrupt(), 130, ""),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), 1, "error: [Errno 28] No space left on device\n"),
    ],
)
def test_a_training_that_is_stopped_or_has_no_disk_left_ends_without_a_traceback(
    command: ModuleType,
    end: BaseException,
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def ends(*_: object) -> None:
        raise end

    monkeypatch.setattr(command, "prepare", lambda *_, **__: None)
    monkeypatch.setattr(command, "train", ends)
    monkeypatch.setattr(sys, "argv", ["train", str(tmp_path)])
    with pytest.raises(SystemExit) as left:
        command.main()
    assert (left.value.code, capsys.readouterr().err) == (code, said)
