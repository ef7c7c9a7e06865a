"""Compiled layer ops against plain ones, with their gradients. It needs a C++ compiler and most of a minute."""

from __future__ import annotations

import copy
import shutil

import pytest
import torch

from localdiff.demo.training.architecture import config_json
from localdiff.demo.training.trainer import compiled_layer_ops, initialise
from localdiff.model.batched import batched_logits
from localdiff.model.config import ModelConfig
from localdiff.model.layer_ops import set_layer_ops


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compiled_layer_ops_compute_what_plain_ones_do() -> None:
    plain = initialise(ModelConfig.from_dict(config_json(64, 6)), seed=0)
    compiled = copy.deepcopy(plain)
    set_layer_ops(compiled, compiled_layer_ops())
    for rows, length in ((3, 8), (2, 13)):  # the second shape goes through the same programs
        ids = torch.arange(rows * length).view(rows, length) % 64
        counts = torch.full((rows,), length)
        expected, found = (batched_logits(model, ids, counts, ids, None) for model in (plain, compiled))
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
        for model, logits in ((plain, expected), (compiled, found)):
            model.zero_grad()
            logits.square().sum().backward()
        for (name, a), b in zip(plain.named_parameters(), compiled.parameters(), strict=True):
            if a.grad is not None:
                assert b.grad is not None, name
                torch.testing.assert_close(b.grad, a.grad, atol=1e-3, rtol=1e-3)
