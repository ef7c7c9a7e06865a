"""`python -m tests.bench.error_table [DIRECTORY]`: each codec's quantization error, and what rounding to bf16 adds.

Knows a few distributions, and reads a checkpoint's own weights where a directory is given; writes nothing. The
baseline is bitsandbytes' NF4 with its absolute maxima rounded to 16 bits, so that both sides store the same bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor

from quant.codecs import CODECS
from quant.codecs.codec import GROUP, SOURCE_DTYPES, squared_error
from quant.cuda.launch_arguments import byte_table
from quant.dtypes import HEADER_DTYPES
from quant.errors import QuantError
from quant.files.reader import SourceReader, row_slices
from quant.files.source import read_source
from quant.planning.plan import tensor_class

_WIDTH = 2816
_QUANTIZED = ("experts", "attention", "dense MLP", "embedding and head", "self-conditioning")


def absmax_nf4(weight: Tensor) -> Tensor:
    """bitsandbytes' NF4 of `[rows, in]`, decoded in fp32 with its scales rounded to bf16."""
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    codes, state = quantize_4bit(weight, blocksize=GROUP, quant_type="nf4")
    state.absmax = state.absmax.to(torch.bfloat16).float()
    state.dtype = torch.float32
    decoded: Tensor = dequantize_4bit(codes, state)
    return decoded


def from_bytes(weight: Tensor) -> Tensor:
    """nf4 of `[rows, in]` as an H100 decodes it from a table of bytes: levels rounded to bf16, then their products."""
    encoded = CODECS["nf4"].encode(weight)
    levels = byte_table(weight.device).view(torch.bfloat16).view(256, 2)[encoded.codes.int()]
    return (levels.view(*encoded.scales.shape, GROUP) * encoded.scales[..., None]).flatten(-2).float()


FORMATS: Mapping[str, Callable[[Tensor], Tensor]] = MappingProxyType(
    {
        "absmax NF4": absmax_nf4,
        "nf4": lambda weight: CODECS["nf4"].decode(CODECS["nf4"].encode(weight)),
        "int8": lambda weight: CODECS["int8"].decode(CODECS["int8"].encode(weight)),
        "nf4 in bf16": lambda weight: CODECS["nf4"].decode(CODECS["nf4"].encode(weight), torch.bfloat16).float(),
        "nf4 from bytes": from_bytes,
    }
)
"""Column → function that encodes weights and decodes them to fp32."""


def distributions(rows: int = 1024) -> Iterator[tuple[str, Tensor]]:
    """Names and bf16 weights `[rows, 2816]`, the same in every run."""
    generator = torch.Generator().manual_seed(0)
    shape = (rows, _WIDTH)
    normal = torch.randn(shape, generator=generator)
    yield "gaussian", normal.to(torch.bfloat16)
    chi = sum(torch.randn(shape, generator=generator).square() for _ in range(5))
    yield "Student-t, 5 degrees", (normal / (torch.as_tensor(chi) / 5).sqrt()).to(torch.bfloat16)
    uniform = torch.rand(shape, generator=generator) - 0.5
    yield "Laplace", (-uniform.sign() * torch.log1p(-2 * uniform.abs())).to(torch.bfloat16)
    outliers = torch.where(torch.rand(shape, generator=generator) < 1e-3, 8.0, 1.0)
    yield "gaussian, 0.1 % times 8", (normal * outliers).to(torch.bfloat16)


def checkpoint_weights(directory: Path) -> Iterator[tuple[str, Tensor]]:
    """Class of tensor and slices of rows of everything in a checkpoint that a recipe may quantize."""
    for file in read_source(directory):
        with SourceReader(file, directory / file.name) as reader:
            for tensor in file.tensors:
                label = tensor_class(tensor.name)
                if (
                    label in _QUANTIZED
                    and HEADER_DTYPES[tensor.dtype] in SOURCE_DTYPES
                    and not tensor.shape[-1] % GROUP
                ):
                    for part in row_slices(tensor.shape, tensor.itemsize):
                        yield label, reader.rows(tensor, part)


def measure(weights: Iterator[tuple[str, Tensor]]) -> dict[str, dict[str, float]]:
    """Relative RMSE in percent: label → format; weights of the same label are taken together."""
    sums: dict[str, dict[str, tuple[float, float]]] = {}
    for label, weight in weights:
        row = sums.setdefault(label, dict.fromkeys(FORMATS, (0.0, 0.0)))
        for name, there_and_back in FORMATS.items():
            squared, norm = squared_error(there_and_back(weight), weight)
            row[name] = (row[name][0] + squared, row[name][1] + norm)
    return {
        label: {name: 100 * (squared / norm) ** 0.5 for name, (squared, norm) in row.items()}
        for label, row in sums.items()
    }


def table(errors: Mapping[str, Mapping[str, float]]) -> str:
    """Markdown: relative RMSE in percent, and how much fitting the scale reduces it."""
    lines = ["| weights | absmax NF4 | `nf4` | fitted against absmax | `int8` |", "|---|---:|---:|---:|---:|"]
    for label, row in errors.items():
        change = 100 * (row["nf4"] / row["absmax NF4"] - 1)
        lines.append(
            f"| {label} | {row['absmax NF4']:.2f} % | {row['nf4']:.2f} % | {change:+.1f} % | {row['int8']:.3f} % |"
        )
    return "\n".join(lines)


def bf16_table(errors: Mapping[str, Mapping[str, float]]) -> str:
    """Markdown: relative RMSE in percent of nf4 in fp32, rounded to bf16 once, and from a table of bytes twice."""
    columns = ("nf4", "nf4 in bf16", "nf4 from bytes")
    lines = ["| weights | `nf4` in fp32 | in bf16 | in bf16, from a table of bytes |", "|---|---:|---:|---:|"]
    lines += [
        f"| {label} | {' | '.join(f'{row[column]:.3f} %' for column in columns)} |" for label, row in errors.items()
    ]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Print the tables of the distributions, or of a checkpoint's weights where one is named."""
    if len(arguments) > 1 or arguments[:1] in (["-h"], ["--help"]):
        print("usage: python -m tests.bench.error_table [DIRECTORY]", file=sys.stderr)
        return 2
    weights = checkpoint_weights(Path(arguments[0])) if arguments else distributions()
    try:
        errors = measure(weights)
        print(table(errors), bf16_table(errors), sep="\n\n")
    except QuantError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
