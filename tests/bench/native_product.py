"""`python -m tests.bench.native_product`: what the experts of a layer would gain from a small native kernel.

Compiles `native_product.cpp` with the machine's C++ compiler for the machine itself, holds its result against the
decoded weights times the same int8 rows, and times it beside the way that the product takes now: all 128 experts of a
layer of the released size, 16 rows each. The kernel is a measurement for `docs/decisions/0016-native-kernel.md` and no
part of the package.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from localdiff.hardware import cpu_name
from quant.codecs.codec import GROUP
from quant.codecs.nf4 import LEVELS
from quant.cpu.bitsandbytes_library import nf4_library
from tests.bench.expert_decode import EXPERTS, REPEATS, ROWS, SHAPES, as_it_is_done, milliseconds, random_experts

SOURCE = Path(__file__).with_name("native_product.cpp")
FLAGS = ("-O3", "-march=native", "-fopenmp", "-shared", "-fPIC")


def compiled(folder: Path) -> ctypes.CDLL:
    """The kernel as a library in `folder`.

    Raises:
        SystemExit: there is no compiler, or the processor has no AVX-512 VNNI.
    """
    compiler = os.environ.get("CXX") or shutil.which("c++")
    if compiler is None:
        raise SystemExit("no C++ compiler: set CXX or install one")
    library = folder / "native_product.so"
    made = subprocess.run([compiler, *FLAGS, str(SOURCE), "-o", str(library)], capture_output=True, text=True)
    if made.returncode != 0:
        raise SystemExit(f"{SOURCE.name} does not compile for this processor:\n{made.stderr}")
    return ctypes.CDLL(str(library))


def level_table() -> Tensor:
    """U8 [16]: the NF4 levels in steps of 1/127, moved up by 128."""
    return (torch.tensor(LEVELS) * 127).round().add(128).to(torch.uint8)


def arranged(rows: Tensor) -> tuple[Tensor, Tensor]:
    """What the kernel reads of int8 rows [E, R, in].

    Returns:
        [E, in/64, R, 64] with the even columns of a group first; fp32 [E, in/64, 16], the sums of a row's groups.
    """
    experts, count, width = rows.shape
    groups = rows.view(experts, count, width // GROUP, GROUP).transpose(1, 2)
    sums = torch.zeros(experts, width // GROUP, ROWS)
    sums[:, :, :count] = groups.sum(dim=-1)
    return torch.cat((groups[..., 0::2], groups[..., 1::2]), dim=-1).contiguous(), sums


def native_product(library: ctypes.CDLL, codes: Tensor, scales: Tensor, rows: Tensor) -> Callable[[], Tensor]:
    """A function that multiplies all experts [E, out, in] with int8 rows [E, R, in]; it gives fp32 [E, out, R]."""
    experts, count, width = rows.shape
    activations, sums = arranged(rows)
    table, result = level_table(), torch.empty(experts, codes.shape[1], count)
    tensors = [codes.contiguous(), scales.float().contiguous(), activations, sums, table]
    sizes = [ctypes.c_int(number) for number in (experts, codes.shape[1], width, count)]

    def multiply() -> Tensor:
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        if library.experts_product(*pointers, *sizes, ctypes.c_void_p(result.data_ptr())) != 0:
            raise ValueError(f"{count=} should be 4, 8 or 16")
        return result

    return multiply


def expected(codes: Tensor, scales: Tensor, rows: Tensor) -> Tensor:
    """The same product of one expert in fp64, from the levels that the table holds."""
    levels = level_table().double() - 128
    high, low = (codes >> 4).long(), (codes & 15).long()
    weight = torch.stack((levels[high], levels[low]), dim=-1).flatten(-2)
    weight = weight * scales.double().repeat_interleave(GROUP, dim=-1)
    return weight @ rows.double().mT


def main() -> None:
    """Check, measure and print."""
    decoding = nf4_library()
    if decoding is None:
        raise SystemExit("bitsandbytes' CPU library is not there")
    with tempfile.TemporaryDirectory() as folder:
        library = compiled(Path(folder))
    print(f"{cpu_name()}, {torch.get_num_threads()} threads; ms for {EXPERTS} experts of {ROWS} rows")
    print(f"{'':14}{'as it is':>10}{'native':>10}{'largest error':>16}   (least of {REPEATS})")
    for name, (out, width) in SHAPES.items():
        experts = random_experts(out, width)
        rows = torch.randint(-127, 128, (EXPERTS, ROWS, width), dtype=torch.int8)
        multiply = native_product(library, experts.codes, experts.scales, rows)
        wanted = expected(experts.codes[-1], experts.scales[-1], rows[-1])
        error = float((multiply()[-1] - wanted).abs().max() / wanted.abs().max())
        now = milliseconds(as_it_is_done(experts, decoding))
        print(f"{name:14}{now:10.0f}{milliseconds(multiply):10.0f}{error:16.1e}")


if __name__ == "__main__":
    main()
