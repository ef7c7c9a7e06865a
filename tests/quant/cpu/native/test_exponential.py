"""The exponential that kernels share, in each width of vectors, against fp64."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor

from quant.cpu.native import build
from tests.models.native import needs_native


@needs_native
@pytest.mark.parametrize("narrow", [False, True], ids=["widest vectors", "AVX2"])
def test_it_is_as_exact_as_its_source_says(tmp_path: Path, narrow: bool) -> None:
    """Every 4,096th float from -87.3, below which results are no longer normal floats, to 87.3; and the ends."""
    compiler = build.compiler({})
    assert compiler is not None
    flags = [flag for flag in build.FLAGS if not (narrow and flag == "-march=native")]
    driver = tmp_path / "driver.c"
    driver.write_text(
        '#include <stdint.h>\n#include "vectors.h"\n#include "exponential.h"\n'
        "void exponentials(float *x, int64_t count) {\n"
        "    for (int64_t i = 0; i < count; i += LANES) store_real(x + i, exponential(load_real(x + i)));\n}\n"
    )
    sources = build.SOURCES[0].parent
    narrowing = ["-mavx2", "-mfma"] if narrow else []
    command = [*compiler, *flags, *narrowing, "-I", str(sources), str(driver), "-o", str(tmp_path / "driver.so")]
    subprocess.run(command, check=True)
    exponentials = ctypes.CDLL(str(tmp_path / "driver.so")).exponentials
    exponentials.argtypes = [ctypes.c_void_p, ctypes.c_int64]

    def exp(x: Tensor) -> Tensor:
        y = torch.cat((x, torch.zeros(-len(x) % 16)))
        exponentials(y.data_ptr(), len(y))
        return y[: len(x)]

    sizes = torch.arange(0x00800000, 0x42AE999A, 4096, dtype=torch.int32).view(torch.float32)
    x = torch.cat((-sizes, sizes))
    exact = x.double().exp()
    assert float(((exp(x).double() - exact).abs() / exact).max()) < 1.7e-7
    ends = torch.tensor([0.0, -0.0, -88.0, -110.0, -3.4e38, -torch.inf, torch.nan])
    assert torch.equal(exp(ends)[:-1], torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0, 0.0]))
    assert exp(ends)[-1].isnan()
