"""The engine: a prompt goes in, events come out.

    engine        the numbered phases of every run
    opening       from a user's name for a model to all that an engine needs
    loadable      the files that an engine needs in addition to weights, and whether they can be used
    arguments     checks of what a Python program passes
    run           one run: what was decided at its start, and what it has committed
    prefill       encodes the prompt in chunks
    draft         one block: from a canvas of noise to the last draft
    prefix_cache  the ids that a model has encoded, and their KV cache
    stats         the figures of a run

Knows tokens, the cache and the order of phases; knows nothing about terminals, output files, or how to draw.
"""

from localdiff.engine.engine import Engine
from localdiff.text.prompt import Prompt

__all__ = ["Engine", "Prompt"]
