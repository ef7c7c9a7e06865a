"""The whole network: one forward over `[commit rows | canvas rows]`.

        prompt or committed block            canvas
    ids ──► embed × √D                  ids ──► embed × √D ──► self-conditioning ◄── soft embedding of the last step
             │                                   │
             └──────── commit rows ─── canvas rows ┘
                            │  layers: commit rows are causal and write the cache, canvas rows look both ways
                            ▼
                     canvas rows ──► norm ──► logits

Commit rows are those of the reference's encoder, and canvas rows those of its decoder; they share their weights. Knows
one sequence at a time, its cache and its rows; knows nothing about sampling or text. Module names are the checkpoint's
names after `model.decoder.`, so the loader needs no table.
Shape letters: C commit rows, L canvas rows, D width, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from localdiff.model.attention import Attend, attend_cached, attend_through_triton
from localdiff.model.block import Layer
from localdiff.model.cache import KVCache
from localdiff.model.config import LayerConfig, ModelConfig
from localdiff.model.formulas import rotary_table
from localdiff.model.fused_layer_ops import FusedLayerOps
from localdiff.model.layers import RMSNorm
from localdiff.model.projections import Projections
from localdiff.model.self_conditioning import SelfConditioning
from quant.cpu.native.attention import NativeAttention
from quant.modules.embedding import TiedEmbedding


class DiffusionGemma(nn.Module):
    """A DiffusionGemma text model with empty weights; `localdiff.load` fills them.

    Attributes:
        attends_through_triton: whether attention runs in Triton, on one GPU; never in training or on other devices.
        attention_kernel: computes attention in bf16 on a CPU; None where torch does. Always None in training.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = TiedEmbedding(config.vocab_size, config.hidden_size)
        self.self_conditioning = SelfConditioning(config)
        self.layers = nn.ModuleList(Layer(config, layer) for layer in config.layers)
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.attends_through_triton = False
        self.attention_kernel: NativeAttention | None = None

    @property
    def kernels(self) -> tuple[str, ...]:
        """The parts of a pass that run in Triton or fused, in words; modules over stored weights are not listed."""
        parts = {
            "attention in Triton": self.attends_through_triton,
            "layer ops in Triton": isinstance(self.norm.layer_ops, FusedLayerOps),
            "fused projections": any(
                isinstance(part, Projections) and part.fused() is not None for part in self.modules()
            ),
        }
        return tuple(part for part, on in parts.items() if on)

    def forward(self, commit_ids: Tensor, canvas_ids: Tensor, cache: KVCache, soft: Tensor | None = None) -> Tensor:
        """One pass over commit rows and canvas rows; either may be empty.

        Args:
            commit_ids: [C] ids written into the cache at positions `cache.length ...`.
            canvas_ids: [L] ids of the canvas, at the positions after them.
            cache: read by all rows, extended by the commit rows.
            soft: [L, D] soft embedding of the last denoise step, or None on the first.

        Returns:
            [L, D] normed hidden states of the canvas rows.

        Raises:
            ValueError: the commit rows do not fit the cache.
        """
        commit_rows, rows = len(commit_ids), len(commit_ids) + len(canvas_ids)
        cache.require(commit_rows)
        positions = torch.arange(cache.length, cache.length + rows, device=commit_ids.device)
        hidden = self.rows(commit_ids, canvas_ids, soft, positions, self._attends(cache, commit_rows))
        cache.length += commit_rows
        return hidden

    def _attends(self, cache: KVCache, commit_rows: int) -> Iterator[Attend]:
        if not self.attends_through_triton:
            return (attend_cached(layer, cache.length, commit_rows, self.attention_kernel) for layer in cache.layers)
        # Filled in on the device: to copy a number there, the host would wait for all work launched so far.
        length = torch.full((), cache.length, dtype=torch.int32, device=cache.layers[0].keys.device)
        return (attend_through_triton(layer, length, commit_rows) for layer in cache.layers)

    def rows(
        self,
        commit_ids: Tensor,
        canvas_ids: Tensor,
        soft: Tensor | None,
        positions: Tensor,
        attends: Iterable[Attend],
    ) -> Tensor:
        """Runs the layers over commit rows and canvas rows, wherever keys and values come from.

        Args:
            positions: [C + L] of the rows.
            attends: attention of each layer; it writes the commit rows where they belong.

        Returns:
            [L, D] normed hidden states of the canvas rows.
        """
        commit_rows, rows = len(commit_ids), len(commit_ids) + len(canvas_ids)
        x = self.embed(torch.cat((commit_ids, canvas_ids)) if commit_rows else canvas_ids)
        if rows > commit_rows:
            canvas = self.self_conditioning.condition(x[commit_rows:], soft)
            x = torch.cat((x[:commit_rows], canvas)) if commit_rows else canvas
        is_canvas = torch.arange(rows, device=x.device) >= commit_rows
        rotary = self.rotary_tables(positions, x.dtype)
        for layer, config, attend in zip(self.layers, self.config.layers, attends, strict=True):
            x = layer(x, is_canvas, rotary[config], attend)
        hidden: Tensor = self.norm(x[commit_rows:])
        return hidden

    def encode(self, ids: Tensor, cache: KVCache) -> None:
        """Writes `ids` [C] into the cache, causally; does nothing if there are none."""
        if len(ids):
            self(ids, ids[:0], cache)

    def denoise(
        self, canvas_ids: Tensor, cache: KVCache, soft: Tensor | None = None, commit_ids: Tensor | None = None
    ) -> Tensor:
        """Raw logits [L, V] of the canvas, in the weights' dtype, neither capped nor divided by a temperature.

        Args:
            canvas_ids, cache, soft: as `forward` takes them.
            commit_ids: [C] ids that are written into the cache first, as `encode` does, in the same pass.
        """
        return self.embed_tokens.logits(
            self(canvas_ids[:0] if commit_ids is None else commit_ids, canvas_ids, cache, soft)
        )

    def soft_embedding(self, logits: Tensor, log_normalizer: Tensor) -> Tensor:
        """What the next step is conditioned on: the mean scaled embedding [L, D] under this step's distribution.

        Args:
            logits: [L, V] in the weights' dtype, capped and divided by the temperature.
            log_normalizer: [L] fp32, log-sum-exp of those logits.
        """
        return self.scale(self.embed_tokens.soft(logits, log_normalizer))

    def mean_embedding(self, probs: Tensor) -> Tensor:
        """What `soft_embedding` returns, from the logits' probabilities [L, V], rounded to the weights' dtype."""
        return self.scale(self.embed_tokens.mean(probs))

    def embed(self, ids: Tensor) -> Tensor:
        """Scaled embeddings [..., D] of ids."""
        return self.scale(self.embed_tokens.lookup(ids))

    def rotary_tables(self, positions: Tensor, dtype: torch.dtype) -> dict[LayerConfig, tuple[Tensor, Tensor]]:
        """RoPE tables of each kind of layer, by its configuration."""
        return {layer: rotary_table(positions, layer, dtype) for layer in dict.fromkeys(self.config.layers)}

    def scale(self, embeddings: Tensor) -> Tensor:
        """Embeddings times √D, as the layers take them."""
        # √D is rounded to the weights' dtype first: 53.066 becomes 53.0 in bf16, which the weights were trained with.
        scale = torch.tensor(math.sqrt(self.config.hidden_size), dtype=embeddings.dtype)
        return embeddings * scale
