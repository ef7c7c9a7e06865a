"""The errors that a user can meet: one sentence, a hint, an exit code.

Knows wording and exit codes; knows nothing about where an error is raised. Messages follow one form: a single sentence
without a final period, things to type in back-ticks, and a separate `hint` that says what to do next.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial

INTERRUPTED = 130
"""Exit code of a command that the user stopped, or said no to: 128 and SIGINT, as shells have it."""


class LocaldiffError(Exception):
    """Base of every error that is shown as a sentence instead of a traceback.

    Attributes:
        message: one sentence, no final period.
        hint: what the user can do about it, or None.
        exit_code: the status of the process.
    """

    exit_code: int = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message  # those who pass it on may have reworded it

    @property
    def hint(self) -> str | None:
        """As above; a traceback shows it as a note below the message."""
        return self._hint

    @hint.setter
    def hint(self, hint: str | None) -> None:
        self._hint = hint
        self.__notes__ = [] if hint is None else [f"hint: {hint}"]


class UsageError(LocaldiffError):
    """What the user typed, or gave as a prompt, cannot be used."""

    exit_code = 2


class ArgumentError(UsageError):
    """A value that an argument cannot take, or that it cannot take beside another.

    Its message has `steps=0`, as in Python. The command line, which knows what was typed, has it say `--steps 0`.

    Args:
        form: the message, with `{steps}` where the argument and its value belong.
        hint: as for all errors.
        values: name → value of every argument in `form`.
    """

    def __init__(self, form: str, hint: str | None = None, **values: object) -> None:
        self._form = form
        self._names: dict[str, str] = {}
        self._values = values
        super().__init__(self._worded(_as_in_python), hint)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled with its form: a process pool raises it anew, and a value may hold braces."""
        return partial(type(self), self._form, None, **self._values), (), self.__dict__

    @property
    def values(self) -> dict[str, object]:
        """Name → value of every argument in the message."""
        return {self._names.get(name, name): value for name, value in self._values.items()}

    def say(self, wording: Callable[[str, object], str]) -> None:
        """Has the message show each argument in other words, made of its name and its value."""
        self.message = self._worded(wording)

    def rename(self, names: Mapping[str, str]) -> None:
        """Has arguments go by other names, in the message too."""
        self._names.update(names)
        self.say(_as_in_python)

    def _worded(self, wording: Callable[[str, object], str]) -> str:
        return self._form.format(
            **{name: wording(self._names.get(name, name), value) for name, value in self._values.items()}
        )


def _as_in_python(name: str, value: object) -> str:
    return f"{name}={value!r}"


class ContextError(UsageError):
    """A prompt that leaves no room for an answer."""


class WeightsError(LocaldiffError):
    """Weights are missing, unreadable, or belong to another model."""

    exit_code = 3


class ResourceError(LocaldiffError):
    """A device is missing or fails, or there is too little memory or disk space."""

    exit_code = 4


class TraceError(LocaldiffError):
    """A trace is damaged, was changed, or has a version that this program does not know."""

    exit_code = 5


def kind_of(value: object) -> str:
    """The type of a value that is of the wrong one, with its article."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIO' else 'a'} `{name}`"


def one_line(error: BaseException) -> str:
    """The message of an error whose text may come from a downloaded file: one printable line without a period.

    What the system says has neither its number nor the path, which our own messages name.
    """
    words = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
    text = "".join(c if c.isprintable() else " " for c in without_password(words))
    return " ".join(text.split())[:200].rstrip(".")


def without_password(text: str) -> str:
    """A text with `****` for the name and the password in each address, as of a mirror or a proxy that wants them."""
    return re.sub(r"(?<=://)[^\s/]*@", "****@", text)


def print_traceback(error: BaseException) -> None:
    """Where an error comes from, on stderr, without a password of an address."""
    print(without_password("".join(traceback.format_exception(error))), end="", file=sys.stderr)


_ALLOCATIONS = (
    "DefaultCPUAllocator",
    "alloc_cpu",
    "not enough memory",
    "out of memory",
    "STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate",
    os.strerror(errno.ENOMEM),
)
"""Messages of torch's allocators that are out of memory; on a CPU they raise a plain RuntimeError. cuBLAS takes memory
of its own with the first matmul, and has its own words for it. The system's are those of a file that cannot be mapped
because of a limit (`ulimit -v`)."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of Python or torch means out of memory; does not import torch."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _ALLOCATIONS)


_NO_THREAD = "can't start new thread"
"""Python's error beyond a limit on processes, which threads are for the system, or on memory."""


def out_of_resources(error: BaseException) -> ResourceError | None:
    """What the user is told where memory or threads have run out; None for any other error."""
    if is_out_of_memory(error):
        return ResourceError(
            "out of memory",
            "close other programs that use the device, lower `--context`, or use a smaller model or another device",
        )
    if isinstance(error, RuntimeError) and str(error) == _NO_THREAD:
        return ResourceError(
            "no further thread may be started here",
            "raise the limit (`ulimit -u`, `ulimit -v`; of a container, `--pids-limit`), or end other programs of this "
            "user",
        )
    return None


_FAILURES = ("CUDA error:", "CUDA unknown error", "Triton Error [CUDA]")
"""How messages begin where CUDA fails in a call of torch's libraries, at its start, and in a launch of Triton's."""


def gpu_failure(error: BaseException) -> str | None:
    """What is said of a GPU that failed, in a line; None for any other error. Does not import torch."""
    words = str(error).strip().partition("\n")[0]
    is_of_cuda = type(error).__name__ == "AcceleratorError" or words.startswith(_FAILURES)
    return words if isinstance(error, RuntimeError) and is_of_cuda else None


def busy_gpu(words: str) -> str | None:
    """What helps where a GPU failed in these words because it lets in no further program; None for any other."""
    if "busy or unavailable" not in words:
        return None
    return (
        "another program may have the GPU to itself: `nvidia-smi` shows which, and the compute mode; "
        "`sudo nvidia-smi -c DEFAULT` lets programs share it, `--device cpu` avoids it"
    )


_kept: list[BaseException] = []


def keep_what_failed(error: BaseException) -> None:
    """Keeps what the frames of an error hold, if a GPU failed: freeing it would abort the process.

    Once an access was illegal every call of CUDA fails; so does the one with which torch frees page-locked memory that
    a GPU has read, in a place from which no exception can be raised.
    """
    if gpu_failure(error) is not None and not is_out_of_memory(error):
        _kept.append(error)


def broken_package(error: BaseException) -> tuple[str, str, str] | None:
    """The package of others that cannot be imported, why, in a line, and what helps; None for any other error.

    A library that cannot be loaded has the name of a module without its package, as `_C` of torch. numpy, which torch
    imports, has a page of advice instead of the reason, which is the cause of that error.
    """
    if not isinstance(error, ImportError):
        return None
    if isinstance(error.__cause__, ImportError):
        return broken_package(error.__cause__)
    folder = re.search(r"(?:site|dist)-packages[/\\](\w+)", error.path or "")
    package = folder[1] if folder else (error.name or "torch").split(".")[0]
    if package in ("localdiff", "quant"):
        return None
    advice = f"`{sys.executable} -m pip install --force-reinstall {package}` installs it again"
    if "failed to map segment" in str(error):  # words of glibc, whatever the reason
        advice = "raise the limit on memory (`ulimit -v`), or install it on a disk that is not mounted with `noexec`"
    if package in sys.stdlib_module_names:
        advice = f"it is a part of Python that `{sys.executable}` lacks, or cannot load here: use another Python"
    return package, str(error).strip().partition("\n")[0], advice
