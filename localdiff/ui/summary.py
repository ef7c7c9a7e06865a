"""A whole run as one JSON object: what `--json` prints.

Knows the keys, which `docs/json.md` describes; computes nothing, every figure comes from the engine.
"""

from __future__ import annotations

from localdiff import __version__
from localdiff.identity import ModelIdentity
from localdiff.quoting import printable
from localdiff.ui.reply import Reply


def shown_model(identity: ModelIdentity) -> str:
    """Model and adapter, for display."""
    adapter = "" if identity.adapter is None else f" with the adapter {printable(identity.adapter)}"
    return printable(identity.model) + adapter


def summary(reply: Reply, identity: ModelIdentity) -> dict[str, object]:
    """The object of a run that has finished.

    Raises:
        ValueError: it has not.
    """
    stats = reply.stats
    if stats is None:
        raise ValueError("a summary needs the figures of a run that has finished")
    return {
        "text": reply.answer,
        "token_ids": list(reply.ids),
        "tokens": stats.tokens,
        "reason": reply.reason,
        "prompt_tokens": stats.prompt_tokens,
        "prompt_seconds": stats.prompt_seconds,
        "blocks": [{"steps": block.steps, "seconds": block.seconds, "reason": block.reason} for block in stats.blocks],
        "seconds": stats.seconds,
        "tok_per_s": stats.tok_per_s,
        "denoise_passes": stats.denoise_passes,
        "commit_passes": stats.commit_passes,
        "tokens_per_step": stats.tokens_per_step,
        "seed": reply.seed,
        "model": identity.model,
        "adapter": identity.adapter,
        "recipe": identity.recipe,
        "revision": identity.revision,
        "device": identity.device,
        "version": __version__,
    }
