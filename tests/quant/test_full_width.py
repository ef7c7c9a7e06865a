"""A fused expert tensor at its released size: memory stays bounded, and the account is right."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from localdiff.bench.step.memory import STATUS, memory_use
from quant.files.manifest import read_manifest
from quant.jobs.pool import available_workers
from quant.jobs.run import run
from quant.planning.plan import working_bytes
from tests.checkpoints.full_width import write_full_width
from tests.checkpoints.quantized import make_job
from tests.models.held import held_by_manifest


@pytest.mark.slow
@pytest.mark.skipif(not STATUS.exists(), reason="asks the kernel for the anonymous memory of this process")
def test_memory_is_that_of_a_few_slices(tmp_path: Path) -> None:
    source = tmp_path / "model"
    shapes = write_full_width(source, layers=1, only="experts.gate_up_proj")
    cpu = torch.device("cpu")
    workers = available_workers(cpu)
    job = make_job(source, tmp_path / "out", "4bit-small", workers=workers)
    before = memory_use(cpu).anonymous or 0
    peak = max(memory_use(cpu).anonymous or 0 for _ in run(job))
    assert list(shapes.values()) == [(128, 1408, 2816)]
    assert peak - before < 2 * working_bytes(workers) < 4e9
    manifest = read_manifest(tmp_path / "out")
    stored = sum(tensor.nbytes for tensor in held_by_manifest(manifest))
    on_disk = sum((tmp_path / "out" / shard).stat().st_size for shard in manifest.shards)
    assert stored == pytest.approx(on_disk, rel=1e-5)
