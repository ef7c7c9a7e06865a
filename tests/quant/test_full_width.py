"""A fused expert tensor at its released size: memory stays bounded, and the account is right."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from quant.files.manifest import read_manifest
from quant.jobs.pool import available_workers
from quant.jobs.run import run
from quant.planning.plan import working_bytes
from tests.checkpoints.full_width import write_full_width
from tests.checkpoints.quantized import make_job
from tests.models.held import held_by_manifest
from tests.models.process_memory import anonymous_bytes, needs_status


@pytest.mark.slow
@needs_status
def test_memory_is_that_of_a_few_slices(tmp_path: Path) -> None:
    source = tmp_path / "model"
    shapes = write_full_width(source, layers=1, only="experts.gate_up_proj")
    workers = available_workers(torch.device("cpu"))
    job = make_job(source, tmp_path / "out", "4bit-small", workers=workers)
    before = anonymous_bytes()
    peak = max(anonymous_bytes() for _ in run(job))
    assert list(shapes.values()) == [(128, 1408, 2816)]
    assert peak - before < 2 * working_bytes(workers) < 4e9
    manifest = read_manifest(tmp_path / "out")
    stored = sum(tensor.nbytes for tensor in held_by_manifest(manifest))
    on_disk = sum((tmp_path / "out" / shard).stat().st_size for shard in manifest.shards)
    assert stored == pytest.approx(on_disk, rel=1e-5)
