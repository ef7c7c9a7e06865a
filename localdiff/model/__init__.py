"""The DiffusionGemma network: configuration, layers, cache and one forward for encoder and denoiser rows.

    diffusion_gemma                  the whole network
    batched                          its forward pass over a batch of whole sequences, for training
    config                           its shape, from `config.json`
    self_conditioning                what is added to the embedding of a canvas
    block                            one layer
    attention                        attention with all masks, in torch and in Triton
    cache                            keys and values of a sequence
    moe                              router and experts
    layers, projections, formulas    norm and gated MLP; projections of the same rows; RMSNorm, RoPE
    residence                        where the layers' weights are
    layer_ops, fused_layer_ops       what a layer computes between its GEMMs, in torch and in Triton

Knows rows of activations; knows nothing about sampling or text.
"""
