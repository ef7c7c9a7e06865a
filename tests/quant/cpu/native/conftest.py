"""The kernels in each form that this CPU runs."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

from quant.cpu.native import build
from quant.cpu.native.attention import NativeAttention
from quant.cpu.native.library import NativeLibrary

_NARROW = ("-mavx2", "-mfma")
FORMS = {
    "of this machine": (),
    "AVX-512 VNNI": ("-march=native", "-mno-amx-int8"),
    "AVX2": _NARROW,
    # The same instruction in its AVX-512 encoding, for CPUs that lack the AVX-VNNI one.
    "AVX-VNNI": (
        *_NARROW,
        "-mavx512vl",
        "-mavx512vnni",
        "-D__AVXVNNI__",
        "-D_mm256_dpbusd_avx_epi32=_mm256_dpbusd_epi32",
    ),
}
NEEDS = {"of this machine": "", "AVX-512 VNNI": "amx_int8", "AVX2": "avx2", "AVX-VNNI": "avx512_vnni"}

ATTENTION_FORMS = {
    "AVX-512 BF16": ("avx512_bf16", ("-march=native", "-UBF16_IS_SLOW")),
    "AVX-512 FMA": ("avx512bw", ("-march=native", "-DBF16_IS_SLOW")),
    "AVX2 FMA": ("avx2", _NARROW),
}
"""Name of the form → what the CPU needs, and flags."""


@pytest.fixture(scope="session", params=ATTENTION_FORMS)
def attention(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> NativeAttention:
    needed, chosen = ATTENTION_FORMS[request.param]
    compiler = build.compiler({})
    if compiler is None or needed not in Path("/proc/cpuinfo").read_text():
        pytest.skip(f"no compiler, or a CPU without {needed}")
    made = tmp_path_factory.mktemp("attention") / "attention.so"
    source = next(path for path in build.SOURCES if path.name == "attention.c")
    flags = [flag for flag in build.FLAGS if flag != "-march=native"]
    subprocess.run([*compiler, *flags, *chosen, str(source), "-lm", "-o", str(made)], check=True)
    kernel = NativeAttention(ctypes.CDLL(str(made)))
    assert kernel.instructions == request.param
    return kernel


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
