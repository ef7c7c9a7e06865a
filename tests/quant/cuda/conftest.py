"""No result of a kernel may depend on the order in which its programs run."""

from tests.gpu.kernels import programs_run_backwards

__all__ = ["programs_run_backwards"]
