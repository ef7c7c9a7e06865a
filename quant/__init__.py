"""Quantized weights: recipes, codecs, jobs, verification, run-time modules.

    cuda, cpu            fast forms of the modules for GPUs and CPUs
    modules              linear layers, experts and embedding over stored codes
    jobs                 from a checkpoint to a quantized one, and its verification
    planning             what a recipe makes of a checkpoint
    files                files of weights, and the manifest
    codecs               the number formats

    recipe               which tensor is stored how
    released             the released checkpoint's tensors and shapes
    dtypes, switch       names of dtypes; variables that choose a path of the code
    process_limits       cores and memory that a container allows
    errors, unsupported  errors for users; why a fast path does not run here
    gpus, instructions   GPUs that torch can compute on, and their memory; what this CPU has instructions for
    names                names of the files and directories of a quantized model
    renaming, hashing    temporary and final names of files; SHA-256 of files

Reads and writes tensors by name; does not know what a canvas is, and imports nothing of `localdiff`. This module
itself is light, so that recipes and errors can be named without loading torch; everything else is imported from its
own module.
"""

from quant.errors import QuantError
from quant.names import MANIFEST_FILE
from quant.recipe import DEFAULT_RECIPE, RECIPES, recipe_named

__all__ = ["DEFAULT_RECIPE", "MANIFEST_FILE", "RECIPES", "QuantError", "recipe_named"]
