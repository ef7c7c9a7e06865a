"""Dynamic steps: they are taken one after the other, in shapes that follow the number of cached positions.

Knows the model, its cache and the sampler; knows nothing about text or about what came before the block. Everything
stays on the device except one small packed tensor per step, which holds what an event shows.
Shape letters: L canvas, C commit rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from torch import Tensor

from localdiff.denoising.step import BlockSettings, Step, event_rows, not_numbers, step_of
from localdiff.diffusion.noise import Noise
from localdiff.diffusion.reading import ReadLogits, read_logits
from localdiff.diffusion.sampler import accept, renoise, temperature_at
from localdiff.diffusion.stopping import StopTest
from localdiff.kernels.decision_layout import ARGMAX, ENTROPY
from localdiff.model.cache import KVCache
from localdiff.model.diffusion_gemma import DiffusionGemma


@torch.inference_mode()
def dynamic_steps(
    model: DiffusionGemma,
    cache: KVCache,
    canvas: Tensor,
    noise: Noise,
    block: BlockSettings,
    commit_ids: Tensor | None = None,
    read: ReadLogits = read_logits,
) -> Iterator[Step]:
    """Denoises `canvas` [L], as `Denoiser.denoise_block` does, on whatever device it is.

    Args:
        commit_ids: [C] the last block or end of the prompt, which the first step also writes into the cache.

    Raises:
        WeightsError: the capped logits are NaN or infinite.
    """
    settings, device = block.sampler, canvas.device
    test = StopTest(settings, pad_id=block.pad_id, rule=block.stop_rule)
    soft: Tensor | None = None
    began = time.perf_counter()
    for step in range(1, settings.max_steps + 1):
        temperature = temperature_at(step, settings)
        noise.at(block.number, step)
        # a. The denoiser: canvas, cache and the last step's soft embedding in, logits out.
        logits = model.denoise(canvas, cache, soft, commit_ids if step == 1 else None)
        # b. Read them: entropy, draft, samples. The logits are now capped and divided by the temperature.
        stats = read(
            logits,
            softcap=model.config.softcap,
            temperature=temperature,
            noise=None if settings.greedy else noise,
            record_top_k=block.record_top_k,
        )
        # c. Accept the surest, renoise the rest.
        accepted = accept(stats.entropy, settings.entropy_bound)
        fresh = noise.canvas(len(canvas), model.config.vocab_size).to(device)
        shown, canvas = canvas, renoise(stats.sampled, accepted, fresh)
        # d. Stop?
        rows = event_rows(stats, accepted, shown).cpu()
        draft, entropy = rows[ARGMAX], rows[ENTROPY].view(torch.float32)
        if not entropy.isfinite().all():
            raise not_numbers(step, block.number)
        verdict = test.judge(draft, entropy)
        yield step_of(rows, step, block, verdict, began=began, now=time.perf_counter(), top=stats.top)
        if verdict.stop or step == settings.max_steps:
            return
        # e. Carry this step's prediction into the next step, whose time starts here, and free the logits.
        began = time.perf_counter()
        soft = model.soft_embedding(logits, stats.log_normalizer)
        del logits
