"""Quantized weights: recipes, codecs, jobs, verification, run-time modules.

Reads and writes tensors by name; does not know what a canvas is, and imports nothing of `localdiff`. This module
itself is light, so that recipes and errors can be named without loading torch; everything else is imported from its
own module.
"""

from .errors import QuantError
from .recipe import DEFAULT_RECIPE, RECIPES, Recipe, Rule, recipe_named

__all__ = ["DEFAULT_RECIPE", "RECIPES", "QuantError", "Recipe", "Rule", "recipe_named"]
