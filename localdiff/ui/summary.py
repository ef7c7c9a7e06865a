"""A whole run as one JSON object: what `--json` prints.

Knows the keys, which `docs/json.md` describes; computes nothing: every figure comes from the engine.
"""

from __future__ import annotations

from dataclasses import asdict

from localdiff import __version__
from localdiff.identity import ModelIdentity
from localdiff.ui.reply import Reply


def summary(reply: Reply, identity: ModelIdentity) -> dict[str, object]:
    """The object of a run; its figures are null if the run ended before the engine could give them."""
    stats = reply.stats
    return {
        "text": reply.answer,
        "token_ids": list(reply.ids),
        "tokens": stats and stats.tokens,
        "reason": reply.reason,
        "prompt_tokens": stats and stats.prompt_tokens,
        "prompt_seconds": stats and stats.prompt_seconds,
        "blocks": stats and [asdict(block) for block in stats.blocks],
        "seconds": stats and stats.seconds,
        "tok_per_s": stats and stats.tok_per_s,
        "denoise_passes": stats and stats.denoise_passes,
        "commit_passes": stats and stats.commit_passes,
        "tokens_per_step": stats and stats.tokens_per_step,
        "seed": reply.seed,
        "model": identity.model,
        "adapter": identity.adapter,
        "recipe": identity.recipe,
        "revision": identity.revision,
        "device": identity.device,
        "version": __version__,
    }
