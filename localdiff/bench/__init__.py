"""Benchmarks that a user can repeat.

step       the time of a denoise step and of its parts: the model and the denoiser alone
quality    how the answers of models differ: the engine of `localdiff run`
tuning     the tiles with which a GPU takes its steps fastest
"""
