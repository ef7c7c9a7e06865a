"""Runs made for traces: a rerun of a recorded one, or one that shares its noise with another.

The only module of this package that knows an engine, and so the only one that needs torch.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import torch

from localdiff.diffusion.noise import PairedNoise
from localdiff.engine import Engine, Prompt
from localdiff.events import Event
from localdiff.options import GenerateOptions
from localdiff.trace.header import Header
from localdiff.trace.repeat import options_of, prompt_of


def rerun(engine: Engine, header: Header, *, cancel: threading.Event | None = None) -> Iterator[Event]:
    """Reruns what a header describes, on the recorded number of threads, which stays set."""
    if header.machine.threads is not None:
        torch.set_num_threads(header.machine.threads)
    prompt, options = prompt_of(header), options_of(header)
    if header.sampler.noise == "paired":
        return paired(engine, prompt, options, cancel=cancel)
    return engine.generate(prompt, options, cancel=cancel)


def paired(
    engine: Engine, prompt: Prompt, options: GenerateOptions, *, cancel: threading.Event | None = None
) -> Iterator[Event]:
    """A run with the same noise as any other run of the same seed at the same step of the same block.

    Args:
        options: with `seed` set.
    """
    assert options.seed is not None
    return engine.generate(prompt, options, noise=PairedNoise(options.seed), cancel=cancel)
