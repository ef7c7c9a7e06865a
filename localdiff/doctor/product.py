"""Real projections with quantized weights, on the modules that a model is built of.

Knows small modules, and their right outputs from the definition of the codecs; knows nothing about models. Each is
tried as it is loaded and as the fast module that replaces it in a large model on the device, so a wrong kernel on this
machine is found here.
Shape letters: N rows, K experts a row, D width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from localdiff.bench.step.code_paths import path_of
from localdiff.doctor.finding import Finding
from quant.codecs import CODECS
from quant.codecs.codec import GROUP, Codec, Encoded, codes_shape, scales_shape
from quant.codecs.nf4 import LEVELS
from quant.cpu import choice as cpu
from quant.cuda import choice as cuda
from quant.modules import swap_modules

ROWS, EXPERTS, CHOSEN, WIDTH, INNER = 4, 4, 2, 256, 64
LIMIT = 0.03
"""Relative error up to which an output counts as right: bf16 rounding and int8 activations stay well below it."""

_TYPICAL = {"nf4": 0.62, "int8": 73.0}
"""Root mean square of what random codes stand for, before scales; used to make outputs of order 1."""
_MASK = 0xFFFFFFFF
_SEED_X, _SEED_CODES, _SEED_SCALES, _SEED_ROUTE = 11, 23, 29, 37


@dataclass(frozen=True, kw_only=True, slots=True)
class Product:
    """One module to try.

    Attributes:
        name: what it is called.
        schemes: its parameters and their codecs.
        build: the module as a model has it, before it is quantized.
    """

    name: str
    schemes: Mapping[str, str]
    build: Callable[[], nn.Module]

    @property
    def is_routed(self) -> bool:
        """Whether rows are routed to experts."""
        return "weight" not in self.schemes


def _linear() -> nn.Module:
    return nn.Linear(WIDTH, INNER, bias=False)


def _experts() -> nn.Module:
    module = nn.Module()
    module.gate_up_proj = nn.Parameter(torch.empty(EXPERTS, 2 * INNER, WIDTH))
    module.down_proj = nn.Parameter(torch.empty(EXPERTS, WIDTH, INNER))
    return module


PRODUCTS = (
    Product(name="nf4 experts", schemes={"gate_up_proj": "nf4", "down_proj": "nf4"}, build=_experts),
    Product(name="int8 experts", schemes={"gate_up_proj": "int8", "down_proj": "int8"}, build=_experts),
    Product(name="nf4 linear", schemes={"weight": "nf4"}, build=_linear),
    Product(name="int8 linear", schemes={"weight": "int8"}, build=_linear),
)


def integers(count: int, seed: int) -> Tensor:
    """[count] int64 on the CPU: integers from 0 to 2**32 - 1, a hash of their index and the seed.

    They are the same on every machine and with every version of torch; a generator's numbers depend on the version.
    """
    value = (torch.arange(count, dtype=torch.int64) + seed * 1_000_003) & _MASK
    for factor, shift in ((0x2C1B3C6D, 15), (0x297A2D39, 12), (0x1B873593, 16)):
        value = ((value ^ (value >> shift)) * factor) & _MASK  # factors under 2**31, so that no product overflows
    return value ^ (value >> 15)


def uniform(shape: Sequence[int], seed: int) -> Tensor:
    """fp32 `shape` on the CPU, multiples of 2**-15 from -1 to 1."""
    return ((integers(math.prod(shape), seed) >> 16).to(torch.float32) / 32768 - 1).view(*shape)


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    """x [N, D], expert ids [N, K] and routing weights [N, K]; every expert is chosen by some row."""
    first = integers(ROWS, _SEED_ROUTE) % EXPERTS
    index = torch.stack([first, (first + 1) % EXPERTS], dim=1)
    weight = torch.tensor([0.75, 0.25]).expand(ROWS, CHOSEN).contiguous()
    return uniform((ROWS, WIDTH), _SEED_X), index, weight


def stored_weights(product: Product) -> dict[str, Encoded]:
    """Codes and scales of each parameter on the CPU: exact numbers, made without the encoder."""
    with torch.device("meta"):
        shapes = {name: tuple(parameter.shape) for name, parameter in product.build().named_parameters()}
    return {name: _encoded(CODECS[product.schemes[name]], shape) for name, shape in shapes.items()}


def _encoded(codec: Codec, shape: tuple[int, ...]) -> Encoded:
    codes = integers(math.prod(codes_shape(codec, shape)), _SEED_CODES) & 0xFF
    if codec.codes_dtype == torch.int8:
        codes = (codes - 128).clamp(min=-127)
    scales = (uniform(scales_shape(shape), _SEED_SCALES) + 2) / (_TYPICAL[codec.name] * math.sqrt(shape[-1]))
    return Encoded(codes=codes.to(codec.codes_dtype).view(codes_shape(codec, shape)), scales=scales.to(torch.bfloat16))


def reference_output(product: Product) -> Tensor:
    """The right output of a product, in fp64, flat on the CPU."""
    x, index, weight = (tensor.double() if tensor.is_floating_point() else tensor for tensor in inputs())
    weights = {name: decoded(product.schemes[name], encoded) for name, encoded in stored_weights(product).items()}
    if not product.is_routed:
        return (x @ weights["weight"].T).flatten()
    rows = []
    for row, experts, shares in zip(x, index.tolist(), weight, strict=True):
        output = torch.zeros_like(row)
        for expert, share in zip(experts, shares, strict=True):
            gate, up = (weights["gate_up_proj"][expert] @ row).chunk(2)
            output += share * (weights["down_proj"][expert] @ (F.gelu(gate, approximate="tanh") * up))
        rows.append(output)
    return torch.cat(rows)


def decoded(codec: str, encoded: Encoded) -> Tensor:
    """Weights decoded from codes and scales, in fp64, as `docs/format.md` defines them."""
    if codec == "nf4":
        pairs = torch.stack([encoded.codes >> 4, encoded.codes & 15], dim=-1).flatten(-2)
        units = torch.tensor(LEVELS, dtype=torch.float64)[pairs.long()]
    else:
        units = encoded.codes.double()
    return units * encoded.scales.double().repeat_interleave(GROUP, dim=-1)


def modules_of(product: Product, device: torch.device, dtype: torch.dtype) -> Iterator[nn.Module]:
    """The quantized module with its weights, as the loader would leave it, and the fast one, if there is one.

    The fast one may take over the weights of the first, which must be used before the fast one is requested.
    """
    with torch.device("meta"):
        holder = nn.Module()
        holder.add_module("part", product.build())
        swap_modules(holder, {f"part.{name}": scheme for name, scheme in product.schemes.items()}, dtype)
    state: dict[str, Tensor] = {}
    for name, encoded in stored_weights(product).items():
        state |= {f"part.{name}.codes": encoded.codes, f"part.{name}.scales": encoded.scales}
    holder.load_state_dict({name: tensor.to(device) for name, tensor in state.items()}, assign=True)
    plain = holder.get_submodule("part")
    yield plain
    make_fast(holder, device)
    fast = holder.get_submodule("part")
    if fast is not plain:
        yield fast


def make_fast(model: nn.Module, device: torch.device) -> None:
    """Replaces the modules of a model by fast ones as in a large model, whatever their size.

    Raises:
        SwitchError: an environment variable has an invalid value.
    """
    if device.type == "cpu":
        cpu.use_cpu_modules(model, min_weights=0)
    elif device.type == "cuda":
        cuda.use_cuda_modules(model, device)


@torch.inference_mode()
def compute(product: Product, module: nn.Module, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, str]:
    """The output of one of a product's modules, flat and in fp32 on the CPU, and the code path it took."""
    x, index, weight = (tensor.to(device) for tensor in inputs())
    arguments = (x.to(dtype), index, weight) if product.is_routed else (x.to(dtype),)
    output: Tensor = module(*arguments)
    return output.float().cpu().flatten(), path_of(module)


