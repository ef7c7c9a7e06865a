"""The kernel in each form that this CPU runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from quant.cpu.native import build
from quant.cpu.native.library import NativeLibrary

_NARROW = ("-mavx2", "-mfma")
FORMS = {
    "of this machine": (),
    "AVX-512 VNNI": ("-march=native", "-mno-amx-int8"),
    "AVX2": _NARROW,
    # The same instruction in the encoding of AVX-512, which CPUs run that do not know the one of AVX-VNNI.
    "AVX-VNNI": (
        *_NARROW,
        "-mavx512vl",
        "-mavx512vnni",
        "-D__AVXVNNI__",
        "-D_mm256_dpbusd_avx_epi32=_mm256_dpbusd_epi32",
    ),
}
NEEDS = {"of this machine": "", "AVX-512 VNNI": "amx_int8", "AVX2": "avx2", "AVX-VNNI": "avx512_vnni"}


@pytest.fixture(scope="session", params=FORMS)
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> NativeLibrary:
    return _built(request.param, tmp_path_factory)


@pytest.fixture(scope="session")
def with_and_without_tiles(tmp_path_factory: pytest.TempPathFactory) -> tuple[NativeLibrary, NativeLibrary]:
    without = _built("AVX-512 VNNI", tmp_path_factory)
    return _built("of this machine", tmp_path_factory), without


def _built(form: str, folders: pytest.TempPathFactory) -> NativeLibrary:
    cpu = Path("/proc/cpuinfo").read_text()
    if NEEDS[form] not in cpu:
        pytest.skip(f"this CPU has no {NEEDS[form]}")
    if form == "AVX2" and "avx512_vnni" not in cpu and "avx_vnni" not in cpu:
        pytest.skip("this CPU has nothing beyond it, and so it is the form of this machine")
    compiler = build.compiler({})
    assert compiler is not None
    flags = [flag for flag in build.FLAGS if not (FORMS[form] and flag == "-march=native")]
    made = NativeLibrary(build.build_library(compiler, folders.mktemp("native"), [*flags, *FORMS[form]]))
    assert form in ("of this machine", made.instructions)
    return made
