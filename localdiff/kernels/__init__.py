"""Kernels of a denoise step that work on activations and logits; those that work on weights are in `quant.cuda`.

    joints     norms, rotations, residuals and gates between the products of a layer, and the choice of experts
    attention  rows to the cache and to each other, from keys that all their query heads share
    logits     soft cap, temperature, statistics, argmax and one sample a row, from logits that are read once
    decision   acceptance, renoise and the stop test, in one launch

The files that end in `_kernels` are device code in Triton and import nothing of ours; the others launch it. Each is
held against the plain way of `localdiff.diffusion` or `localdiff.model` in a test, and runs in Triton's interpreter
where there is no card. Importing this package loads no Triton.
"""
