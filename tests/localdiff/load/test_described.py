"""A plan from headers alone equals that of the files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from localdiff.checkpoints.model_reference import DEMO_DIRECTORY
from localdiff.errors import WeightsError
from localdiff.load import StoredWeights, described_weights, open_weights, plan_memory
from localdiff.load.described import DescribedCheckpoint
from localdiff.load.memory_plan import MemoryPlan
from quant import MANIFEST_FILE
from quant.files.manifest import read_manifest
from quant.files.source import read_source
from tests.checkpoints.quantized import quantize


def described(directory: Path) -> StoredWeights:
    config = json.loads((directory / "config.json").read_text())
    tensors = [tensor for file in read_source(directory) for tensor in file.tensors]
    manifest = read_manifest(directory) if (directory / MANIFEST_FILE).exists() else None
    found = described_weights("owner/name", config, tensors, manifest)
    assert found is not None
    return found


def planned(weights: StoredWeights, dtype: torch.dtype) -> MemoryPlan:
    return plan_memory(weights, torch.device("cpu"), dtype, context=512)


@pytest.mark.parametrize("recipe", [None, "4bit", "int8"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_headers_give_the_plan_of_the_files(recipe: str | None, dtype: torch.dtype, tmp_path: Path) -> None:
    directory = DEMO_DIRECTORY if recipe is None else quantize(DEMO_DIRECTORY, tmp_path / "made", recipe)
    here, there = planned(open_weights(directory), dtype), planned(described(directory), dtype)
    assert there.demand == here.demand
    assert there.needed == here.needed
    assert there.placement == here.placement
    assert there.needed >= here.skeleton.nbytes > 0


def test_headers_that_lack_what_the_manifest_lists_are_refused_before_a_download(tmp_path: Path) -> None:
    directory = quantize(DEMO_DIRECTORY, tmp_path / "made", "4bit")
    config, manifest = json.loads((directory / "config.json").read_text()), read_manifest(directory)
    *tensors, last = (tensor for file in read_source(directory) for tensor in file.tensors)
    with pytest.raises(WeightsError, match=f"`owner/name` lacks `{last.name}`"):
        described_weights("owner/name", config, tensors, manifest)
    with pytest.raises(WeightsError, match=f"`{last.name}` is not stored as `{MANIFEST_FILE}` says"):
        described_weights("owner/name", config, [*tensors, replace(last, shape=(1, *last.shape))], manifest)


def test_shapes_that_only_the_bytes_tell_are_not_guessed() -> None:
    names = ("x.weight", "x.weight.absmax", "x.weight.quant_map", "x.weight.quant_state.bitsandbytes__nf4")
    (tensor, *_) = read_source(DEMO_DIRECTORY)[0].tensors
    assert described_weights("owner/name", {}, [replace(tensor, name=name) for name in names], None) is None


def test_bytes_that_are_not_here_are_not_made_up() -> None:
    (tensor, *_) = read_source(DEMO_DIRECTORY)[0].tensors
    with pytest.raises(AssertionError, match="are not here"):
        DescribedCheckpoint("owner/name", {}, [tensor]).tensor(tensor.name)
