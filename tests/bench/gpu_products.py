"""Single products on a card, in the shapes of the released model: a layer's experts, a linear layer, the embedding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch
from torch import Tensor, nn

from quant.codecs import CODECS
from quant.cuda.embedding import CudaEmbedding
from quant.cuda.experts import CudaExperts
from quant.cuda.linear import CudaLinear
from quant.cuda.tiles import Activations
from quant.modules import QuantEmbedding, QuantExperts, QuantLinear, QuantTensor
from tests.bench.gpu_clock import REPEATS, clocked
from tests.bench.gpu_results import Results

Ways: TypeAlias = Mapping[str, Callable[[], Tensor]]

STEP_PRODUCTS = {
    "queries, keys, values": (2816, 8192),
    "gate and up": (2816, 4224),
    "output projection": (4096, 2816),
    "down projection": (2112, 2816),
    "head": (2816, 262_144),
    "soft embedding": (262_144, 2816),
}
"""Name → inputs and outputs; queries, keys and values are those of a sliding layer."""
ROWS, TOP_K, EXPERTS, WIDTH, INNER, OUT, VOCAB_SIZE = 256, 8, 128, 2816, 704, 4096, 262_144
DTYPE = torch.bfloat16
SCALE = 0.001
"""The scale of all random codes: products of rows around 1 are then around 1 to 10."""


def clock(part: str, name: str, work: Callable[[], object], results: Results) -> None:
    """Clocks some work, and records and prints the figures."""
    taken = clocked(work)
    print(f"  {name:48} {taken}", flush=True)
    results.add({"part": part, "name": name}, microseconds=taken.median, low=taken.low, high=taken.high)


def random_rows(rows: int, width: int, device: torch.device) -> Tensor:
    """Activations [rows, width] in bf16."""
    return torch.randn(rows, width, device=device, dtype=DTYPE)


def random_codes(codec: str, *shape: int, device: torch.device) -> QuantTensor:
    """A stored weight of uniformly random codes, with one scale."""
    with torch.device("meta"):
        tensor = QuantTensor(CODECS[codec], shape)
    (low, high), scale = ((-127, 128), SCALE) if codec == "int8" else ((0, 256), 127 * SCALE)
    tensor.codes = torch.randint(low, high, tensor.codes.shape, device=device, dtype=tensor.codes.dtype)
    tensor.scales = torch.full(tensor.scales.shape, scale, device=device, dtype=tensor.scales.dtype)
    return tensor


def random_routing(rows: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The 8 experts [rows, 8] that each row goes to, uniformly random, and their weights."""
    weights, ids = torch.rand(rows, EXPERTS, device=device).topk(TOP_K, dim=-1)
    return ids, weights


def random_experts(codec: str, device: torch.device) -> QuantExperts:
    """The experts of a layer."""
    with torch.device("meta"):
        experts = QuantExperts(
            gate_up_codec=CODECS[codec], down_codec=CODECS[codec], experts=EXPERTS, width=WIDTH, inner=INNER
        )
    experts.gate_up_proj = random_codes(codec, EXPERTS, 2 * INNER, WIDTH, device=device)
    experts.down_proj = random_codes(codec, EXPERTS, WIDTH, INNER, device=device)
    return experts


def published_experts(device: torch.device) -> nn.Module:
    """The experts of a layer as published, in bf16."""
    experts = nn.Module()
    for name, shape in (("gate_up_proj", (2 * INNER, WIDTH)), ("down_proj", (WIDTH, INNER))):
        weight = torch.randn(EXPERTS, *shape, device=device, dtype=DTYPE)
        experts.register_parameter(name, nn.Parameter(weight, requires_grad=False))
    return experts


def random_embedding(device: torch.device) -> QuantEmbedding:
    """The embedding, in int8."""
    with torch.device("meta"):
        plain = QuantEmbedding(CODECS["int8"], VOCAB_SIZE, WIDTH, DTYPE)
    plain.weight = random_codes("int8", VOCAB_SIZE, WIDTH, device=device)
    return plain


