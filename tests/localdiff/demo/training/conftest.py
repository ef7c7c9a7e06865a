"""The demo vocabulary, built once for the tests of this directory."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from localdiff.demo.training.rendering import load_vocabulary
from localdiff.demo.training.turns import Render
from localdiff.demo.training.vocabulary import write_vocabulary


@pytest.fixture(scope="session")
def demo_vocabulary_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("vocabulary")
    write_vocabulary(directory)
    return directory


@pytest.fixture(scope="session")
def demo_vocabulary(demo_vocabulary_directory: Path) -> tuple[Tokenizer, Render]:
    return load_vocabulary(demo_vocabulary_directory)
