"""The memory that a plan's result will take once it runs, and whether a GPU of this machine has it.

Knows plans, names and sizes; loads nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from localdiff.memory_account import MemoryAccount, held_by_plan
from quant import RECIPES
from quant.errors import RecipeError
from quant.planning.encoder import Encoder, Gpu
from quant.planning.plan import Plan, describe_plan

_CONTEXTS = (8192, 32768)


def accounts(plan: Plan, config: Mapping[str, object]) -> dict[int, MemoryAccount]:
    """Context → what a GPU must hold; sizes missing in `config.json` are those of the released model.

    No context is longer than the model allows.
    """
    text = config.get("text_config")
    text = text if isinstance(text, Mapping) else {}
    sizes = {"window": text.get("sliding_window"), "canvas": config.get("canvas_length")}
    present_sizes = {name: size for name, size in sizes.items() if isinstance(size, int)}
    longest = text.get("max_position_embeddings")
    contexts = [min(context, longest) if isinstance(longest, int) else context for context in _CONTEXTS]
    tensors = held_by_plan(plan)
    return {context: MemoryAccount.of(tensors, context=context, **present_sizes) for context in contexts}


def gpu_to_run_on(plan: Plan, config: Mapping[str, object], encoder: Encoder) -> Gpu | None:
    """The GPU that the result will run on, as the loader chooses: the roomiest, if it does not fit the first."""
    first = encoder.gpu
    return first if first is not None and _fits(plan, config, first) else encoder.roomiest()


def alternative_recipe(plan: Plan, config: Mapping[str, object], gpu: Gpu | None) -> str | None:
    """The largest recipe that fits a GPU which this plan does not fit."""
    if gpu is None or _fits(plan, config, gpu):
        return None
    tensors = [tensor.source for tensor in plan.tensors]
    fitting = []
    for recipe in RECIPES.values():
        with suppress(RecipeError):  # not every width suits every recipe
            other = describe_plan(recipe, tensors)
            fitting += [other] if _fits(other, config, gpu) else []
    largest = max(fitting, key=lambda other: other.stored_bytes, default=None)
    return None if largest is None else largest.recipe.name


def _fits(plan: Plan, config: Mapping[str, object], gpu: Gpu) -> bool:
    """Whether a GPU has room for a plan's result with the shortest context."""
    return any(account.fits(gpu.free) for account in accounts(plan, config).values())
