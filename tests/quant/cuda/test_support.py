"""The trial that decides whether kernels are used at all, in Triton's interpreter."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from quant.cuda import linear, support, triton_errors
from tests.gpu.kernels import DEVICE, needs_triton

pytestmark = [needs_triton, pytest.mark.filterwarnings("ignore:divide by zero")]


def trial() -> str | None:
    unsupported = support._trial(DEVICE)
    return None if unsupported is None else unsupported.reason


CARD = torch.device("cuda", 0)


def test_kernels_are_used_whatever_is_torch_s_default_dtype(
    another_default_dtype: Callable[[], AbstractContextManager[None]],
) -> None:
    with another_default_dtype():
        assert trial() is None


@pytest.mark.parametrize(
    ("capability", "hip", "triton", "reason"),
    [
        ((8, 0), None, True, None),
        ((12, 0), None, True, None),
        ((7, 5), None, True, "Some card is older than compute capability 8.0"),
        ((9, 0), None, False, "Triton is not installed"),
        ((9, 0), "6.4", True, "the kernels need an NVIDIA GPU"),
    ],
)
def test_what_kernels_need_is_looked_at_before_one_is_tried(
    capability: tuple[int, int], hip: str | None, triton: bool, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Some card")
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(support.importlib.util, "find_spec", lambda _: object() if triton else None)
    monkeypatch.setattr(support, "_trial", lambda *_, **__: None)
    unsupported = support._tried.__wrapped__(CARD)
    assert (None if unsupported is None else unsupported.reason) == reason


@pytest.mark.parametrize(
    ("capability", "version", "is_used"),
    [
        ((9, 0), "3.4.0", False),
        ((9, 0), "3.5.1+git1234", False),
        ((9, 0), "3.6.0", True),
        ((9, 0), "3.10.0.post20", True),
        ((8, 9), "3.4.0", True),
        ((12, 0), "3.5.1", True),
    ],
)
def test_a_triton_that_compiles_races_for_hopper_is_not_used_there(
    capability: tuple[int, int], version: str, is_used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With such a version `make kernels-ptx` shows the race itself."""
    import triton

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Some card")
    monkeypatch.setattr(triton, "__version__", version)
    monkeypatch.setattr(support, "_computes_exactly", lambda _: True)
    unsupported = support._tried.__wrapped__(CARD)
    assert (unsupported is None) == is_used
    if unsupported is not None:
        assert unsupported.reason == f"Triton {version[:3]} compiles matrix products wrongly for Some card"
        assert "torch 2.10" in unsupported.remedy


def _kernel(x, n):  # type: ignore[no-untyped-def]
    """The smallest kernel that Triton compiles."""


