"""A program that imports the package finds its process unchanged, and no model left that it has dropped."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

from localdiff import Conversation, Engine, GenerateOptions
from tests.screens.processes import environment

PROGRAM = """
import gc, locale, logging, os, random, signal, sys, threading, warnings
import torch

def state():
    return {
        "signals": [signal.getsignal(number) for number in signal.valid_signals()],
        "warnings": list(warnings.filters),
        "logging": (list(logging.root.handlers), logging.root.level, logging.getLogger("localdiff").handlers),
        "hooks": (sys.excepthook, sys.displayhook, threading.excepthook),
        "locale": locale.setlocale(locale.LC_ALL),
        "variables": dict(os.environ),
        "folder": os.getcwd(),
        "garbage": (gc.isenabled(), gc.get_freeze_count()),
        "threads": threading.active_count(),
        "random": (random.getstate(), torch.get_rng_state().tolist()),
        "torch": (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()),
    }

before = state()
from localdiff import Engine, GenerateOptions
from localdiff.events import RunFinished

engine = Engine.load("demo", device="cpu")
events = list(engine.generate("Say hello.", GenerateOptions(max_tokens=16)))
assert isinstance(events[-1], RunFinished)
after = state()
assert not (changed := [name for name in before if after[name] != before[name]]), changed
"""


def test_nothing_in_the_process_changes_and_nothing_is_printed() -> None:
    env = environment(OMP_NUM_THREADS="1")  # otherwise a small model sets torch to one thread, see `docs/python.md`
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_model_that_nobody_refers_to_is_gone_at_once() -> None:
    """Otherwise its memory on a GPU would wait for a garbage collection, which nothing may trigger."""
    engine = Engine.load("demo", device="cpu")
    conversation = Conversation(engine)
    for _ in conversation.answer([{"role": "user", "content": "Say hello."}], GenerateOptions(max_tokens=16)):
        pass
    unfinished = engine.generate("Say hello.")
    next(unfinished)
    model = weakref.ref(engine.model)
    gc.disable()
    try:
        del engine, conversation, unfinished
        assert model() is None
    finally:
        gc.enable()
