"""bitsandbytes' CPU library: NF4 decoded by its vector code, to the same bits as our own decoder.

The shared library is loaded directly: importing its package takes seconds, and where a package `kernels` is installed
that import fetches code from the Hub. Its results are compared with `quant.codecs.nf4` before it is used; a library
that is missing, differs, or is too old to have the functions is not used.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from importlib import util
from pathlib import Path

import torch
from torch import Tensor

from quant.codecs.codec import GROUP, Encoded
from quant.codecs.nf4 import Nf4

SUFFIX = {"darwin": "dylib", "win32": "dll"}
FUNCTIONS = {torch.bfloat16: "cdequantize_blockwise_cpu_nf4_bf16", torch.float32: "cdequantize_blockwise_cpu_nf4_fp32"}
"""Versions from 0.49 on have them."""

_CHECKED_SHAPE = (48, 4 * GROUP)


class Nf4Library:
    """Decodes NF4 with groups of 64. Uses torch's OpenMP threads, if both share one runtime.

    Args:
        file: the shared library.

    Raises:
        OSError: it cannot be opened.
        AttributeError: it lacks a function.

    Attributes:
        file: as given.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        library = ctypes.CDLL(str(file))
        self._functions = {}
        for dtype, name in FUNCTIONS.items():
            function = getattr(library, name)
            function.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_longlong] * 3
            function.restype = None
            self._functions[dtype] = function

    def decoder(self, codes: Tensor, scales: Tensor, dtype: torch.dtype) -> Callable[[int], Tensor]:
        """A function that decodes matrix number n of a stack, always into the same memory.

        Args:
            codes: U8 `[n, out, in/2]`, contiguous, and kept by the caller.
            scales: bf16 `[n, out, in/64]`.
            dtype: of the result, bf16 or fp32.

        Raises:
            ValueError: a tensor has another shape or type, or is not contiguous.
        """
        if codes.dtype != torch.uint8 or not codes.is_contiguous():
            raise ValueError(f"codes {list(codes.shape)} of {codes.dtype} should be uint8, contiguous")
        if codes.shape[:-1] != scales.shape[:-1] or 2 * codes.shape[-1] != GROUP * scales.shape[-1]:
            raise ValueError(f"{codes.shape=} and {scales.shape=} do not belong together")
        out = torch.empty(*codes.shape[1:-1], 2 * codes.shape[-1], dtype=dtype)
        upcast = torch.empty(scales.shape[1:], dtype=torch.float32)
        # A pass decodes thousands of matrices: whatever stays the same is looked up once.
        function, (rows, columns) = self._functions[dtype], out.shape
        first, step = codes.data_ptr(), codes.stride(0)
        upcast_pointer, out_pointer = upcast.data_ptr(), out.data_ptr()

        def decode(number: int) -> Tensor:
            upcast.copy_(scales[number])
            function(first + number * step, upcast_pointer, out_pointer, GROUP, rows, columns)
            return out

        return decode


@cache
def nf4_library() -> Nf4Library | None:
    """The library of the installed bitsandbytes, or None where it cannot be used."""
    path = _path()
    if path is None:
        return None
    try:
        library = Nf4Library(path)
    except (OSError, AttributeError):
        return None
    return library if decodes_alike(library) else None


def decodes_alike(library: Nf4Library) -> bool:
    """Whether a library decodes to the same bits as `quant.codecs.nf4`, with scales of either sign."""
    generator = torch.Generator().manual_seed(0)
    rows, columns = _CHECKED_SHAPE
    codes = torch.randint(0, 256, (1, rows, columns // 2), dtype=torch.uint8, generator=generator)
    scales = torch.randn(1, rows, columns // GROUP, dtype=torch.float32, generator=generator).to(torch.bfloat16)
    for dtype in FUNCTIONS:
        decoded = library.decoder(codes, scales, dtype)(0)
        if not torch.equal(decoded, Nf4().decode(Encoded(codes=codes, scales=scales), dtype)[0]):
            return False
    return True


def _path() -> Path | None:
    spec = util.find_spec("bitsandbytes")
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]) / f"libbitsandbytes_cpu.{SUFFIX.get(sys.platform, 'so')}"
    return path if path.is_file() else None