@pytest.mark.skipif(sys.platform == "win32", reason="the assembler is a script of a shell here")
@pytest.mark.parametrize(
    "said",
    [
        "ptxas fatal   : Value 'sm_999' is not defined for option 'gpu-name'",
        "ptxas info    : 0 bytes gmem\nptxas /tmp/x.ptx, line 9; error   : Value 'sm_999' is not defined for option "
        "'gpu-name'",
    ],
    ids=["at once", "of a line"],
)
def test_an_assembler_that_refuses_its_input_is_quoted_and_the_input_is_not(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Triton prints both to stdout."""
    jit, compiler = pytest.importorskip("triton.runtime.jit"), pytest.importorskip("triton.compiler")
    backends = pytest.importorskip("triton.backends.compiler")
    usual = pytest.importorskip("triton.backends.nvidia.compiler")
    assembler = tmp_path / "ptxas"
    version = 'case "$*" in *--version*) echo "release 13.1, V13.1.80"; exit ;; esac'
    assembler.write_text(f"#!/bin/sh\n{version}\ncat >&2 <<END\n{said}\nEND\nexit 1\n")
    assembler.chmod(0o755)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(assembler))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(usual, "print", print, raising=False)
    usual.get_ptxas_version.cache_clear()

    def compiled(_: torch.device) -> bool:
        source = compiler.ASTSource(jit.JITFunction(_kernel), {"x": "*fp32", "n": "i32"}, {}, {})
        compiler.compile(source, target=backends.GPUTarget("cuda", 86, 32))
        return True

    monkeypatch.setattr(support, "_computes_exactly", compiled)
    reason = trial()
    usual.get_ptxas_version.cache_clear()
    assert reason is not None and "failed with error code 1: Value 'sm_999' is not defined" in reason
    assert capfd.readouterr() == ("", "")


def test_of_what_triton_raises_the_reason_is_quoted_and_no_advice_for_who_writes_kernels() -> None:
    errors = pytest.importorskip("triton.runtime.errors")
    compiler = pytest.importorskip("triton.compiler.errors")
    source = "def kernel(x):\n    y = x\n"
    too_large = errors.OutOfResources(150_000, 101_376, "shared memory")
    refused = compiler.CompilationError(source, ast.parse(source).body[0], "no such name")
    assert triton_errors.failure_of(too_large, "attention").reason == (
        "a kernel of `attention` fails here (OutOfResources: out of resource: shared memory, Required: 150000, "
        "Hardware limit: 101376)"
    )
    assert triton_errors.failure_of(refused).reason == "a kernel fails here (CompilationError: at 1:0: no such name)"


def test_a_processor_has_no_kernels_to_try() -> None:
    unsupported = support._tried.__wrapped__(torch.device("cpu"))
    assert unsupported is not None and unsupported.reason == "there is no CUDA device `cpu`"


def test_wrong_rows_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "_rounds_rows", lambda _: False)
    assert trial() == "Triton computes wrong numbers here"


def test_a_level_of_nf4_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = linear.levels

    def shuffled(device: torch.device, activations: linear.Activations) -> torch.Tensor:
        return right(device, activations).roll(1)

    monkeypatch.setattr(linear, "levels", shuffled)
    assert trial() == "Triton computes wrong numbers here"


def test_an_int8_weight_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    times = linear.Weight.times

    def other(weight: linear.Weight, x: torch.Tensor) -> torch.Tensor:
        made = times(weight, x)
        return made if weight.is_nf4 else made.nextafter(torch.full_like(made, 9.0))

    monkeypatch.setattr(linear.Weight, "times", other)
    assert trial() == "Triton computes wrong numbers here"


def test_what_the_compiler_says_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_codec: str, _device: torch.device) -> bool:
        raise RuntimeError("no C compiler\nwith a long trace")

    monkeypatch.setattr(support, "_decodes", broken)
    assert trial() == "Triton does not run here (no C compiler)"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Failed to find C compiler. Please specify via CC environment variable or …"),
        subprocess.CalledProcessError(1, ["/usr/bin/gcc", "/tmp/main.c", "-O3", "-shared", "-fPIC"]),
    ],
    ids=["compiler", "headers"],
)
@pytest.mark.parametrize("has_headers", [True, False])
def test_what_has_to_be_installed_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception, has_headers: bool
) -> None:
    """Triton builds its launcher with the system's C compiler and `Python.h`, which not every system has."""
    if has_headers:
        (tmp_path / "Python.h").touch()
    monkeypatch.setattr(triton_errors.sysconfig, "get_path", lambda *_: tmp_path)

    def broken(_: torch.device) -> bool:
        raise error

    monkeypatch.setattr(support, "_rounds_rows", broken)
    unsupported = support._trial(DEVICE)
    assert unsupported is not None
    assert unsupported.reason == "Triton cannot build its launcher here"
    major, minor = sys.version_info[:2]
    assert ("`sudo apt install gcc`" if has_headers else f"gcc python{major}.{minor}-dev`") in unsupported.remedy


@pytest.mark.parametrize(
    ("listed", "error"), [(b"", AssertionError), (None, FileNotFoundError)], ids=["not listed", "no ldconfig"]
)
def test_where_the_library_of_the_driver_is_has_to_be_told(
    monkeypatch: pytest.MonkeyPatch, listed: bytes | None, error: type[Exception]
) -> None:
    """The message names the places where Triton itself looks for it."""
    driver = pytest.importorskip("triton.backends.nvidia.driver")

    def check_output(command: list[str]) -> bytes:
        if listed is None:
            raise FileNotFoundError(2, "No such file or directory", command[0])
        return listed

    def looking(_: torch.device) -> bool:
        with pytest.raises(error) as raised:
            getattr(driver.libcuda_dirs, "__wrapped__", driver.libcuda_dirs)()
        raise raised.value

    monkeypatch.delenv("TRITON_LIBCUDA_PATH", raising=False)
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.setattr(driver.subprocess, "check_output", check_output)
    monkeypatch.setattr(support, "_rounds_rows", looking)
    unsupported = support._trial(DEVICE)
    assert unsupported is not None and "libcuda.so.1" in unsupported.reason
    assert "`sudo ldconfig`" in unsupported.remedy and "`TRITON_LIBCUDA_PATH`" in unsupported.remedy


def test_a_launcher_that_a_file_system_does_not_run_is_no_fault_of_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message is Linux's for a shared library on a file system that is mounted with `noexec`."""
    library = "/home/me/.triton/cache/AB/cuda_utils.so"

    def barred(_: torch.device) -> bool:
        raise ImportError(f"{library}: failed to map segment from shared object", path=library)

    monkeypatch.setattr(support, "_rounds_rows", barred)
    unsupported = support._trial(DEVICE)
    assert unsupported is not None
    assert unsupported.reason.startswith("Triton cannot load what it has compiled")
    assert "noexec" in unsupported.remedy and "TRITON_CACHE_DIR" in unsupported.remedy


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("Triton Error [CUDA]: out of memory")]
)
def test_a_gpu_without_room_is_tried_again(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """An engine that was loaded while others filled the GPU does not cost the next one its kernels."""
    tries, forgotten = [error, None], []

    def computes_exactly(_: torch.device) -> bool:
        if (error := tries.pop(0)) is not None:
            raise error
        return True

    monkeypatch.setattr(support, "_tried", cache(support._tried.__wrapped__))
    monkeypatch.setattr(support, "_computes_exactly", computes_exactly)
    monkeypatch.setattr(support, "forget_unloaded_kernels", lambda: forgotten.append(len(tries)))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 6))
    unsupported = support.why_unsupported(CARD)
    assert unsupported is not None and unsupported.reason == "there is no memory to try a kernel in"
    assert support.why_unsupported(CARD) is None
    assert support.why_unsupported(CARD) is None and not tries, "what was found is kept"
    assert forgotten == [1], "between the two"


