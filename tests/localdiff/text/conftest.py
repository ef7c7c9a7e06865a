"""The released chat templates of each generation, as read by us and by transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from localdiff.text.template import ChatTemplate
from localdiff.text.tokenizer import Tokenizer
from tests.checkpoints.chats import GENERATIONS, reference_tokenizer, write_chat_checkpoint


@pytest.fixture(scope="session")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: write_chat_checkpoint(tmp_path_factory.mktemp(name), name) for name in GENERATIONS}


@pytest.fixture(scope="session")
def templates(directories: dict[str, Path]) -> dict[str, ChatTemplate]:
    return {name: ChatTemplate(directory) for name, directory in directories.items()}


@pytest.fixture(scope="session")
def tokenizer(directories: dict[str, Path]) -> Tokenizer:
    return Tokenizer(directories["v3"])


@pytest.fixture(scope="session")
def references(directories: dict[str, Path]) -> dict[str, PreTrainedTokenizerFast]:
    return {name: reference_tokenizer(directory) for name, directory in directories.items()}
