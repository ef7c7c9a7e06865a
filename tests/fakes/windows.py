"""Windows, as far as this tree's modules can tell: `python -m tests.fakes.windows python -m MODULE ARGUMENTS…`.

Modules of `localdiff` and `quant` import what Python has on Windows, not what it has here: `sys.platform` and
`os.name`, no `termios` and the like, no signals of job control, `select` for sockets alone, locks of `msvcrt`, and for
every terminal a console whose escape codes are off and which takes bytes for characters of cp437. In all modules, the
library's too, an open file cannot be renamed, replaced or deleted, nothing replaces a directory, and pipes are in
cp1252. Paths stay those of this system.

It changes the whole process, for good. Variables set what differs between machines, and where to log:

    FAKE_CONSOLE=old     escape codes cannot be switched on
    FAKE_BUSY=N       the first N replacements of a file fail, as if somebody else had it open
    FAKE_MODES=FILE   gets a line for each mode that the console is set to
"""

from __future__ import annotations

import builtins
import ctypes
import ctypes.wintypes
import errno
import fcntl
import io
import os
import runpy
import select
import signal
import stat
import sys
import tty
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

MISSING_MODULES = frozenset({"curses", "fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "termios", "tty"})
MISSING = {
    "os": """chown fchmod fchown fork forkpty getegid geteuid getgid getgroups getloadavg getpgid getpgrp getsid
        getuid killpg mkfifo nice openpty posix_fadvise posix_fallocate pread preadv pwrite pwritev
        sched_getaffinity sched_setaffinity sched_yield sendfile set_blocking setpgid setpgrp setsid statvfs
        fstatvfs sync sysconf tcgetpgrp tcsetpgrp ttyname uname wait wait3 wait4 waitid WIFEXITED WIFSIGNALED
        WIFSTOPPED O_CLOEXEC O_DIRECTORY O_NOCTTY O_NOFOLLOW O_NONBLOCK O_SYNC""",
    "signal": """SIGALRM SIGBUS SIGCHLD SIGCONT SIGHUP SIGIO SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGTTIN SIGTTOU
        SIGUSR1 SIGUSR2 SIGWINCH SIG_BLOCK SIG_SETMASK SIG_UNBLOCK alarm pause pthread_kill pthread_sigmask
        setitimer sigpending sigwait""",
    "select": """epoll poll""",
}
BREAK = signal.SIGTTIN
"""The signal that stands in for `signal.SIGBREAK`."""


class Disguised(ModuleType):
    """A module as it looks on Windows: some names replaced, some missing, the rest from the real module."""

    def __init__(self, real: ModuleType, others: Mapping[str, Any]) -> None:
        super().__init__(real.__name__)
        self.__dict__.update(_real=real, _missing=frozenset(MISSING.get(real.__name__, "").split()), **others)

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__["_missing"]:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r} on Windows", name=name, obj=self)
        return getattr(self.__dict__["_real"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_real"], name, value)


class Kernel32:
    """The functions of kernel32.dll that are called: a console for every terminal, 8 GiB of memory, 3 of them free."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._old = env.get("FAKE_CONSOLE") == "old"
        self._log = env.get("FAKE_MODES")
        self._mode = 0x0003

    def GetConsoleMode(self, handle: Any, mode: Any) -> int:
        if not os.isatty(handle.value or 0):
            return 0
        mode._obj.value = self._mode
        return 1

    def SetConsoleMode(self, _handle: Any, mode: Any) -> int:
        if self._old:
            return 0
        self._mode = mode.value
        if self._log:
            with open(self._log, "a", encoding="utf-8") as log:
                log.write(f"{mode.value:#06x}\n")
        return 1

    def GlobalMemoryStatusEx(self, status: Any) -> int:
        assert status._obj.dwLength == ctypes.sizeof(status._obj) == 64
        status._obj.ullTotalPhys, status._obj.ullAvailPhys = 8 << 30, 3 << 30
        return 1


class _Pipe(io.FileIO):
    """A pipe whose errors are those of Windows when nobody reads it."""

    def write(self, data: Any, /) -> int:  # type: ignore[override]
        try:
            return super().write(data)
        except BrokenPipeError:
            raise OSError(errno.EINVAL, "Invalid argument") from None


class Msvcrt(ModuleType):
    """The functions of `msvcrt` that are called; the keyboard sends a byte for each part of a key."""

    LK_NBLCK = 2
    _is_read = False

    def kbhit(self) -> bool:
        if not self._is_read:
            tty.setcbreak(0)
            self._is_read = True
        return bool(select.select([0], [], [], 0)[0])

    def getwch(self) -> str:
        return os.read(0, 1).decode("latin-1")

    def get_osfhandle(self, descriptor: int) -> int:
        os.fstat(descriptor)
        return descriptor

    def locking(self, descriptor: int, _mode: int, _count: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PermissionError(errno.EACCES, "Permission denied") from None


def install(env: Mapping[str, str] = os.environ) -> None:
    """Disguise this process as one on Windows; modules of the tree that are already loaded stay as they are."""
    kernel = Kernel32(env)
    disguised = {
        "os": Disguised(os, {"name": "nt", "write": _write, "access": _access}),
        "sys": Disguised(sys, {"platform": "win32"}),
        "signal": Disguised(signal, {"SIGBREAK": BREAK, "CTRL_C_EVENT": 0, "CTRL_BREAK_EVENT": 1}),
        "select": Disguised(select, {"select": _select}),
        "ctypes": Disguised(ctypes, {"WinDLL": lambda _name, **_options: kernel}),
        "msvcrt": Msvcrt("msvcrt"),
    }
    real = builtins.__import__

    def disguise(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        importer = (globals or {}).get("__name__", "")
        if level or importer.split(".")[0] not in ("localdiff", "quant"):
            return real(name, globals, locals, fromlist, level)
        if name in MISSING_MODULES:
            raise ModuleNotFoundError(f"No module named {name!r} on Windows", name=name)
        return disguised[name] if name in disguised else real(name, globals, locals, fromlist, level)

    builtins.__import__ = disguise
    _keep_open_files(int(env.get("FAKE_BUSY", "0")))
    if isinstance(sys.stdin, io.TextIOWrapper) and not sys.stdin.isatty():
        sys.stdin.reconfigure(encoding="cp1252", errors="strict")
    for name, errors in (("stdout", "strict"), ("stderr", "backslashreplace")):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and not stream.isatty():
            pipe = io.BufferedWriter(_Pipe(stream.fileno(), "w", closefd=False))
            buffering = stream.line_buffering
            text = io.TextIOWrapper(pipe, "cp1252", errors, newline="\r\n", line_buffering=buffering)
            setattr(sys, name, text)
            setattr(sys, f"__{name}__", text)


def _select(readable: Any, writable: Any, _exceptional: Any, _timeout: float | None = None) -> Any:
    raise OSError(errno.ENOTSOCK, "An operation was attempted on something that is not a socket", None, 10038)


def _write(descriptor: int, data: bytes) -> int:
    """Bytes written to a console are read in its code page; only Python's own streams write characters there."""
    os.write(descriptor, bytes(data).decode("cp437").encode() if os.isatty(descriptor) else data)
    return len(data)


def _access(path: Any, mode: int) -> bool:
    """`os.access`, but a read-only file cannot be written, whoever asks."""
    return os.access(path, mode) and not (mode & os.W_OK and _is_protected(path))


def _is_protected(path: Any) -> bool:
    return os.path.isfile(path) and not os.stat(path).st_mode & stat.S_IWRITE


def _keep_open_files(busy: int) -> None:
    """Refuse to rename, replace and delete files that this process has open or mapped, and folders that contain them.

    A read-only file cannot be deleted either.

    Args:
        busy: refuse that many replacements first.
    """
    left = [busy]

    def refusing(real: Callable[..., Any], *, replaces: bool) -> Callable[..., Any]:
        def operation(*paths: Any, **options: Any) -> Any:
            if replaces and left[0] > 0:
                left[0] -= 1
                raise PermissionError(errno.EACCES, "Access is denied", os.fspath(paths[0]), 5, os.fspath(paths[1]))
            if replaces and os.path.isdir(paths[1]):
                raise PermissionError(errno.EACCES, "Access is denied", os.fspath(paths[0]), 5, os.fspath(paths[1]))
            if len(paths) == 1 and _is_protected(paths[0]):
                raise PermissionError(errno.EACCES, "Access is denied", os.fspath(paths[0]), 5)
            if not options and (held := in_use(*paths)):
                raise PermissionError(
                    errno.EACCES, f"The process cannot access the file ({held})", os.fspath(paths[0]), 32
                )
            return real(*paths, **options)

        return operation

    os.replace = refusing(os.replace, replaces=True)
    os.rename = refusing(os.rename, replaces=False)
    os.remove = refusing(os.remove, replaces=False)
    os.unlink = refusing(os.unlink, replaces=False)


def in_use(*paths: Any) -> str | None:
    """A file at or below one of these paths that this process has open or mapped."""
    places = [Path(os.path.realpath(os.fspath(path))) for path in paths]
    for name in _open_files():
        if any(Path(name).is_relative_to(place) for place in places):
            return name
    return None


def _open_files() -> set[str]:
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:  # the descriptor of this very listing
            continue
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        found |= {parts[5] for line in maps if len(parts := line.rstrip("\n").split(maxsplit=5)) == 6}
    return found


def main() -> None:
    install()
    at = sys.argv.index("-m")
    del sys.argv[: at + 1]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