def test_a_kernel_that_found_no_room_is_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With Triton's own class, and a driver that is out of memory once."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import compiler
    from triton.runtime import jit

    found: list[object] = [RuntimeError("Triton Error [CUDA]: out of memory"), (1, 2, 3, 0, 1024)]

    def load_binary(*_: object) -> object:
        if isinstance(one := found.pop(0), Exception):
            raise one
        return one

    driver = SimpleNamespace(
        get_current_device=lambda: 0,
        get_current_target=lambda: GPUTarget("cuda", 86, 32),
        launcher_cls=lambda *_: lambda *given: given,
        utils=SimpleNamespace(load_binary=load_binary),
    )
    monkeypatch.setattr(compiler, "driver", SimpleNamespace(active=driver))
    monkeypatch.setattr(compiler, "max_shared_mem", lambda _: 101_376)

    def compiled() -> compiler.CompiledKernel:
        kernel = object.__new__(compiler.CompiledKernel)
        kernel.module = kernel.function = kernel._run = kernel.src = kernel.kernel = kernel.hash = None
        kernel.name, kernel.metadata_group = "kernel", {}
        kernel.metadata = SimpleNamespace(shared=0, num_warps=4, warp_size=32)
        return kernel

    function, kernel, other = object.__new__(jit.JITFunction), compiled(), SimpleNamespace(function=5)
    function.device_caches = {0: ({"new": kernel, "loaded": other}, "further things")}
    monkeypatch.setitem(sys.modules, "some.package.new_kernels", SimpleNamespace(kernel=function, COLUMNS=64))
    with pytest.raises(RuntimeError, match="out of memory"):
        kernel.run(kernel.function)
    assert kernel.run(kernel.function) == (None,), "Triton launches it without any machine code"
    support.forget_unloaded_kernels()
    assert function.device_caches[0][0] == {"loaded": other}
    kernel = compiled()  # as if loaded from its file
    assert kernel.run is not None and kernel.function == 2 and not found
    kernel.module = None  # otherwise Triton 3.8 and later would unload it


def test_a_gpu_that_a_kernel_broke_is_no_matter_of_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an illegal access every CUDA call fails, even the plain path's."""

    def broken(_: torch.device) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(support, "_computes_exactly", broken)
    monkeypatch.setattr(torch.cuda, "synchronize", broken)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        support._trial(CARD)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermissionError(13, "Permission denied", "/.triton"), "Permission denied: `/.triton`"),
        (
            OSError(30, "Read-only file system", "/home/me/.triton/cache/AB"),
            "Read-only file system: `/home/me/.triton/cache/AB`",
        ),
        (OSError(28, "No space left on device"), "No space left on device"),
    ],
)
@pytest.mark.parametrize("when", ["in the trial", "later"])
def test_compiled_kernels_that_cannot_be_kept_are_no_fault_of_versions(
    when: str, error: OSError, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home that cannot be written, like that of a container's user without one, and a full disk."""

    def broken(_: torch.device) -> bool:
        raise error

    if when == "later":
        monkeypatch.setattr(support, "_failed", {})
        support.exclude(DEVICE, triton_errors.failure_of(error))
        unsupported = support.why_unsupported(DEVICE)
    else:
        monkeypatch.setattr(support, "_rounds_rows", broken)
        unsupported = support._trial(DEVICE)
    assert unsupported is not None
    assert unsupported.reason == f"Triton cannot keep its compiled kernels ({words})"
    assert "TRITON_CACHE_DIR" in unsupported.remedy
