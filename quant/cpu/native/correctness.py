"""Whether the kernels compute what they should: small inputs, and the right results in fp64, as the kernels round.

Knows what each kernel computes; compiles none.
Shape letters: E experts, H heads, N rows, d head size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from quant.codecs import CODECS
from quant.codecs.codec import GROUP, Encoded
from quant.codecs.nf4 import LEVELS
from quant.cpu.native.attention import NativeAttention
from quant.cpu.native.library import STEPS, NativeLibrary

LIMIT = 1e-5
"""Maximum relative difference from the same sums in fp64."""

ATTENTION_LIMIT = 5e-3
"""The same for attention, which is rounded to bf16 once or twice: the result, and perhaps `p`."""


def is_correct(library: NativeLibrary) -> bool:
    """Whether all kernels compute what they should."""
    return (
        all(are_products_correct(library, codec) for codec in CODECS)
        and is_soft_embedding_correct(library)
        and are_statistics_correct(library)
        and is_attention_correct(library.attention)
    )


def are_products_correct(library: NativeLibrary, codec: str) -> bool:
    """Whether products with a codec's weights are the integer sums that they should be."""
    generator = torch.Generator().manual_seed(0)
    number, out, width, rows = 2, 2 * library.lanes, 2 * GROUP, 11
    encoded = random_weights(codec, (number, out, width), generator)
    x = torch.randn(rows, width, dtype=torch.float32, generator=generator)
    chosen = torch.arange(2 * rows) % rows
    result = library.multiply(x, encoded, chosen, [rows, rows])
    expected = (rounded(x) @ decoded(codec, encoded).mT).flatten(0, 1)
    return bool((result.double() - expected).norm() <= LIMIT * expected.norm())


def is_soft_embedding_correct(library: NativeLibrary) -> bool:
    """Whether soft embeddings equal those of the decoded rows, over the right ids."""
    generator = torch.Generator().manual_seed(0)
    table = random_weights("int8", (1, 700, 5 * GROUP), generator)  # several tiles, and a panel that is not full
    logits = torch.randint(0, 4, (5, 700), generator=generator).float()
    logits[torch.rand(logits.shape, dtype=torch.float32, generator=generator) < 0.7] = -60.0
    expected = logits.double().softmax(dim=-1) @ decoded("int8", table)[0]
    for dtype in (torch.float32, torch.bfloat16):
        result, sizes = library.soft_embedding(
            table[0], logits.to(dtype), logits.logsumexp(dim=-1), tail=1e-3, max_ids=700
        )
        if not torch.equal(sizes, (logits >= 0).sum(dim=-1)):
            return False
        if not bool((result.double() - expected).norm() <= LIMIT * expected.norm()):
            return False
    return True


def are_statistics_correct(library: NativeLibrary) -> bool:
    """Whether statistics of logits, and the scores that replace logits, equal those in fp64."""
    generator = torch.Generator().manual_seed(0)
    softcap, temperature, rows, vocabulary = 30.0, 0.5, 9, 1024
    logits = torch.randn(rows, vocabulary, dtype=torch.float32, generator=generator)
    logits *= torch.logspace(-1, 2, rows, dtype=torch.float32)[:, None]
    uniforms = torch.rand(rows, dtype=torch.float32, generator=generator)
    scores = softcap * (logits.double() / softcap).tanh() / temperature
    probs = scores.softmax(dim=-1)
    found = library.logits(logits, softcap=softcap, temperature=temperature, uniforms=uniforms)  # overwrites them
    drawn = found.sampled[:, None]
    above = probs.cumsum(dim=-1).gather(1, drawn).squeeze(1) - uniforms
    pairs = (
        (logits, scores),
        (found.entropy, torch.special.entr(probs).sum(dim=-1)),
        (found.argmax_prob, probs.amax(dim=-1)),
        (found.log_normalizer, scores.logsumexp(dim=-1)),
    )
    return (
        all(bool((result.double() - expected).norm() <= LIMIT * expected.norm()) for result, expected in pairs)
        and torch.equal(found.argmax, scores.argmax(dim=-1))
        and bool(((above > -LIMIT) & (above < probs.gather(1, drawn).squeeze(1) + LIMIT)).all())
    )


def is_attention_correct(attention: NativeAttention) -> bool:
    """Whether attention equals the same in fp64: several blocks of keys, two parts, half masked."""
    generator = torch.Generator().manual_seed(0)
    heads, kv_heads, rows, total, d = 4, 2, 30, 200, 128
    q, k, v = (
        torch.randn(number, length, d, dtype=torch.float32, generator=generator).to(torch.bfloat16)
        for number, length in ((heads, rows), (kv_heads, total), (kv_heads, total))
    )
    q /= d**0.5
    mask = torch.rand(rows, total, dtype=torch.float32, generator=generator) < 0.5
    mask[:, 0], mask[0] = True, False
    result = attention(q, [(k[:, :90], v[:, :90]), (k[:, 90:], v[:, 90:])], mask).double()
    expected = attended(q, k, v, mask)
    return bool((result - expected).norm() <= ATTENTION_LIMIT * expected.norm())


def attended(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Attention [H, N, d] in fp64; zeros for a row that sees no key."""
    group = q.shape[0] // k.shape[0]
    scores = q.double() @ k.double().repeat_interleave(group, dim=0).mT
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(dim=-1).nan_to_num(0.0) @ v.double().repeat_interleave(group, dim=0)


def random_weights(codec: str, shape: tuple[int, int, int], generator: torch.Generator) -> Encoded:
    """Random codes, and scales of both signs."""
    number, out, width = shape
    of_scales = torch.randn(number, out, width // GROUP, dtype=torch.float32, generator=generator)
    if codec == "nf4":
        codes = torch.randint(0, 256, (number, out, width // 2), dtype=torch.uint8, generator=generator)
    else:
        codes = torch.randint(-STEPS, STEPS + 1, shape, dtype=torch.int8, generator=generator)
    return Encoded(codes=codes, scales=of_scales.to(torch.bfloat16))


def rounded(x: Tensor) -> Tensor:
    """Rows [R, in] as the kernel rounds them, in fp64; the kernel takes groups below 1e-34 for zeros."""
    groups = x.float().view(*x.shape[:-1], -1, GROUP)
    scales = groups.abs().amax(dim=-1, keepdim=True) / STEPS
    codes = (groups * torch.where(scales > 0, 1 / scales, 0.0)).round()
    return (codes.double() * scales.double()).view(x.shape)


def decoded(codec: str, encoded: Encoded) -> Tensor:
    """Weights [E, out, in] as the kernel decodes them, in fp64."""
    scales = encoded.scales.double().repeat_interleave(GROUP, dim=-1)
    if codec == "int8":
        return encoded.codes.double() * scales
    levels = (torch.tensor(LEVELS, dtype=torch.float64) * STEPS).round() / STEPS
    pairs = torch.stack((levels[(encoded.codes >> 4).long()], levels[(encoded.codes & 15).long()]), dim=-1)
    return pairs.flatten(-2) * scales
