"""A whole denoise step, sampling included, of `transformers` in bf16 and of localdiff, on one card in one run.

    transformers, eager       `generate` as it is called by default
    transformers, compiled    the same with a static cache, which makes `generate` compile its passes
    localdiff, RECIPE         what `localdiff run` does on this card

Random weights at the released width, with the same number of layers, context and steps; each in a process of its own,
so that one leaves nothing to the next. Peaks of memory leave out making the model. The compiled reference takes minutes
before its first step, and comes last. If bf16 does not fit, all of them get fewer layers, and the output says so, as it
does of what an installed `transformers` cannot do.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from localdiff.bench.step.memory import forget_device_peak
from localdiff.bench.step.released import released_config
from localdiff.model.diffusion_gemma import DiffusionGemma
from quant.released import LAYERS
from tests.bench.gpu_process import Limits, end_with_parent, ended
from tests.bench.gpu_results import Results

if TYPE_CHECKING:
    from transformers import DiffusionGemmaForBlockDiffusion

ROOM = 6_000_000_000
"""Bytes beside the weights: the reference makes several fp32 copies of its logits, 268 MB each, and compiles."""
WARM_UP = 3
"""First steps of a block that are not counted; when compiled, these steps record graphs."""
EAGER, COMPILED = "transformers, eager", "transformers, compiled"
BLOCKS = 2
"""The blocks before the last one warm up."""


@cache
def bytes_of(layers: int) -> int:
    """Bytes in bf16 of that many layers of the released model and of all its other weights."""
    with torch.device("meta"):
        return sum(2 * parameter.numel() for parameter in DiffusionGemma(released_config(layers)).parameters())


def layers_that_fit(free: int) -> int:
    """Layers of the released model that fit in bf16; 0 if not even one does."""
    return next((layers for layers in range(LAYERS, 0, -1) if bytes_of(layers) + ROOM <= free), 0)


class StepClock:
    """A streamer of drafts: `generate` hands each over on the host, so its step is done by then."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def put(self, value: Tensor) -> None:
        """The prompt, or a block."""

    def put_draft(self, value: Tensor) -> None:
        """A step is done."""
        self.marks.append(time.perf_counter())

    def end(self) -> None:
        """The run is over."""


def reference_seconds(
    model: DiffusionGemmaForBlockDiffusion, context: int, steps: int, *, compiled: bool
) -> list[float]:
    """Seconds of the last `steps` steps of the last block.

    The settings ask for an entropy that is never reached, so nothing converges. The draft's age is that of the released
    model, because `generate` keeps as many drafts, and compares and moves all of them in each step.
    """
    from transformers.models.diffusion_gemma.generation_diffusion_gemma import (
        DiffusionGemmaGenerationConfig,
        EntropyBoundSamplerConfig,
    )

    canvas, vocab_size = model.config.canvas_length, model.config.text_config.vocab_size
    settings = DiffusionGemmaGenerationConfig(
        max_new_tokens=BLOCKS * canvas,
        max_denoising_steps=WARM_UP + steps,
        sampler_config=EntropyBoundSamplerConfig(entropy_bound=0.1),
        t_min=0.4,
        t_max=0.8,
        stability_threshold=1,
        confidence_threshold=1e-30,
        cache_implementation="static" if compiled else None,
        pad_token_id=0,
    )
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(10, min(vocab_size, 200_000), (1, context), generator=generator).to(model.device)
    clock = StepClock()
    with torch.inference_mode():
        model.generate(ids, generation_config=settings, streamer=clock)
    last = clock.marks[-(steps + 1) :]
    return [after - before for before, after in zip(last, last[1:], strict=False)]


def our_seconds(recipe: str, layers: int, context: int, steps: int, device: str) -> tuple[list[float], str]:
    """Seconds of our steps, and how they are computed."""
    from localdiff.bench.step.measure import Stopwatch
    from localdiff.bench.step.subject import random_subject

    make = random_subject(recipe=recipe, layers=layers, context=context, device=device, dtype="bf16")
    subject = make(lambda _: None)
    forget_device_peak(subject.device)
    watch = Stopwatch(subject, context=context)
    return list(watch.measure(steps).steps.seconds), str(watch.denoiser)