@torch.inference_mode()
def layer(results: Results) -> int:
    """Microseconds of a layer's experts, medians over cold caches."""
    torch.manual_seed(0)
    device = torch.device("cuda")
    x = random_rows(ROWS, WIDTH, device)
    ids, weights = random_routing(ROWS, device)
    print(f"experts of a layer, {ROWS} rows, median of {REPEATS}:")
    ways: list[tuple[str, Activations]] = [("nf4", "a16"), ("nf4", "a8"), ("int8", "a16"), ("int8", "a8")]
    for codec, activations in ways:
        fast = CudaExperts(random_experts(codec, device), activations)
        clock("layer", fast.path, lambda fast=fast: fast(x, ids, weights), results)
        del fast
    published = published_experts(device)
    gate_up, down = published.gate_up_proj.detach(), published.down_proj.detach()
    fast = CudaExperts(published)
    clock("layer", fast.path, lambda: fast(x, ids, weights), results)
    grouped = getattr(torch.nn.functional, "grouped_mm", None)
    if grouped is None:
        print("  bf16 grouped_mm: left out, this torch has none", flush=True)
        return 0

    def in_bf16() -> Tensor:
        flat = ids.flatten()
        order = flat.argsort()
        ends = torch.zeros(EXPERTS, dtype=torch.int32, device=device)
        ends = ends.scatter_add_(0, flat, torch.ones_like(flat, dtype=torch.int32)).cumsum(0).int()
        gate, up = grouped(x[order // TOP_K], gate_up.transpose(1, 2), offs=ends).chunk(2, dim=-1)
        hidden = torch.nn.functional.gelu(gate, approximate="tanh") * up
        outputs = grouped(hidden, down.transpose(1, 2), offs=ends)
        out = torch.empty_like(outputs)
        out[order] = outputs
        return (out.view(ROWS, TOP_K, WIDTH) * weights[..., None]).sum(dim=1)

    try:
        clock("layer", "bf16, torch grouped_mm", in_bf16, results)
    except RuntimeError as error:  # on a card that `grouped_mm` has no kernel for
        print(f"  bf16 grouped_mm: left out ({str(error).strip().splitlines()[0]})", flush=True)
    return 0


@torch.inference_mode()
def dense(results: Results) -> int:
    """Microseconds of one linear layer in int8 and nf4, decoded first and decoded in the kernel.

    Then those of a step's other dense products in bf16 through torch: what decoding all of them once, while a model
    loads, would give on a card with 2.4 GB to spare.
    """
    torch.manual_seed(0)
    x = random_rows(ROWS, WIDTH, torch.device("cuda"))
    weight = random_rows(OUT, WIDTH, x.device) / WIDTH**0.5
    print(f"a linear layer, {ROWS} rows of {WIDTH:,} to {OUT:,}, median of {REPEATS}:")
    clock("dense", "bf16", lambda: torch.nn.functional.linear(x, weight), results)
    choices: list[Activations] = ["a16", "a8"]
    for codec in ("int8", "nf4"):
        plain = QuantLinear(CODECS[codec], WIDTH, OUT)
        plain.weight = QuantTensor.of(CODECS[codec], weight)
        clock("dense", f"{codec}, decoded, then multiplied", lambda plain=plain: plain(x), results)
        for activations in choices:
            plain.weight = QuantTensor.of(CODECS[codec], weight)
            fast = CudaLinear(plain, activations)
            clock("dense", fast.path, lambda fast=fast: fast(x), results)
    for name, (inputs, outputs) in STEP_PRODUCTS.items():
        rows, weight = random_rows(ROWS, inputs, x.device), random_rows(outputs, inputs, x.device)
        clock(
            "dense", f"bf16, {name}", lambda rows=rows, weight=weight: torch.nn.functional.linear(rows, weight), results
        )
    return 0


@torch.inference_mode()
def embedding(results: Results) -> int:
    """Microseconds of the head and of the soft embedding, and how far the kernels' answers are from the plain way's."""
    torch.manual_seed(0)
    plain = random_embedding(torch.device("cuda"))
    fast, rounding = CudaEmbedding(plain), CudaEmbedding(plain, "a8")
    hidden = random_rows(ROWS, WIDTH, torch.device("cuda"))
    probs = fast.logits(hidden).float().softmax(dim=-1).to(fast.dtype)
    print(f"the embedding, {ROWS} rows, {VOCAB_SIZE:,} ids of {WIDTH:,}, median of {REPEATS}:")
    head: Ways = {
        "decoded, then multiplied": lambda: plain.logits(hidden),
        "from the codes": lambda: fast.logits(hidden),
        "from the codes, activations in int8": lambda: rounding.logits(hidden),
    }
    soft: Ways = {
        "decoded, then multiplied": lambda: plain.mean(probs),
        "from the codes": lambda: fast.mean(probs),
    }
    for what, ways in (("head", head), ("soft embedding", soft)):
        expected = next(iter(ways.values()))().float()
        for how, way in ways.items():
            clock("embedding", f"{what}, {how}", way, results)
            error = ((way().float() - expected).norm() / expected.norm()).item()
            print(f"  {'relative difference':48} {error:9.1e}", flush=True)
    return 0
