"""Whether the kernels of a denoise step compute what the plain path does, with the weights of a loaded model.

Knows the parts of a step that run in Triton, and what each is compared with. `quant.cuda.parity` does the same for the
products with stored weights, and knows how far apart numbers may be.
Shape letters: N rows, H query heads, K key-value heads, d head size, E experts, S parts of a sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, cast

import torch
from torch import Tensor, nn

from localdiff.denoising.path import StepPath, int8_embedding
from localdiff.denoising.static.reading import ReadAndDecide, read_through_torch, read_through_triton
from localdiff.kernels.decision import StepBuffers
from localdiff.kernels.decision_layout import (
    ACCEPTED,
    ARGMAX,
    BOUND,
    CONFIDENCE,
    CONFIDENT,
    CONTROLS,
    ENTROPY,
    FINITE,
    HEADER,
    MEAN_ENTROPY,
    PROBABILITY,
    ROWS,
    RULE,
    RULES,
    SAMPLED,
    SHOWN,
    STABILITY,
    STABLE,
    STEP,
    STOP,
    TEMPERATURE,
    bits_of,
)
from localdiff.model.attention import attend_cached, attend_through_triton
from localdiff.model.block import Layer
from localdiff.model.cache import LayerCache
from localdiff.model.config import LayerConfig
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.model.fused_layer_ops import FusedLayerOps
from localdiff.model.layer_ops import PLAIN, LayerOps
from localdiff.model.projections import Projections, can_leave_parts, last_projection
from quant.cuda.fused_projections import FusedProjections
from quant.cuda.parity import Draws, ParityError, assert_parity
from quant.cuda.soft import SparseSoft
from quant.cuda.switches import Part
from quant.modules.embedding import QuantEmbedding, probabilities
from quant.modules.linear import Linear

Op: TypeAlias = Callable[[LayerOps], tuple[Tensor, ...]]

_SPREAD, _PEAK = 4.0, 20.0
"""Standard deviation of logits, and the highest of each row."""
_SPARSE_SPREAD = 3.0
"""Standard deviation for sparse self-conditioning: some forty of 262,144 ids are probable, which fits its capacity."""
_KEPT = 16
"""Rows of processed logits that are compared; a copy of all rows would not fit beside a large model."""
_SHARES = 2, 4, 16
"""Pieces of a prompt have a canvas's rows divided by these: the fewer rows, the more programs split their keys."""
_SAME = 0.9
"""Minimum share of a canvas on which both paths must decide the same."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Compares the kernels of one part with the plain path.

    Attributes:
        part: its word in `LOCALDIFF_CUDA_PLAIN`; None if it has no switch there.
        errors: computes both, and returns the relative errors by what the kernels compute; raises ParityError if they
            compute other numbers than the plain path.
        needs: parts whose kernels it runs, too: where one of them fails, that says nothing about `part`.
    """

    part: Part | None
    errors: Callable[[], dict[str, float]]
    needs: Collection[Part] = ()


def comparisons(model: DiffusionGemma, path: StepPath) -> list[Comparison]:
    """One comparison for each part that a model and its steps on a path compute in kernels.

    One layer of each kind is tried, among those whose weights are on the device of the model's last norm.
    """
    trials = _Trials(model)
    found = [comparison for config, layer in trials.kinds().items() for comparison in trials.of_layer(config, layer)]
    if path.logits:
        as_probabilities = not path.sparse
        found.append(Comparison("logits", partial(trials.compare, partial(trials.try_logits, as_probabilities))))
    if path.sparse:
        found.append(Comparison(None, partial(trials.compare, trials.try_sparse_soft)))
    return found


def _summed(scores: Tensor, dtype: torch.dtype) -> Tensor:
    """Scores [N, E], summed if they were left in parts [S, N, E]."""
    return scores.sum(dim=0).to(dtype) if scores.dim() > 2 else scores


def _parts(scores: Tensor) -> Tensor:
    """Scores [N, E] as parts [3, N, E] in fp32 with an exact sum: each part has the scores of every third expert."""
    place = torch.arange(scores.shape[1], device=scores.device) % 3
    return scores.float() * (place == torch.arange(3, device=scores.device)[:, None])[:, None]


def _one(compute: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, ...]:
    return (compute(x),)


def _end_of_layer(layer: Layer, is_canvas: Tensor, dense: Tensor, ops: LayerOps) -> tuple[Tensor, ...]:
    """The end of a layer for this output of the dense MLP; the residual and the experts' output are 0."""
    none = torch.zeros(dense.shape[-2:], dtype=layer.layer_scalar.dtype, device=dense.device)
    return (layer.merge_branches(none, dense, none, None, is_canvas, ops),)


