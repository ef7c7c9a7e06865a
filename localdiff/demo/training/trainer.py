"""The training loop of the demo model: add noise to a canvas, predict the clean one.

Uniform-state diffusion: each canvas draws a noise level from 0..1, high ones more often. That share of its
positions becomes uniform random ids, and the network predicts the clean id everywhere, by cross-entropy. In three of
five updates it first makes a prediction without gradient, at a temperature of the sampler's range, and is conditioned
on it; in two of these three the canvas is also the one that the sampler makes from that prediction.

Every update is a function of (seed, update number) alone, so an interrupted run continues exactly where it stopped.
Noise and weights are drawn for a whole batch, whichever process computes it, so several processes do what one does,
except for rounding and for the load balance of experts, which each process measures on its own rows.
Shape letters: B batch, L canvas, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from localdiff.demo.training.batches import Batch, Batches
from localdiff.demo.training.muon import Muon
from localdiff.demo.training.team import Team
from localdiff.diffusion.sampler import accept, renoise
from localdiff.diffusion.search import inverse_cumulative
from localdiff.errors import UsageError
from localdiff.model.batched import batched_logits, batched_soft_embedding
from localdiff.model.config import ModelConfig
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.model.layer_ops import LayerOps, set_layer_ops
from localdiff.model.moe import Router

# Shares of updates: unconditioned, and conditioned on a prediction; the rest also take the sampler's canvas.
_PLAIN, _CONDITIONED = 0.4, 0.2
_MOST_NOISE = 1.15  # levels are drawn up to this one and clipped at 1: a quarter of the canvases is pure noise


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options of a training. Both learning rates warm up, stay, and fall linearly over the last `decay` updates."""

    seed: int = 0
    updates: int = 3000
    decay: int = 600
    warmup: int = 100
    batch_size: int = 48
    batch_rows: int = 4608
    learning_rate: float = 2e-3
    matrix_rate: float = 0.03
    weight_decay: float = 0.01
    # Padding after the end is most of a short answer's canvas and learnt quickly; it counts less.
    padding_weight: float = 0.15
    balance_weight: float = 0.01
    entropy_bound: float = 0.1
    save_every: int = 100

    def rate_at(self, update: int) -> float:
        """Share of the full learning rates at update number `update`, from 0."""
        warm = min(1.0, (update + 1) / self.warmup)
        cooldown = min(1.0, (self.updates - update) / max(1, self.decay))
        return min(warm, cooldown)


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


def compiled_layer_ops() -> LayerOps:
    """Each layer op compiled separately, with its gradient; routing stays as it is.

    Needs a C++ compiler. Shapes stay symbolic, so batches of all lengths share the compiled code.
    """
    compiled = LayerOps()
    for name in ("norm", "qkv_norm_rope", "add_attention_and_norm", "gelu_mul", "merge_branches"):
        setattr(compiled, name, torch.compile(getattr(LayerOps, name), dynamic=True))
    return compiled


