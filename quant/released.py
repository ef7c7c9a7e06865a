"""The released checkpoint: every tensor's name and shape, from the numbers in its `config.json`.

Knows the published layout of google/diffusiongemma-26B-A4B-it; reads no file. From it a plan can be made without a
network, and a checkpoint of the same widths with fewer layers can be described.
"""

from __future__ import annotations

from collections.abc import Iterator

MODEL = "google/diffusiongemma-26B-A4B-it"
LAYERS, FULL_EVERY = 30, 6
MIN_LAYERS = FULL_EVERY
"""With fewer there is no full layer, or no layer between the first and the last, which recipes treat separately."""
MAX_POSITIONS = 262_144
VISION_LAYERS = 27
DTYPE_BYTES = 2

_WIDTH, _MLP, _EXPERT_MLP, _EXPERTS, _VOCAB = 2816, 2112, 704, 128, 262_144
_HEADS, _KV_HEADS, _HEAD, _FULL_KV_HEADS, _FULL_HEAD = 16, 8, 256, 2, 512
_VISION_WIDTH, _VISION_MLP, _VISION_HEAD, _PATCH, _POSITIONS = 1152, 4304, 72, 768, 10_240
_NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")

Shape = tuple[int, ...]


def released_shapes(layers: int = LAYERS) -> dict[str, Shape]:
    """Name → shape of every tensor, all of them bf16; 1,047 tensors for the released 30 layers."""
    tensors = dict(_outer())
    for layer in range(layers):
        tensors |= {f"model.decoder.layers.{layer}.{name}": shape for name, shape in _layer(_is_full(layer))}
        tensors[f"model.encoder.language_model.layers.{layer}.layer_scalar"] = (1,)
    for layer in range(VISION_LAYERS):
        prefix = f"model.encoder.vision_tower.encoder.layers.{layer}."
        tensors |= {prefix + name: shape for name, shape in _vision_layer()}
    return tensors


def _is_full(layer: int) -> bool:
    return layer % FULL_EVERY == FULL_EVERY - 1


def _outer() -> Iterator[tuple[str, Shape]]:
    yield "model.decoder.embed_tokens.weight", (_VOCAB, _WIDTH)
    yield "model.decoder.norm.weight", (_WIDTH,)
    yield "model.decoder.self_conditioning.pre_norm.weight", (_WIDTH,)
    for name, shape in _gated_mlp(_WIDTH, _MLP):
        yield f"model.decoder.self_conditioning.{name}.weight", shape
    yield "model.encoder.embed_vision.embedding_projection.weight", (_WIDTH, _VISION_WIDTH)
    tower = "model.encoder.vision_tower."
    yield tower + "std_bias", (_VISION_WIDTH,)
    yield tower + "std_scale", (_VISION_WIDTH,)
    yield tower + "patch_embedder.position_embedding_table", (2, _POSITIONS, _VISION_WIDTH)
    yield tower + "patch_embedder.input_proj.weight", (_VISION_WIDTH, _PATCH)


def _layer(full: bool) -> Iterator[tuple[str, Shape]]:
    for norm in _NORMS:
        yield f"{norm}.weight", (_WIDTH,)
    for norm in ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2"):
        yield f"{norm}.weight", (_WIDTH,)
    yield "layer_scalar", (1,)
    head = _FULL_HEAD if full else _HEAD
    queries, keys = _HEADS * head, (_FULL_KV_HEADS if full else _KV_HEADS) * head
    yield "self_attn.q_proj.weight", (queries, _WIDTH)
    yield "self_attn.k_proj.weight", (keys, _WIDTH)
    if not full:
        yield "self_attn.v_proj.weight", (keys, _WIDTH)
    yield "self_attn.o_proj.weight", (_WIDTH, queries)
    yield "self_attn.q_norm.weight", (head,)
    yield "self_attn.k_norm.weight", (head,)
    for name, shape in _gated_mlp(_WIDTH, _MLP):
        yield f"mlp.{name}.weight", shape
    yield "router.proj.weight", (_EXPERTS, _WIDTH)
    yield "router.scale", (_WIDTH,)
    yield "router.per_expert_scale", (_EXPERTS,)
    yield "experts.gate_up_proj", (_EXPERTS, 2 * _EXPERT_MLP, _WIDTH)
    yield "experts.down_proj", (_EXPERTS, _WIDTH, _EXPERT_MLP)


def _vision_layer() -> Iterator[tuple[str, Shape]]:
    for norm in _NORMS:
        yield f"{norm}.weight", (_VISION_WIDTH,)
    for letter in "qkvo":
        yield f"self_attn.{letter}_proj.linear.weight", (_VISION_WIDTH, _VISION_WIDTH)
    for letter in "qk":
        yield f"self_attn.{letter}_norm.weight", (_VISION_HEAD,)
    for name, shape in _gated_mlp(_VISION_WIDTH, _VISION_MLP):
        yield f"mlp.{name}.linear.weight", shape


def _gated_mlp(width: int, inner: int) -> Iterator[tuple[str, Shape]]:
    yield "gate_proj", (inner, width)
    yield "up_proj", (inner, width)
    yield "down_proj", (width, inner)
