"""The DiffusionGemma network: configuration, layers, cache and one forward for encoder and denoiser rows."""
