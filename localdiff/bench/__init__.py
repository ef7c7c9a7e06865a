"""Benchmarks that a user can repeat: `quality` runs `localdiff run`'s engine, `step` only its model and denoiser."""