def row(way: str, layers: int, context: int, steps: int, results: Results) -> str:
    """Measures one way in this process."""
    device = torch.device("cuda", 0)
    if way in (EAGER, COMPILED):
        from tests.bench.reference_weights import first_layers, random_reference

        model = random_reference(first_layers(layers), device)
        forget_device_peak(device)
        seconds = reference_seconds(model, context, steps, compiled=way == COMPILED)
        how = f"experts `{model.config.text_config._experts_implementation}`, attention `{_attention_of(model)}`"
    else:
        seconds, how = our_seconds(way.removeprefix("localdiff, "), layers, context, steps, str(device))
    spread = f"{1000 * min(seconds):.2f} to {1000 * max(seconds):.2f}"
    peak = torch.cuda.max_memory_reserved(device)  # the memory of replayed graphs is not allocated to a tensor
    step = statistics.median(seconds)
    results.add(_key(way, context, steps), layers=layers, step_seconds=step, seconds=seconds, peak_bytes=peak, how=how)
    return f"  {way:24} {1000 * step:9.2f} ms a step ({spread}), peak {peak / 1e9:.1f} GB; {how}"


def _key(way: str, context: int, steps: int) -> dict[str, Any]:
    return {"part": "transformers", "way": way, "context": context, "steps": steps}


def _attention_of(model: Any) -> str:
    return str(model.config.text_config._attn_implementation)


def against_transformers(
    recipes: Sequence[str],
    contexts: Sequence[int],
    steps: int,
    *,
    limits: Limits,
    results: Results,
) -> int:
    """Measures both at each context; returns 1 if one of ours failed or was not done in time."""
    lacking = _lacking()
    layers = layers_that_fit(torch.cuda.mem_get_info()[0])
    if layers == 0:
        print(f"transformers: left out, one layer in bf16 takes {(bytes_of(1) + ROOM) / 1e9:.0f} GB")
        return 0
    print(f"a step with {layers} of {LAYERS} layers, random weights, median of {steps}:")
    if layers < LAYERS:
        print(
            f"  all of them in bf16 take {(bytes_of(LAYERS) + ROOM) / 1e9:.0f} GB; no figure here is of the whole model"
        )
    if lacking is not None:
        print(f"  transformers: left out ({lacking})")
    ours = [f"localdiff, {recipe}" for recipe in recipes]
    rounds = [ours] if lacking else [[EAGER, *ours], [COMPILED]]
    failed = 0
    for ways in rounds:
        for context in contexts:
            print(f" {context:,} tokens of context", flush=True)
            for way in ways:
                if limits.is_up:
                    return int(failed)
                if results.has(_key(way, context, steps)):
                    print(f"  {way:24} measured already", flush=True)
                    continue
                failed |= not _is_measured(way, layers, context, steps, limits, results) and way in ours
    return int(failed)


def _is_measured(way: str, layers: int, context: int, steps: int, limits: Limits, results: Results) -> bool:
    """Measures one way in a process of its own, and prints its row, or why there is none."""
    command = [sys.executable, "-m", "tests.bench.gpu_transformers", way, "--layers", str(layers)]
    command += ["--context", str(context), "--steps", str(steps)]
    if results.path is not None:
        command += ["--results", str(results.path)]
    done = ended(command, seconds=limits.left, captured=True)
    if done.failure is None:
        print(done.out.rstrip(), flush=True)
        return True
    print(f"  {way:24} failed: {done.failure}\n{done.last_lines}", flush=True)
    if not limits.is_up:
        results.add(_key(way, context, steps), layers=layers, failure=done.failure)
    return False


def _lacking() -> str | None:
    """Why the reference cannot be measured; None if it can."""
    try:
        from transformers import DiffusionGemmaForBlockDiffusion  # noqa: F401
    except ImportError as error:  # also where it is too old, or accepts only other versions of some package
        return str(error.__cause__ or error).strip().partition("\n")[0]
    return None


def main() -> None:
    """Measure one way, and print its row."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu_transformers")
    parser.add_argument("way")
    parser.add_argument("--layers", type=int, required=True)
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--results", type=Path)
    arguments = parser.parse_args()
    end_with_parent()
    results = Results(arguments.results)
    print(row(arguments.way, arguments.layers, arguments.context, arguments.steps, results))


if __name__ == "__main__":
    main()
