"""Quantized weights: recipes, codecs, jobs, verification, run-time modules.

    recipe, codec, codecs, int8, nf4       which tensor is stored how, and the number formats
    dtypes, released                       names of dtypes; the released checkpoint's tensors and shapes
    source, reader, slices                 weight files as their headers describe them, read in order, cut to pieces
    plan, memory, gpu                      what a recipe makes of a checkpoint, and what that needs to run
    job, run, shard, pool, output          a job that can be stopped anywhere, and its directory
    writer, disk, manifest                 how a shard, any file, and `quant.json` are written
    verify                                 a directory against its manifest
    events, errors                         what is told of a job, and what can go wrong
    bitsandbytes_tensor                    what bitsandbytes stored
    modules, cpu, cuda, switch             modules over stored codes, fast forms of them, and what turns those off

Reads and writes tensors by name; does not know what a canvas is, and imports nothing of `localdiff`. This module
itself is light, so that recipes and errors can be named without loading torch; everything else is imported from its
own module.
"""

from .errors import QuantError
from .recipe import DEFAULT_RECIPE, RECIPES, Recipe, Rule, recipe_named

__all__ = ["DEFAULT_RECIPE", "RECIPES", "QuantError", "Recipe", "Rule", "recipe_named"]
