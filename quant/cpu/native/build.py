"""Compiles the kernels for the CPU of this machine, with the system's C compiler, and keeps the result.

Knows compilers, flags and files; knows nothing about what they compute.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

SOURCES = tuple(sorted(Path(__file__).parent.glob("*.[ch]")))
FLAGS = ("-std=gnu11", "-O3", "-march=native", "-ffp-contract=off", "-shared", "-fPIC")
"""Without contraction, all compilers round numbers alike, as the expressions say."""
NAMES = ("cc", "gcc", "clang")
TIMEOUT = 90
"""Time limit of the compiler in seconds. It usually takes three; on a machine that is busy with other work, thirty.

It is shorter than the time limit of `localdiff doctor` for a check, which can then say that the compiler hangs."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors that a linker reports for a full folder, and that are not due to the sources."""
MAX_QUOTE = 200
"""Maximum number of characters that are quoted from a compiler's output."""


class BuildError(Exception):
    """There is no library; the message is the first error of the compiler, or why there is no compiler."""


def compiler(env: Mapping[str, str] = os.environ) -> tuple[str, ...] | None:
    """The C compiler of this machine, a command: what `CC` says, or the first that is installed.

    Raises:
        BuildError: `CC` names no program.
    """
    if named := env.get("CC", "").strip():
        try:
            name, *arguments = shlex.split(named)
        except ValueError:  # an open quote, or nothing between quotes
            raise BuildError(f"`CC` is not a valid command (`{named}`)") from None
        program = shutil.which(name)
        if program is None:
            raise BuildError(f"`CC` names `{name}`, and there is no such program")
        return program, *arguments
    return next(((program,) for name in NAMES if (program := shutil.which(name))), None)


def build_library(command: Sequence[str], folder: Path, flags: Sequence[str] = FLAGS) -> Path:
    """The library, compiled in a folder unless it is there already from the same sources, compiler and CPU.

    Raises:
        BuildError: it does not compile.
        OSError: the folder is not ours alone, cannot be written or is full, or the compiler does not start.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_ours(folder):  # its files are executed
        raise PermissionError(f"others may write to `{folder}`")
    options = (*_defined(), *flags)
    path = folder / f"kernel-{_fingerprint(command, options)}.so"
    if not _is_intact(path):
        with tempfile.TemporaryDirectory(dir=folder) as beside:  # on the same file system, for the rename
            unfinished = Path(beside, path.name)
            sources = [str(path) for path in SOURCES if path.suffix == ".c"]
            _compile([*command, *options, *sources, "-lm", "-o", str(unfinished)])
            _seal(unfinished)
            unfinished.replace(path)  # atomic, even if others are compiling
    return path


def cache_dir(env: Mapping[str, str] = os.environ) -> Path:
    """Where compiled libraries are kept: `$XDG_CACHE_HOME/localdiff`, by default `~/.cache/localdiff`."""
    base = Path(env.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "localdiff"


def _defined() -> tuple[str, ...]:
    """What the compiler does not know about the CPU: whether its instructions for bf16 are slow (`words.h`).

    No CPU reports that, so its vendor decides: an Intel Xeon multiplied half as fast in bf16 as in fp32, AMD's Zen 4
    about twice as fast.
    """
    return ("-DBF16_IS_SLOW",) if "GenuineIntel" in _cpu_info() else ()


def _is_ours(path: Path) -> bool:
    """Whether only this user may write to a file or folder."""
    status = path.stat()
    return (
        sys.platform != "win32" and status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def _seal(path: Path) -> None:
    """Closes a library to others, and appends its hash for `_is_intact`; the system's loader ignores it."""
    path.chmod(0o700)
    with path.open("ab") as file:
        file.write(hashlib.sha256(path.read_bytes()).digest())
        file.flush()
        os.fsync(file.fileno())


def _is_intact(path: Path) -> bool:
    """Whether a library exists as it was made: a truncated one may crash the system's loader."""
    try:
        content = path.read_bytes() if _is_ours(path) else b""
    except OSError:
        return False
    size = hashlib.sha256().digest_size
    return len(content) > size and hashlib.sha256(content[:-size]).digest() == content[-size:]


def _compile(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            # Errors in English, for the searches below, and temporary files where there is room for the library.
            env={**os.environ, "LC_ALL": "C", "TMPDIR": str(Path(command[-1]).parent)},
            timeout=TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        raise BuildError(f"it took more than {TIMEOUT} s") from None
    if done.returncode != 0:
        for code in _FULL:
            if os.strerror(code) in done.stderr:
                raise OSError(code, os.strerror(code), command[-1])
        raise BuildError(_reason(done.stderr, done.returncode)[:MAX_QUOTE])
    if not Path(command[-1]).is_file():
        raise BuildError("it wrote no file")


def _reason(stderr: str, returncode: int) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    last = f"killed by signal {-returncode}" if returncode < 0 else f"exit code {returncode}"
    return [*(line for line in lines if "error" in line), *lines, last][0]


def _fingerprint(command: Sequence[str], options: Sequence[str]) -> str:
    """A hash of all that the library depends on. A home directory may be shared by machines with different CPUs."""
    version = os.stat(command[0])
    parts = [*command, str(version.st_size), str(version.st_mtime_ns), *options, _cpu_info()]
    fingerprint = hashlib.sha256("\n".join(parts).encode())
    for source in SOURCES:
        fingerprint.update(source.read_bytes())
    return fingerprint.hexdigest()[:16]


def _cpu_info() -> str:
    """What Linux reports about the CPU, instruction sets included."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    lines_by_name = {line.partition(":")[0].strip(): line for line in reversed(lines)}
    names = ("vendor_id", "model name", "cpu family", "model", "flags")
    return "\n".join(lines_by_name.get(name, "") for name in names)
