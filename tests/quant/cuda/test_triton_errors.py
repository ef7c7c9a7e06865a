"""What is said of errors of Triton and of kernels."""

from __future__ import annotations

import errno
import os

import pytest

from quant.cuda.parity import ParityError
from quant.cuda.triton_errors import failure_of, failure_of_triton


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT])
def test_a_folder_that_takes_no_compiled_kernels_is_named(code: int) -> None:
    error = OSError(code, os.strerror(code), "/.triton")
    for found in (failure_of(error, "linear"), failure_of_triton(error)):
        assert found.reason == f"Triton cannot keep its compiled kernels ({os.strerror(code)}: `/.triton`)"


def test_other_errors_of_files_are_not_about_that_folder_or_the_library() -> None:
    error = FileNotFoundError(errno.ENOENT, "No such file", "/x")
    assert failure_of(error).reason == "a kernel fails here (FileNotFoundError: [Errno 2] No such file: '/x')"
    assert failure_of_triton(error).reason == "Triton does not run here ([Errno 2] No such file: '/x')"


def test_wrong_numbers_are_no_failure() -> None:
    found = failure_of(ParityError("3 of 4 differ"), "linear")
    assert found.reason == "kernels of `linear` compute wrong numbers here (3 of 4 differ)"


def test_an_error_without_a_message_has_its_name() -> None:
    assert failure_of_triton(RuntimeError()).reason == "Triton does not run here (RuntimeError)"