class Trainer:
    """Owns the network's optimizers and the number of finished updates; trains every parameter with `requires_grad`."""

    def __init__(
        self, model: DiffusionGemma, batches: Batches, options: TrainingOptions, team: Team | None = None
    ) -> None:
        self.options = options
        self.batches = batches
        self.model = model
        self.update = 0
        self._team = team or Team()
        self._balance = _LoadBalance(model)
        self._parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._optimizers = self._make_optimizers()

    def _make_optimizers(self) -> tuple[torch.optim.Optimizer, ...]:
        """Muon for the layers' matrices, AdamW for the embedding, the routers, low-rank factors and every vector."""
        aside = ("embed", "router", "lora_")
        parameters = self._parameters
        matrices = {n: p for n, p in parameters.items() if p.dim() > 1 and not any(part in n for part in aside)}
        others = [p for n, p in parameters.items() if n not in matrices]
        options = self.options
        optimizers: list[torch.optim.Optimizer] = [
            torch.optim.AdamW(others, lr=options.learning_rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True)
        ]
        if matrices:
            decay = options.weight_decay
            optimizers.append(Muon(matrices.values(), lr=options.matrix_rate, weight_decay=decay, team=self._team))
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["initial_lr"] = group["lr"]
        return tuple(optimizers)

    def compile(self) -> None:
        """Compiles the ops between a layer's GEMMs: faster from the second minute on."""
        set_layer_ops(self.model, compiled_layer_ops())

    def run(self, checkpoint: Path, report: Callable[[int, float, float], None]) -> None:
        """Trains up to `options.updates`, saving to `checkpoint`; calls `report(update, loss, accuracy)` each time."""
        while self.update < self.options.updates:
            loss, accuracy = self.step(self.batches.at(self.update))
            self.update += 1
            if self._team.rank > 0:
                continue
            report(self.update, loss, accuracy)
            if self.update % self.options.save_every == 0 or self.update == self.options.updates:
                self.save(checkpoint)

    def step(self, batch: Batch) -> tuple[float, float]:
        """One update. Returns the loss and the share of answer positions predicted right."""
        generator = torch.Generator().manual_seed(self.options.seed * 1_000_003 + self.update)
        canvas = corrupt(batch.canvas_ids, self.model.config.vocab_size, generator)
        weights = position_weights(batch, padding=self.options.padding_weight)
        weights /= weights.sum()
        answers = batch.is_answer.sum()
        rows = self._team.rows
        draws = _Draws.of(canvas, self.model.config.vocab_size, generator)
        batch, canvas, weights = batch.take(rows), canvas[rows], weights[rows]
        canvas, soft = self._condition(batch, canvas, draws, rows)
        self._balance.start()
        logits = batched_logits(self.model, batch.encoder_ids, batch.encoder_rows, canvas, soft)
        losses = F.cross_entropy(logits.flatten(0, 1), batch.canvas_ids.flatten(), reduction="none")
        loss = (losses * weights.flatten()).sum()
        right = (logits.detach().argmax(dim=-1) == batch.canvas_ids)[batch.is_answer].sum() / answers
        balance = self.options.balance_weight * self._balance.loss() / self._team.size
        (loss + balance).backward()  # type: ignore[no-untyped-call]
        sums = torch.stack((loss.detach(), right))
        self._team.add_up([sums, *(p.grad for p in self._parameters.values() if p.grad is not None)])
        torch.nn.utils.clip_grad_norm_(self._parameters.values(), 1.0)
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] * self.options.rate_at(self.update)
            optimizer.step()
            optimizer.zero_grad()
        return sums[0].item(), sums[1].item()

    def _condition(self, batch: Batch, canvas: Tensor, draws: _Draws, rows: slice) -> tuple[Tensor, Tensor | None]:
        """The canvases to learn from, and the soft embedding of an earlier prediction."""
        if draws.kind < _PLAIN:
            return canvas, None
        with torch.no_grad():
            first = batched_logits(self.model, batch.encoder_ids, batch.encoder_rows, canvas, None)
            first = first / draws.temperature
            soft = batched_soft_embedding(self.model, first)
            if draws.kind < _PLAIN + _CONDITIONED:
                return canvas, soft
            return next_canvases(first, draws.uniforms[rows], draws.noise[rows], self.options.entropy_bound), soft

    def save(self, path: Path) -> None:
        """Writes everything a later run needs, atomically."""
        partial = path.with_suffix(".partial")
        state = {
            "model": {name: parameter.detach() for name, parameter in self._parameters.items()},
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
            "update": self.update,
        }
        torch.save(state, partial)
        partial.replace(path)

    def resume(self, path: Path) -> None:
        """Continues from a file that `save` wrote.

        Raises:
            UsageError: other parameters were trained there.
        """
        state = torch.load(path, weights_only=True)
        if state["model"].keys() != self._parameters.keys():
            raise UsageError(f"`{path}` is of another training", "name another folder for this one")
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.copy_(state["model"][name])
        for optimizer, optimizer_state in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(optimizer_state)
        self.update = state["update"]


@dataclass(frozen=True, kw_only=True)
class _Draws:
    """The random draws of an update other than its noise, for the whole batch [B, L]."""

    kind: float
    temperature: float
    uniforms: Tensor
    noise: Tensor

    @classmethod
    def of(cls, canvas: Tensor, vocab_size: int, generator: torch.Generator) -> _Draws:
        kind, temperature = torch.rand(2, generator=generator).tolist()
        return cls(
            kind=kind,
            temperature=0.4 + 0.4 * temperature,
            uniforms=torch.rand(canvas.shape, generator=generator),
            noise=torch.randint(vocab_size, canvas.shape, generator=generator),
        )


def position_weights(batch: Batch, *, padding: float) -> Tensor:
    """Loss weight of each position [B, L]: 1 over the root of its answer's length; for padding, `padding` times that.

    A sum of three digits is as much of a task as a record of fifty tokens.
    """
    weights = torch.where(batch.is_answer, 1.0, padding)
    return weights * batch.is_answer.sum(dim=1, keepdim=True).rsqrt()


def corrupt(ids: Tensor, vocab_size: int, generator: torch.Generator) -> Tensor:
    """Adds noise to canvases [B, L]: each draws a level from 0..1 and that share of its ids becomes uniform noise.

    The density of the level rises linearly, clipped at 1: a canvas that is almost clean can be filled in without
    reading the prompt, so reading it is learnt from the noisy ones, and every generation begins with pure noise.
    """
    level = (_MOST_NOISE * torch.rand(ids.shape[0], 1, generator=generator).sqrt()).clamp(max=1.0)
    noise = torch.randint(vocab_size, ids.shape, generator=generator)
    return torch.where(torch.rand(ids.shape, generator=generator) < level, noise, ids)


def next_canvases(logits: Tensor, uniforms: Tensor, noise: Tensor, entropy_bound: float) -> Tensor:
    """The sampler's next canvases [B, L], so that training sees those that generation makes.

    In most of the sampler's canvases, what is copied from the prompt is clean and what follows from it is noisy: the
    sampler accepts the surest positions first. Noise drawn independently per position seldom gives such a canvas.

    Args:
        logits: [B, L, V], scaled by the temperature of the step.
        uniforms: [B, L] in 0..1, one draw per position.
        noise: [B, L] ids for the positions that are not accepted.
    """
    log_probs = logits.log_softmax(dim=-1)
    probs = log_probs.exp()
    entropy = -torch.linalg.vecdot(probs, log_probs)
    drawn = inverse_cumulative(probs.flatten(0, 1), uniforms.flatten()).view_as(noise)
    return renoise(drawn, accept(entropy, entropy_bound), noise)


class _LoadBalance:
    """Load-balancing loss: share of rows times share of probability of each expert, summed over experts and layers.

    It is that of Switch Transformers (arXiv 2101.03961, equation 4) with the router's own top-k choice.
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
        return torch.stack(terms).mean()
