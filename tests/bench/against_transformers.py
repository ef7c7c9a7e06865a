"""`python -m tests.bench.against_transformers [--layers 6] [--context 1024] [--steps 3]`: one forward, both ways.

The first layers of the released model at full width with random weights: localdiff in a recipe, then `transformers` in
bf16, in the same process, on the CPU. The forward of a denoise step is timed, self-conditioning included; reading the
logits, which costs the reference more, is left out. Layers and the rest (embedding, self-conditioning, head) are timed
apart, so that a step of all thirty layers can be extrapolated from a few; the output says so.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from localdiff.bench.step.random_weights import random_model
from localdiff.bench.step.released import released_config
from localdiff.machine.hardware import cpu_name
from localdiff.model.cache import KVCache
from quant.cpu.choice import use_cpu_modules
from quant.recipe import recipe_named
from quant.released import LAYERS
from tests.bench.reference_weights import first_layers, random_reference
from tests.models.reference import Reference

CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Seconds:
    """Median seconds of one forward, inside the layers and outside of them."""

    layers: float
    rest: float

    def of(self, measured: int, wanted: int) -> float:
        """The forward of `wanted` layers, extrapolated from `measured`."""
        return self.layers * wanted / measured + self.rest


def reference_seconds(layers: int, context: int, steps: int) -> Seconds:
    """`transformers` in bf16, as it is set up by default."""
    config = first_layers(layers)
    vocab_size = config["text_config"]["vocab_size"]
    model = random_reference(config, CPU)
    reference = Reference.of(model)
    ids, canvas = _ids(vocab_size, context, config["canvas_length"])
    cache = reference.encode(ids)
    believed = torch.randn(len(canvas), vocab_size)
    return _seconds(model.model.decoder.layers, lambda: reference.logits(canvas, cache, believed), steps)


def our_seconds(layers: int, context: int, steps: int, recipe: str) -> Seconds:
    """localdiff with random weights in a recipe."""
    config = released_config(layers)
    network = random_model(config, recipe_named(recipe), torch.bfloat16, CPU, progress=lambda *_: None)
    use_cpu_modules(network)
    ids, canvas = _ids(config.vocab_size, context, config.canvas_length)
    cache = KVCache(config, context + len(canvas), torch.bfloat16, CPU)
    believed = torch.randn(len(canvas), config.vocab_size)
    normalizer = believed.logsumexp(dim=-1)

    def forward() -> Tensor:
        return network.denoise(canvas, cache, network.soft_embedding(believed, normalizer))

    with torch.inference_mode():
        network.encode(ids, cache)
        return _seconds(network.layers, forward, steps)


def _ids(vocab_size: int, context: int, canvas: int) -> tuple[Tensor, Tensor]:
    ids = torch.randint(vocab_size, (context + canvas,), generator=torch.Generator().manual_seed(0))
    return ids[:context], ids[context:]


def _seconds(layers: Sequence[nn.Module] | nn.ModuleList, forward: Callable[[], object], steps: int) -> Seconds:
    marks: list[float] = []
    hooks = [
        layers[0].register_forward_pre_hook(lambda *_: marks.append(time.perf_counter())),
        layers[-1].register_forward_hook(lambda *_: marks.append(time.perf_counter())),
    ]
    inside, outside = [], []
    for step in range(steps + 1):
        marks.clear()
        began = time.perf_counter()
        forward()
        whole = time.perf_counter() - began
        if step > 0:  # the first one warms up
            inside.append(marks[1] - marks[0])
            outside.append(whole - inside[-1])
    for hook in hooks:
        hook.remove()
    return Seconds(statistics.median(inside), statistics.median(outside))


def main() -> None:
    """Measure both and print them."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.against_transformers", description=__doc__)
    parser.add_argument("--layers", type=int, default=6, help="layers that are made; the others are reckoned")
    parser.add_argument("--context", type=int, default=1024, help="tokens in the cache before the canvas")
    parser.add_argument("--steps", type=int, default=3, help="forwards to time, after one that is not counted")
    parser.add_argument("--recipe", default="4bit", help="how localdiff stores the weights")
    arguments = parser.parse_args()
    print(f"{cpu_name()}, {torch.get_num_threads()} threads; {arguments.layers} layers, context {arguments.context:,}")
    ours = our_seconds(arguments.layers, arguments.context, arguments.steps, arguments.recipe)
    gc.collect()
    theirs = reference_seconds(arguments.layers, arguments.context, arguments.steps)
    print(f"{'':24}{'layers':>9}{'rest':>9}{'forward':>9}{f'of {LAYERS} (reckoned)':>21}")
    for name, seconds in (("transformers, bf16", theirs), (f"localdiff, {arguments.recipe}", ours)):
        whole, all_layers = seconds.layers + seconds.rest, seconds.of(arguments.layers, LAYERS)
        print(f"{name:24}{seconds.layers:8.2f}s{seconds.rest:8.2f}s{whole:8.2f}s{all_layers:20.2f}s")
    ratio = theirs.of(arguments.layers, LAYERS) / ours.of(arguments.layers, LAYERS)
    measured = (theirs.layers + theirs.rest) / (ours.layers + ours.rest)
    print(f"localdiff is {measured:.2f} times as fast as measured, {ratio:.2f} times with {LAYERS} layers")


if __name__ == "__main__":
    main()
