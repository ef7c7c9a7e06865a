"""Compiles the kernel for the processor of this machine, with the system's C compiler, and keeps the result.

Knows compilers, flags and files; knows nothing about what the kernel computes.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

SOURCES = tuple(Path(__file__).with_name(name) for name in ("product.c", "avx512.h", "avx2.h"))
FLAGS = ("-std=gnu11", "-O3", "-march=native", "-ffp-contract=off", "-shared", "-fPIC")
"""Without contraction a number is rounded as the expression says, by every compiler alike."""
NAMES = ("cc", "gcc", "clang")
SECONDS = 120
"""A compiler that takes longer does not come to an end; as a rule it takes one."""


class BuildError(Exception):
    """The compiler made no library; the message is the first error that it printed."""


def compiler(env: Mapping[str, str] = os.environ) -> tuple[str, ...] | None:
    """The C compiler of this machine, a command: what `CC` says, or the first that is installed."""
    commands = [shlex.split(env["CC"])] if env.get("CC", "").strip() else [[name] for name in NAMES]
    for name, *arguments in commands:
        if found := shutil.which(name):
            return found, *arguments
    return None


def built(compiler: Sequence[str], folder: Path, flags: Sequence[str] = FLAGS) -> Path:
    """The library, compiled in a folder unless it is there already from the same sources, compiler and processor.

    Raises:
        BuildError: it does not compile.
        OSError: the folder cannot be written, or the compiler does not start.
    """
    path = folder / f"product-{_fingerprint(compiler, flags)}.so"
    if path.is_file():
        return path
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as beside:  # of the same file system, so that it can be renamed
        made = Path(beside, path.name)
        _compile([*compiler, *flags, str(SOURCES[0]), "-o", str(made)])
        made.replace(path)  # whole, whoever else is compiling
    return path


def cache_dir(env: Mapping[str, str] = os.environ) -> Path:
    """Where compiled libraries are kept: `$XDG_CACHE_HOME/localdiff`, by default `~/.cache/localdiff`."""
    base = Path(env.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "localdiff"


def _compile(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        raise BuildError(f"it took more than {SECONDS} s") from None
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line]
        raise BuildError((errors or lines or [f"exit code {done.returncode}"])[0])


def _fingerprint(compiler: Sequence[str], flags: Sequence[str]) -> str:
    """Of all that the library depends on. A home directory may be shared by machines with different processors."""
    version = os.stat(compiler[0])
    parts = [*compiler, str(version.st_size), str(version.st_mtime_ns), *flags, sys.platform, platform.machine()]
    parts.append(_processor())
    found = hashlib.sha256("\n".join(parts).encode())
    for source in SOURCES:
        found.update(source.read_bytes())
    return found.hexdigest()[:16]


def _processor() -> str:
    """What this machine says of its processor, instructions included."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    said = {line.partition(":")[0].strip(): line for line in reversed(lines)}
    return "\n".join(said.get(name, "") for name in ("model name", "cpu family", "model", "flags"))
