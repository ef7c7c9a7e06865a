"""The exported checkpoint: released layout, the same numbers, readable by localdiff and by transformers."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
import torch

from localdiff.demo.evaluate import evaluate
from localdiff.demo.training.architecture import config_json
from localdiff.demo.training.export import export
from localdiff.demo.training.trainer import initialise
from localdiff.demo.training.vocabulary import VOCABULARY_SIZE
from localdiff.engine import Engine
from localdiff.load.checkpoint import Checkpoint
from localdiff.model.config import ModelConfig
from localdiff.options import GenerateOptions
from tests.models.loaded import network_of
from tests.models.reference import Reference


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, demo_vocabulary_directory: Path) -> Path:
    """An untrained demo model, exported."""
    folder = tmp_path_factory.mktemp("demo")
    model = initialise(ModelConfig.from_dict(config_json(VOCABULARY_SIZE, 6)), seed=0)
    with torch.no_grad():
        for layer in model.layers:
            layer.encoder_layer_scalar.fill_(0.5)
    export(model, demo_vocabulary_directory, folder)
    return folder


def test_export_keeps_every_weight_rounded_to_bf16(exported: Path) -> None:
    loaded = network_of(exported)
    expected = initialise(ModelConfig.from_dict(config_json(VOCABULARY_SIZE, 6)), seed=0).state_dict()
    for name, tensor in loaded.state_dict().items():
        if name.endswith("encoder_layer_scalar"):
            assert tensor.item() == 0.5
        else:
            assert torch.equal(tensor, expected[name].bfloat16().float()), name


def test_export_uses_the_released_names(exported: Path) -> None:
    names = set(Checkpoint(exported).names())
    assert "model.encoder.language_model.layers.0.layer_scalar" in names
    assert "model.decoder.layers.2.experts.gate_up_proj" in names
    assert not any("lm_head" in name for name in names)
    config = json.loads((exported / "config.json").read_text())
    assert "global_head_dim" in config["text_config"]
    assert sum(file.stat().st_size for file in exported.iterdir()) < 12e6


def test_export_leaves_files_that_others_may_read(exported: Path) -> None:
    assert all(file.stat().st_mode & 0o044 == 0o044 for file in exported.iterdir())


def test_transformers_loads_the_export_and_gives_the_same_logits(exported: Path) -> None:
    reference = Reference(exported)
    model = network_of(exported)
    config = model.config
    prompt = torch.arange(10, 40)
    canvas = torch.randint(VOCABULARY_SIZE, (config.canvas_length,), generator=torch.Generator().manual_seed(0))
    from localdiff.model.cache import KVCache

    cache = KVCache(config, 64, torch.float32, torch.device("cpu"))
    with torch.no_grad():
        model.encode(prompt, cache)
        ours = model.denoise(canvas, cache)
        assert config.softcap is not None
        theirs = reference.logits(canvas, reference.encode(prompt))
    torch.testing.assert_close(torch.tanh(ours / config.softcap) * config.softcap, theirs, atol=1e-4, rtol=0)


def test_evaluation_counts_what_an_untrained_model_does(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # An untrained model never ends a turn.
    monkeypatch.setattr("localdiff.demo.evaluate.GenerateOptions", partial(GenerateOptions, max_tokens=96))
    engine = Engine.load(str(exported), device="cpu", dtype="fp32")
    result = evaluate(engine, "add", prompts=1, seeds=(0,))
    assert result.runs == 1
    assert result.accuracy == 0.0
    assert 1 <= result.steps <= 48
    assert 0.0 <= result.converged <= 1.0
