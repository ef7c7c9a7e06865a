"""Kernels of a denoise step that work on logits and positions; those that work on weights are in `quant.cuda`.

    logits     soft cap, temperature, statistics, argmax and one sample a row, from logits that are read once
    decision   acceptance, renoise and the stop test, in one launch

The files that end in `_kernels` are device code in Triton and import nothing of ours; the others launch it. Each is
held against the plain way of `localdiff.diffusion` in a test, and runs in Triton's interpreter where there is no card.
Importing this package loads no Triton.
"""
