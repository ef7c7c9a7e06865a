"""Writes the values that `localdiff doctor` compares with: `python -m localdiff.doctor.write_values`.

Run it again when the demo model or a codec has changed. Products are computed in fp64 from the definition of the
codecs, not by the modules that they check; the denoise step is computed on the CPU by the engine, which the tests
compare with the reference implementation.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from localdiff.doctor.denoise import first_step
from localdiff.doctor.product import PRODUCTS, Product, inputs, stored_weights
from localdiff.doctor.values import VALUES_FILE, DenoiseValues, Values, demo_digest
from localdiff.model_reference import DEMO_DIRECTORY
from quant.codecs.codec import GROUP, Encoded
from quant.codecs.nf4 import LEVELS


def write_values(path: Path = VALUES_FILE) -> Values:
    """Compute and store the values."""
    step = first_step("cpu").step
    values = Values(
        products={product.name: tuple(_rounded(reference_output(product).flatten())) for product in PRODUCTS},
        denoise=DenoiseValues(
            digest=demo_digest(DEMO_DIRECTORY),
            argmax_ids=step.argmax_ids,
            entropies=tuple(round(entropy, 5) for entropy in step.entropies),
        ),
    )
    path.write_text(values.to_text(), encoding="utf-8")
    return values


def reference_output(product: Product) -> Tensor:
    """The right output of a product, in fp64."""
    x, index, weight = (tensor.double() if tensor.is_floating_point() else tensor for tensor in inputs())
    weights = {name: decoded(product.schemes[name], encoded) for name, encoded in stored_weights(product).items()}
    if "weight" in weights:
        return x @ weights["weight"].T
    rows = []
    for row, experts, shares in zip(x, index.tolist(), weight, strict=True):
        output = torch.zeros_like(row)
        for expert, share in zip(experts, shares, strict=True):
            gate, up = (weights["gate_up_proj"][expert] @ row).chunk(2)
            output += share * (weights["down_proj"][expert] @ (F.gelu(gate, approximate="tanh") * up))
        rows.append(output)
    return torch.stack(rows)


def decoded(codec: str, encoded: Encoded) -> Tensor:
    """Weights decoded from codes and scales, in fp64, as `docs/format.md` defines them."""
    if codec == "nf4":
        pairs = torch.stack([encoded.codes >> 4, encoded.codes & 15], dim=-1).flatten(-2)
        units = torch.tensor(LEVELS, dtype=torch.float64)[pairs.long()]
    else:
        units = encoded.codes.double()
    return units * encoded.scales.double().repeat_interleave(GROUP, dim=-1)


def _rounded(values: Tensor) -> list[float]:
    return [float(f"{value:.5g}") for value in values.tolist()]


if __name__ == "__main__":
    written = write_values()
    print(
        f"{VALUES_FILE}: {len(written.products)} products, {len(written.denoise.argmax_ids)} positions", file=sys.stderr
    )
