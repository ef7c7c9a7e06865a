"""What `transformers` computes from a checkpoint: the reference.

Knows the reference's model and its `generate()`, at batch size 1, in plain tensors; knows nothing about
localdiff. Shape letters: C encoder rows, L canvas rows, D width, V vocabulary.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from transformers import DiffusionGemmaForBlockDiffusion
from transformers.cache_utils import DynamicCache
from transformers.models.diffusion_gemma.generation_diffusion_gemma import (
    EntropyBoundSampler,
    StableAndConfidentStoppingCriteria,
)

# The reference has renamed it in 5.24, and warns about the old name.
_CACHE = "cache"
if _CACHE not in inspect.signature(DiffusionGemmaForBlockDiffusion.generate).parameters:
    _CACHE = "past_key_values"


class _Recorder(DynamicCache):
    """A cache that keeps what every layer wrote, before sliding layers cut it."""

    def __init__(self, config: Any) -> None:
        super().__init__(config=config)
        self.written: list[tuple[Tensor, Tensor]] = []

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        self.written.append((key_states[0], value_states[0]))
        return super().update(key_states, value_states, layer_idx, *args, **kwargs)


class Reference:
    """The reference model of one checkpoint.

    With `final_logit_softcapping` null the reference divides by None; call `logits` with `cap=False` then,
    which stops before its soft cap and so is the formula without it.
    """

    def __init__(self, directory: Path, dtype: torch.dtype = torch.float32) -> None:
        self.model = DiffusionGemmaForBlockDiffusion.from_pretrained(directory, dtype=dtype).eval()

    @classmethod
    def of(cls, model: DiffusionGemmaForBlockDiffusion) -> Reference:
        """A reference for a model that exists already."""
        reference = cls.__new__(cls)
        reference.model = model
        return reference

    @torch.no_grad()
    def encode(self, ids: Tensor) -> DynamicCache:
        """The cache after a whole prefill of `ids` [C]; `written` holds every layer's keys and values, uncut."""
        cache = _Recorder(self.model.config.get_text_config())
        self.model.model.encoder(input_ids=ids[None], **{_CACHE: cache})
        return cache

    @torch.no_grad()
    def logits(
        self,
        canvas: Tensor,
        cache: DynamicCache,
        self_conditioning: Tensor | None = None,
        *,
        cap: bool = True,
    ) -> Tensor:
        """Logits [L, V] in fp32 of canvas ids [L], conditioned on the logits [L, V] of the last step."""
        inputs = {
            "decoder_input_ids": canvas[None],
            _CACHE: cache,
            "self_conditioning_logits": None if self_conditioning is None else self_conditioning[None],
        }
        if cap:
            capped: Tensor = self.model(**inputs).logits[0]
            return capped
        raw: Tensor = self.model.lm_head(self.model.model.decoder(**inputs).last_hidden_state[0])
        return raw.float()


@dataclass(frozen=True, kw_only=True)
class ReferenceBlock:
    """One block of a reference run.

    Attributes:
        drafts: the argmax canvas of every step.
        accepted: how many positions every step accepted.
        converged: whether the last step was stable and confident.
    """

    drafts: tuple[tuple[int, ...], ...]
    accepted: tuple[int, ...]
    converged: bool


@dataclass(frozen=True, kw_only=True)
class ReferenceRun:
    """A whole reference generation: the new ids, padded to whole canvases, and its blocks."""

    ids: tuple[int, ...]
    blocks: tuple[ReferenceBlock, ...]


class _Drafts:
    """A streamer that keeps every draft; `generate()` calls `put` with the prompt and after each block."""

    def __init__(self) -> None:
        self.blocks: list[list[tuple[int, ...]]] = [[]]

    def put(self, value: Tensor) -> None:
        if self.blocks[-1]:
            self.blocks.append([])

    def put_draft(self, value: Tensor) -> None:
        self.blocks[-1].append(tuple(value[0].tolist()))

    def end(self) -> None:
        self.blocks.pop()


def reference_run(reference: Reference, prompt: list[int], *, seed: int, max_tokens: int) -> ReferenceRun:
    """`generate()` under `torch.manual_seed(seed)`, with the settings of the checkpoint."""
    drafts = _Drafts()
    accepted: list[int] = []
    stopped: list[bool] = []
    with (
        _watch(EntropyBoundSampler, "accept_canvas", lambda it, _: accepted.append(int(it.accepted_token_mask.sum()))),
        _watch(StableAndConfidentStoppingCriteria, "__call__", lambda _, stop: stopped.append(bool(stop))),
    ):
        torch.manual_seed(seed)
        output = reference.model.generate(torch.tensor([prompt]), streamer=drafts, max_new_tokens=max_tokens)
    blocks, first = [], 0
    for drawn in drafts.blocks:
        last = first + len(drawn)
        block = ReferenceBlock(drafts=tuple(drawn), accepted=tuple(accepted[first:last]), converged=stopped[last - 1])
        blocks.append(block)
        first = last
    return ReferenceRun(ids=tuple(output.sequences[0, len(prompt) :].tolist()), blocks=tuple(blocks))


def _watch(owner: type, name: str, look: Callable[[Any, Any], None]) -> AbstractContextManager[Any]:
    """Calls `look(object, result)` after every call of a method of the reference."""
    method = getattr(owner, name)

    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        look(self, result)
        return result

    return mock.patch.object(owner, name, watched)
