"""Writes a trained demo model as a checkpoint in the released layout, in bf16, which transformers can load, too."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from safetensors.torch import save_file
from tokenizers import Tokenizer

from localdiff.checkpoint_files import CHAT_TEMPLATE, CONFIG, GENERATION_CONFIG, TOKENIZER, TOKENIZER_CONFIG
from localdiff.demo.training.architecture import config_json, generation_config_json
from localdiff.demo.training.rendering import END_OF_TURN
from localdiff.load.matching import checkpoint_name
from localdiff.model.diffusion_gemma import DiffusionGemma
from quant.files.source import SINGLE_FILE

VOCABULARY_FILES = (TOKENIZER, TOKENIZER_CONFIG, CHAT_TEMPLATE)


def export(model: DiffusionGemma, vocabulary: Path, directory: Path) -> None:
    """Writes weights, configuration and the vocabulary files of folder `vocabulary` to `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    _write_weights(model, directory / SINGLE_FILE)
    tokenizer = Tokenizer.from_file(str(vocabulary / TOKENIZER))
    end_of_turn = tokenizer.get_vocab()[END_OF_TURN]
    _write_json(directory / CONFIG, config_json(tokenizer.get_vocab_size(), end_of_turn))
    _write_json(directory / GENERATION_CONFIG, generation_config_json(end_of_turn))
    for name in VOCABULARY_FILES:
        shutil.copyfile(vocabulary / name, directory / name)


def _write_weights(model: DiffusionGemma, path: Path) -> None:
    tensors = {checkpoint_name(name): tensor.bfloat16().contiguous() for name, tensor in model.state_dict().items()}
    partial = path.with_suffix(".partial")
    save_file(tensors, partial, metadata={"format": "pt"})
    partial.chmod(0o644)  # safetensors makes files private, and this one is shipped
    partial.replace(path)


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
