"""The training loop of the demo model: noise a canvas, ask for the clean one.

Uniform-state diffusion: each canvas draws a corruption level from 0..1, high ones more often. That share of its
positions becomes uniform random ids, and the network predicts the clean id everywhere, by cross-entropy. In half of
the updates it first makes a prediction without gradient and is conditioned on it, at a temperature of the sampler's
range.

Every update is a function of (seed, update number) alone, so an interrupted run continues exactly where it stopped.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from ..model.config import ModelConfig
from ..model.diffusion_gemma import DiffusionGemma
from ..model.moe import Router
from .batched import batched_logits, batched_soft_embedding
from .batches import Batch, Batches
from .muon import Muon


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How long and how fast. Both learning rates warm up, stay, and fall linearly over the last `decay` updates."""

    seed: int = 0
    updates: int = 3000
    decay: int = 600
    warmup: int = 100
    batch_size: int = 48
    learning_rate: float = 2e-3
    matrix_rate: float = 0.03
    weight_decay: float = 0.01
    # Padding behind the end is most of a short answer's canvas and soon learnt; it counts less.
    padding_weight: float = 0.15
    balance_weight: float = 0.01
    save_every: int = 100

    def rate_at(self, update: int) -> float:
        """Share of the full learning rates at update number `update`, from 0."""
        warm = min(1.0, (update + 1) / self.warmup)
        left = min(1.0, (self.updates - update) / max(1, self.decay))
        return min(warm, left)


def initialise(config: ModelConfig, seed: int) -> DiffusionGemma:
    """A new network with unit-scale activations; the q and k norms bring attention scores to unit variance."""
    torch.manual_seed(seed)
    model = DiffusionGemma(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, parameter.shape[-1] ** -0.5)
            elif name.endswith(("q_norm.weight", "k_norm.weight")):
                parameter.fill_(parameter.shape[0] ** -0.25)
    return model


class Trainer:
    """Owns the network, the optimizer and the number of finished updates."""

    def __init__(self, config: ModelConfig, batches: Batches, options: TrainingOptions) -> None:
        self.options = options
        self.batches = batches
        self.model = initialise(config, options.seed)
        self.update = 0
        self._balance = _LoadBalance(self.model)
        self._optimizers = self._make_optimizers()

    def _make_optimizers(self) -> tuple[torch.optim.Optimizer, ...]:
        """Muon for the layers' matrices, AdamW for the embedding, the routers and every vector."""
        named = dict(self.model.named_parameters())
        matrices = {n: p for n, p in named.items() if p.dim() > 1 and "embed" not in n and "router" not in n}
        others = [p for n, p in named.items() if n not in matrices]
        options = self.options
        optimizers = (
            Muon(matrices.values(), lr=options.matrix_rate, weight_decay=options.weight_decay),
            torch.optim.AdamW(others, lr=options.learning_rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True),
        )
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["initial_lr"] = group["lr"]
        return optimizers

    def run(self, checkpoint: Path, report: Callable[[int, float, float], None]) -> None:
        """Trains up to `options.updates`, saving to `checkpoint`; calls `report(update, loss, accuracy)` each time."""
        while self.update < self.options.updates:
            loss, accuracy = self.step(self.batches.at(self.update))
            self.update += 1
            report(self.update, loss, accuracy)
            if self.update % self.options.save_every == 0 or self.update == self.options.updates:
                self.save(checkpoint)

    def step(self, batch: Batch) -> tuple[float, float]:
        """One update. Returns the loss and the share of answer positions that were predicted right."""
        generator = torch.Generator().manual_seed(self.options.seed * 1_000_003 + self.update)
        canvas = corrupt(batch.canvas_ids, self.model.config.vocab_size, generator)
        soft = self._condition(batch, canvas, generator)
        self._balance.start()
        logits = batched_logits(self.model, batch.encoder_ids, batch.encoder_rows, canvas, soft)
        losses = F.cross_entropy(logits.flatten(0, 1), batch.canvas_ids.flatten(), reduction="none")
        weights = torch.where(batch.is_answer, 1.0, self.options.padding_weight).flatten()
        loss = (losses * weights).sum() / weights.sum()
        (loss + self.options.balance_weight * self._balance.loss()).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] * self.options.rate_at(self.update)
            optimizer.step()
            optimizer.zero_grad()
        right = (logits.argmax(dim=-1) == batch.canvas_ids)[batch.is_answer].float().mean()
        return loss.item(), right.item()

    def _condition(self, batch: Batch, canvas: Tensor, generator: torch.Generator) -> Tensor | None:
        if torch.rand((), generator=generator) < 0.5:
            return None
        temperature = 0.4 + 0.4 * torch.rand((), generator=generator)
        with torch.no_grad():
            first = batched_logits(self.model, batch.encoder_ids, batch.encoder_rows, canvas, None)
            return batched_soft_embedding(self.model, first / temperature)

    def save(self, path: Path) -> None:
        """Writes everything a later run needs, atomically."""
        partial = path.with_suffix(".partial")
        state = {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
            "update": self.update,
        }
        torch.save(state, partial)
        partial.replace(path)

    def resume(self, path: Path) -> None:
        """Continues from a file that `save` wrote."""
        state = torch.load(path, weights_only=True)
        self.model.load_state_dict(state["model"])
        for optimizer, kept in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(kept)
        self.update = state["update"]


def corrupt(ids: Tensor, vocab_size: int, generator: torch.Generator) -> Tensor:
    """Noises canvases [B, L]: each draws a level from 0..1 and that share of its ids becomes uniform noise.

    The density of the level rises linearly: a canvas that is almost clean is filled in without a look at the prompt, so
    reading the prompt is learnt from the noisy ones.
    """
    level = torch.rand(ids.shape[0], 1, generator=generator).sqrt()
    noise = torch.randint(vocab_size, ids.shape, generator=generator)
    return torch.where(torch.rand(ids.shape, generator=generator) < level, noise, ids)


class _LoadBalance:
    """Keeps experts in use: the share of rows times the share of probability of each, summed over experts and layers.

    The loss is that of Switch Transformers (arXiv 2101.03961, equation 4) with the router's own top-k choice.
    """

    def __init__(self, model: DiffusionGemma) -> None:
        self._logits: list[Tensor] = []
        self._top_k = model.config.top_k_experts
        for module in model.modules():
            if isinstance(module, Router):
                module.proj.register_forward_hook(lambda _module, _inputs, logits: self._logits.append(logits))

    def start(self) -> None:
        self._logits.clear()

    def loss(self) -> Tensor:
        terms = []
        for logits in self._logits:
            probs = logits.softmax(dim=-1)
            chosen = torch.zeros_like(probs).scatter_(1, probs.topk(self._top_k, dim=-1).indices, 1.0)
            terms.append((chosen.mean(dim=0) * probs.mean(dim=0)).sum() * logits.shape[-1] / self._top_k)
        return torch.stack(terms).mean() if terms else torch.tensor(math.nan)
