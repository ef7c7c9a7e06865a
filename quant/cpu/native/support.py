"""Whether the kernel runs on this machine: it is compiled, opened and tried on small products.

Knows what is tried and what to say where that fails; knows nothing about models.
"""

from __future__ import annotations

import platform
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from ...codecs import CODECS
from ...codecs.codec import GROUP, Encoded
from ...codecs.nf4 import LEVELS
from ...unsupported import Unsupported
from ..switches import is_native_off
from . import build
from .library import STEPS, NativeLibrary

NO_INSTRUCTIONS = "no instructions for products of int8"
"""The compiler's error for a CPU without them."""
LIMIT = 1e-5
"""Maximum relative difference from the same sums in fp64."""

_INSTALL = "install a C compiler (`sudo apt install gcc` on Debian and Ubuntu, `sudo dnf install gcc` on Fedora)"
_ANOTHER = "another compiler, named by `CC`, may do; `LOCALDIFF_CPU_NATIVE=off` hides this message"


def native_library() -> NativeLibrary | Unsupported:
    """The kernel, or why it does not run here.

    Raises:
        SwitchError: an environment variable has an invalid value.
    """
    return Unsupported("the native kernel is switched off", "") if is_native_off() else _tried()


@cache
def _tried() -> NativeLibrary | Unsupported:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return Unsupported("the native kernel is for x86-64 CPUs under Linux", "")
    try:
        command = build.compiler()
        if command is None:
            return Unsupported("there is no C compiler for the native kernel", _INSTALL)
        library = _opened(command)
    except (build.BuildError, OSError, AttributeError) as error:
        if NO_INSTRUCTIONS in str(error):
            return Unsupported("this CPU has neither AVX2 nor AVX-512", "")
        return Unsupported(f"the native kernel cannot be compiled and opened ({error})", _ANOTHER)
    if not all(is_correct(library, codec) for codec in CODECS):
        return Unsupported("the native kernel computes wrong numbers here", _ANOTHER)
    return library


def _opened(command: Sequence[str]) -> NativeLibrary:
    try:
        return NativeLibrary(build.build_library(command, build.cache_dir()))
    except (build.BuildError, OSError, RuntimeError):  # no home, or one that takes no file, or runs none
        with tempfile.TemporaryDirectory() as folder:
            return NativeLibrary(build.build_library(command, Path(folder)))  # stays open when its file is gone


def is_correct(library: NativeLibrary, codec: str) -> bool:
    """Whether products of both codecs are the integer sums that they should be."""
    generator = torch.Generator().manual_seed(0)
    number, out, width, rows = 2, 2 * library.lanes, 2 * GROUP, 11
    encoded = random_weights(codec, (number, out, width), generator)
    x = torch.randn(rows, width, generator=generator)
    chosen = torch.arange(2 * rows) % rows
    result = library.multiply(library.rows(x, nf4=codec == "nf4"), encoded, chosen, [rows, rows])
    expected = (rounded(x) @ decoded(codec, encoded).mT).flatten(0, 1)
    return bool((result.double() - expected).norm() <= LIMIT * expected.norm())


def random_weights(codec: str, shape: tuple[int, int, int], generator: torch.Generator) -> Encoded:
    """Any codes and scales of both signs."""
    number, out, width = shape
    of_scales = torch.randn(number, out, width // GROUP, generator=generator)
    if codec == "nf4":
        codes = torch.randint(0, 256, (number, out, width // 2), dtype=torch.uint8, generator=generator)
    else:
        codes = torch.randint(-STEPS, STEPS + 1, shape, dtype=torch.int8, generator=generator)
    return Encoded(codes=codes, scales=of_scales.to(torch.bfloat16))


def rounded(x: Tensor) -> Tensor:
    """Rows [R, in] as the kernel rounds them, in fp64; the kernel takes groups below 1e-34 for zeros."""
    groups = x.float().view(*x.shape[:-1], -1, GROUP)
    scales = groups.abs().amax(dim=-1, keepdim=True) / STEPS
    codes = (groups * torch.where(scales > 0, 1 / scales, 0.0)).round()
    return (codes.double() * scales.double()).view(x.shape)


def decoded(codec: str, encoded: Encoded) -> Tensor:
    """Weights [E, out, in] as the kernel decodes them, in fp64."""
    scales = encoded.scales.double().repeat_interleave(GROUP, dim=-1)
    if codec == "int8":
        return encoded.codes.double() * scales
    levels = (torch.tensor(LEVELS) * STEPS).round().double() / STEPS
    pairs = torch.stack((levels[(encoded.codes >> 4).long()], levels[(encoded.codes & 15).long()]), dim=-1)
    return pairs.flatten(-2) * scales
