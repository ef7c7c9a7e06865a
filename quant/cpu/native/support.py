"""Whether the kernels run on this machine: they are compiled, opened and tried.

Knows what to say where one of these fails; knows nothing about models.
"""

from __future__ import annotations

import platform
import re
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from quant.cpu.native import build
from quant.cpu.native.correctness import is_correct
from quant.cpu.native.library import NativeLibrary
from quant.cpu.switches import is_native_off
from quant.unsupported import Unsupported

NO_INSTRUCTIONS = "no instructions for products of int8"
"""The compiler's error for a CPU without them."""
_INSTALL = "install a C compiler (`sudo apt install gcc` on Debian and Ubuntu, `sudo dnf install gcc` on Fedora)"
_HEADERS = "install the headers of the C library (`sudo apt install libc6-dev` on Debian and Ubuntu)"
_NO_HEADER = re.compile(r"\.h: No such file|\.h' file not found")
"""GCC's words and Clang's: Debian's `gcc` only recommends the package with the headers, and images leave that out."""
_ANOTHER = "another compiler, named by `CC`, may do; `LOCALDIFF_CPU_NATIVE=off` hides this message"
_ELSEWHERE = f"`XDG_CACHE_HOME` may name a folder that has room and is not mounted `noexec`; {_ANOTHER}"


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
        remedy = _ELSEWHERE if isinstance(error, OSError) else _ANOTHER
        if _NO_HEADER.search(str(error)):
            remedy = _HEADERS
        return Unsupported(f"the native kernel cannot be compiled and opened ({error})", remedy)
    if not is_correct(library):
        return Unsupported("the native kernel computes wrong numbers here", _ANOTHER)
    return library


def _opened(command: Sequence[str]) -> NativeLibrary:
    try:
        return NativeLibrary(build.build_library(command, build.cache_dir()))
    except (OSError, RuntimeError):  # no home, or one that is not writable or runs no programs; not a compiler error
        with tempfile.TemporaryDirectory() as folder:
            return NativeLibrary(build.build_library(command, Path(folder)))  # stays open when its file is gone
