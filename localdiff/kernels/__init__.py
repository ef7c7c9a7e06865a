"""Kernels of a denoise step that work on activations and logits; those that work on weights are in `quant.cuda`.

    layer_ops        fused ops between a layer's GEMMs: norms, RoPE, residuals, gates, routing
    attention        of rows to the cache and to each other, reading each key once for all query heads that share it
    logits           soft cap, temperature, statistics, argmax and one sample per row, from a single read of the logits
    decision         acceptance, renoise and the stop test, in one launch
    decision_layout  what a step exchanges with the host, place by place

The files that end in `_kernels` are device code in Triton, and the others launch it, on the device of their tensors.
Device code imports only Triton, other device code and `decision_layout`. Each kernel is tested against the plain path
in torch, and runs in Triton's interpreter where there is no GPU. Importing this package does not import Triton.
"""