def relative_error(output: Tensor, right: Tensor) -> float:
    """‖output - right‖ / ‖right‖; infinite where something is not finite or has another size."""
    if output.shape != right.shape or not bool(torch.isfinite(output).all()):
        return math.inf
    return float((output - right).norm() / right.norm())


def check_products(device: torch.device) -> list[Finding]:
    """Every product on a device, in bf16 as in a large model."""
    tried: list[tuple[str, str, float]] = []
    for product in PRODUCTS:
        right = reference_output(product).float()
        for module in modules_of(product, device, torch.bfloat16):
            output, path = compute(product, module, device, torch.bfloat16)
            tried.append((product.name, path, relative_error(output, right)))
    products = [{"name": name, "path": path, "error": error} for name, path, error in tried]
    facts = {"device": str(device), "products": products}
    details = [f"{name}: {_percent(error)} off, {path}" for name, path, error in tried]
    wrong = list(dict.fromkeys(name for name, _, error in tried if error > LIMIT))
    finding = partial(Finding, subject=f"quantized layers on {device}", details=details, facts=facts)
    if wrong:
        text = f"{', '.join(wrong)} differ{'s' if len(wrong) == 1 else ''} from what fp64 gives"
        advice = (
            "answers of quantized models would be wrong: use another `--device`, try another version of torch, and "
            "please report it with `localdiff doctor --report`"
        )
        return [finding(status="fail", text=text, advice=advice)]
    worst = max(error for _, _, error in tried)
    return [finding(status="ok", text=f"matches what fp64 gives to {_percent(worst)}")]


def _percent(error: float) -> str:
    return f"{100 * error:.2g} %" if math.isfinite(error) else "not finite"