def assert_decided_alike(found: Tensor, expected: Tensor) -> None:
    """Compares what a step decides, one row of a canvas per kind of decision, with what the plain path decides.

    A sum in another order can fall on the other side of a uniform number, or of the entropy bound.

    Raises:
        ParityError: more decisions differ than that explains.
    """
    same = (found == expected).float().mean(dim=1)
    if bool((same < _SAME).any()):
        raise ParityError(f"decision of a step: {(1 - float(same.min())):.0%} of one kind differ from the plain path's")


class _Trials:
    """Tries kernels on random inputs; keeps the largest error of each."""

    def __init__(self, model: DiffusionGemma) -> None:
        self.errors: dict[str, float] = {}
        self._model, self._config = model, model.config
        self._dtype, self._device = model.norm.weight.dtype, model.norm.weight.device
        draws = Draws(self._device, self._dtype)
        self._normal, self._uniform = draws.normal, draws.uniform
        self._fused = FusedLayerOps()

    def kinds(self) -> dict[LayerConfig, Layer]:
        """The first layer of each kind."""
        layers: dict[LayerConfig, Layer] = {}
        for config, layer in zip(self._config.layers, self._model.layers, strict=True):
            assert isinstance(layer, Layer)
            if layer.layer_scalar.device == self._device:
                layers.setdefault(config, layer)
        return layers

    def of_layer(self, config: LayerConfig, layer: Layer) -> Iterator[Comparison]:
        """What compares the parts of a layer that it computes in kernels."""

        def comparison(part: Part, compare: Callable[[], None], *needs: Part) -> Comparison:
            return Comparison(part, partial(self.compare_in_layer, config, layer, compare), needs)

        is_fused = isinstance(layer.layer_ops, FusedLayerOps)
        if is_fused:
            yield comparison("layer-ops", partial(self.try_layer_ops, config, layer))
        if self._model.attends_through_triton:
            yield comparison("attention", partial(self.try_attention, config))
        if is_fused:
            yield comparison("layer-ops", partial(self.try_parts, config, layer), "dense")
        for module, has_gate in ((layer.self_attn, False), (layer.mlp, True)):
            if (fused := module.fused()) is not None:
                compare = partial(self.try_projections, fused, module, has_gate=has_gate)
                yield comparison("projections", compare, "dense", "decode")

    @torch.inference_mode()
    def compare(self, compare: Callable[[], None]) -> dict[str, float]:
        """The errors so far, once these kernels have been compared, too."""
        compare()
        return self.errors

    def compare_in_layer(self, config: LayerConfig, layer: Layer, compare: Callable[[], None]) -> dict[str, float]:
        """The same for kernels of a layer, whose weights may come and go."""
        try:
            with layer.present():
                return self.compare(compare)
        except ParityError as error:
            raise ParityError(f"a layer of {config.kind} attention: {error}") from None

    def try_layer_ops(self, config: LayerConfig, layer: Layer) -> None:
        """The ops between a layer's products, for a committed block and a canvas."""
        model, canvas = self._config, self._config.canvas_length
        rows, width = 2 * canvas, model.hidden_size
        x, y, dense = (self._normal(rows, width) for _ in range(3))
        self._hold_op("norm", lambda ops: (ops.norm(x, layer.input_layernorm.weight, layer.eps),))
        self._hold_op("ops after attention", lambda ops: layer.add_attention(x, y, ops))

        positions = torch.arange(rows, device=self._device)
        rotary = self._model.rotary_tables(positions, self._dtype)[config]
        q, k, v = self._heads(config, rows)
        values = None if config.keys_are_values else v
        norms = layer.self_attn.q_norm.weight, layer.self_attn.k_norm.weight
        self._hold_op("heads", lambda ops: ops.qkv_norm_rope(q, k, values, *norms, rotary, layer.eps))

        gate, up = (self._normal(rows, model.intermediate_size) for _ in range(2))
        self._hold_op("gate", lambda ops: (ops.gelu_mul(gate, up),))

        router = layer.router
        routed_rows = self._normal(rows, width)
        if type(router.proj) is Linear:  # others are the same with both ops; with an adapter they run in layers only
            self._hold_op("router", lambda ops: (_summed(ops.scores(router.proj, routed_rows), self._dtype),))
        order = self._uniform(rows, model.num_experts).argsort(dim=-1)
        # No ties: of experts with the same score any may be chosen. From -3 to 3 even bf16 tells 128 steps apart.
        scores = (order * (6 / model.num_experts) - 3).to(self._dtype)

        def routed(ops: LayerOps, scores: Tensor) -> tuple[Tensor, ...]:
            index, weight = ops.route(scores, router.per_expert_scale, router.top_k)
            return (weight.new_zeros(rows, model.num_experts).scatter(1, index, weight),)

        expected = routed(PLAIN, scores)
        self._compare("routing", lambda: routed(self._fused, scores), expected)
        self._compare("routing, of parts", lambda: routed(self._fused, _parts(scores)), expected)
        outputs = self._normal(rows, router.top_k, width)
        _, routing_weights = PLAIN.route(scores, router.per_expert_scale, router.top_k)

        branches = x, dense, outputs, routing_weights, positions >= canvas
        self._hold_op("end of a layer", lambda ops: (layer.merge_branches(*branches, ops),))

    def try_parts(self, config: LayerConfig, layer: Layer) -> None:
        """The ops that sum parts of the products before them, where this model's projections leave them parts.

        All else that these ops add is 0; otherwise a part that is left out might be too small to notice.
        """
        canvas, inner = self._config.canvas_length, self._config.intermediate_size
        for rows in (canvas, 2 * canvas):
            none = torch.zeros(rows, self._config.hidden_size, dtype=self._dtype, device=self._device)
            heads = self._normal(rows, self._config.num_heads * config.head_dim)
            is_canvas = torch.arange(rows, device=self._device) >= rows - canvas
            self._hold_parts(
                "ops after attention, of parts", layer.self_attn.o_proj, heads, partial(layer.add_attention, none)
            )
            self._hold_parts(
                "end of a layer, of parts",
                layer.mlp.down_proj,
                self._normal(rows, inner),
                partial(_end_of_layer, layer, is_canvas),
            )

    def _hold_parts(
        self, name: str, projection: nn.Module, x: Tensor, op: Callable[[Tensor, LayerOps], tuple[Tensor, ...]]
    ) -> None:
        """Does nothing if a projection leaves no parts. With an adapter it leaves none, and only runs in layers."""
        if not can_leave_parts(projection):
            return
        parts = last_projection(projection, x, in_parts=True)
        if parts.dim() > 2:
            self._compare(name, lambda: op(parts, self._fused), op(parts.sum(dim=0).to(self._dtype), PLAIN))

    def try_attention(self, config: LayerConfig) -> None:
        """A canvas, alone and after a committed block; and short pieces of a prompt, whose keys most GPUs split."""
        canvas = self._config.canvas_length
        for commit_rows in (0, canvas):
            self._try_rows(config, commit_rows + canvas, commit_rows=commit_rows)
        for share in _SHARES:
            rows = max(1, canvas // share)
            self._try_rows(config, rows, commit_rows=rows)

    def _try_rows(self, config: LayerConfig, rows: int, *, commit_rows: int) -> None:
        """Rows after more cached positions than a ring holds."""
        canvas = self._config.canvas_length
        length = canvas + (config.window or canvas)
        cache = LayerCache(config, length + canvas, self._dtype, self._device)
        keys, values = (self._normal(*buffer.shape) for buffer in (cache.keys, cache.values))
        q, k, v = (part.transpose(0, 1) for part in self._heads(config, rows))
        q = q * config.head_dim**-0.5  # a norm's weight does that, so that scores are of order 1
        on_device = torch.full((), length, dtype=torch.int32, device=self._device)

        def attended(*, fast: bool) -> tuple[Tensor, ...]:
            cache.keys.copy_(keys)
            cache.values.copy_(values)
            through = attend_through_triton(cache, on_device, commit_rows)
            attend = through if fast else attend_cached(cache, length, commit_rows)
            return attend(q, k, v).transpose(0, 1), cache.keys.transpose(0, 1).clone(), cache.values.clone()

        self._compare("attention", lambda: attended(fast=True), attended(fast=False))

    def try_projections(self, fused: FusedProjections, module: Projections, *, has_gate: bool) -> None:
        """Several projections in one product, and a gate in the same launch, for a step's rows and a short piece's."""
        canvas = self._config.canvas_length
        for rows in (canvas, 2 * canvas, max(1, canvas // _SHARES[-1])):
            x = self._normal(rows, self._config.hidden_size)
            parts = tuple(projection(x) for projection in module.projections())
            self._compare("fused projections", partial(fused, x), parts)
            if has_gate and fused.gated(x) is not None:  # whether it can depends on the number of rows
                gated = cast(Callable[[Tensor], Tensor], fused.gated)
                self._compare("gated projections", partial(_one, gated, x), (PLAIN.gelu_mul(*parts),))

    def try_logits(self, as_probabilities: bool) -> None:
        """Statistics and decision of a canvas that is partly decided, and what its logits are overwritten with."""
        config, canvas = self._config, self._config.canvas_length
        logits = _SPREAD * self._normal(canvas, config.vocab_size)
        # One id per row is by far the most probable: if several were equal in bf16, any of them might be the argmax.
        logits.scatter_(1, self._ids(canvas)[:, None], _PEAK)
        inputs = StepBuffers(canvas, 1, self._dtype, self._device).inputs
        uniforms = self._uniform(canvas)
        inputs[CONTROLS:] = torch.cat((uniforms.view(torch.int32), self._ids(canvas).int()))
        inputs[TEMPERATURE], inputs[STABILITY], inputs[RULE], inputs[STEP] = bits_of(0.9), 1, RULES["both"], 2
        inputs[BOUND] = bits_of(canvas / 2)
        # No mean entropy comes near this, and the last draft is the same: the step stops.
        inputs[CONFIDENCE] = bits_of(math.log(config.vocab_size))
        old, draft = self._ids(canvas), logits.argmax(dim=-1)

        def read(how: ReadAndDecide) -> tuple[tuple[Tensor, ...], Tensor]:
            buffers, copy = StepBuffers(canvas, 1, self._dtype, self._device), logits.clone()
            buffers.inputs.copy_(inputs)
            buffers.canvas.copy_(old)
            buffers.draft.copy_(draft)
            normalizer = how(copy, buffers, softcap=config.softcap, sampled=True, as_probabilities=as_probabilities)
            rows = buffers.outcome[HEADER:].view(ROWS, canvas)
            mean_entropy = buffers.outcome[MEAN_ENTROPY : MEAN_ENTROPY + 1]
            statistics = (one.view(torch.float32) for one in (rows[PROBABILITY], rows[ENTROPY], mean_entropy))
            of_positions = (rows[place] for place in (ARGMAX, ACCEPTED, SAMPLED, SHOWN))
            of_all = (buffers.outcome[place].expand(canvas) for place in (STABLE, CONFIDENT, STOP, FINITE))
            return (
                (copy[-_KEPT:].clone(), normalizer, *statistics),
                torch.stack((*of_positions, buffers.canvas.int(), *of_all)),
            )

        right, decided = read(read_through_torch)
        self._compare("statistics of logits", lambda: read(read_through_triton)[0], right)
        assert_decided_alike(read(read_through_triton)[1], decided)

    def try_sparse_soft(self) -> None:
        """Self-conditioning over the probable ids, of a few rows, against the same sum through torch."""
        embedding = int8_embedding(self._model)
        if embedding is None:
            return
        sparse, vocab_size = SparseSoft(embedding), self._config.vocab_size
        logits = _SPARSE_SPREAD * self._normal(_KEPT, vocab_size)
        logits.scatter_(1, self._ids(_KEPT)[:, None], _PEAK)
        normalizer = logits.float().logsumexp(dim=-1)
        probs = probabilities(logits, normalizer, torch.float32)
        kept = torch.where(probs > sparse.threshold, probs, 0.0)
        tail = 1 - kept.sum(dim=-1, keepdim=True)
        right = QuantEmbedding.mean(embedding, kept.to(embedding.dtype)).float() + tail * sparse.mean_row
        self._compare("sparse self-conditioning", lambda: (sparse(logits, normalizer).embedding,), (right,))

    def _hold_op(self, name: str, op: Op) -> None:
        self._compare(name, lambda: op(self._fused), op(PLAIN))

    def _compare(self, name: str, compute: Callable[[], tuple[Tensor, ...]], expected: tuple[Tensor, ...]) -> None:
        self.errors[name] = max(assert_parity(name, compute, expected), self.errors.get(name, 0.0))

    def _heads(self, config: LayerConfig, rows: int) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [N, H, d], and keys and values [N, K, d]."""
        query_heads, heads, d = self._config.num_heads, config.num_kv_heads, config.head_dim
        return self._normal(rows, query_heads, d), self._normal(rows, heads, d), self._normal(rows, heads, d)

    def _ids(self, count: int) -> Tensor:
        return (self._uniform(count) * self._config.vocab_size).long()
