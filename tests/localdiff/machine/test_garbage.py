"""When Python collects no garbage."""

import gc
import subprocess
import sys

from localdiff.machine.garbage import importing
from tests.screens.processes import ROOT, environment

PROGRAM = """
import atexit, gc, sys
class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == "localdiff.engine":
            print(gc.isenabled())
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
atexit.register(lambda: print(gc.isenabled(), gc.get_freeze_count() > 0))
from localdiff import cli
"""


def _said(call: str) -> str:
    words = ["run", "-m", "demo", "Hello"]
    program = PROGRAM + call
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, env=environment(), cwd=ROOT
    )
    assert done.returncode == 130
    return done.stdout


def test_a_command_collects_no_garbage_while_torch_is_imported_and_none_of_that_ever() -> None:
    assert _said("cli.main()") == "False\nTrue True\n"


def test_somebody_elses_process_collects_its_garbage_as_ever() -> None:
    assert _said("cli.main(sys.argv[1:])") == "True\nTrue False\n"
    before = gc.get_freeze_count()
    with importing():
        assert gc.isenabled()
    assert gc.get_freeze_count() <= before, "what is frozen may still be freed"


def test_a_model_that_is_there_when_something_is_imported_again_is_collected() -> None:
    program = """
import gc, weakref
from localdiff.machine import garbage
class Layer: pass
garbage.claim()
with garbage.importing():
    pass
layer = Layer()
layer.present = layer
alive = weakref.ref(layer)
del layer
with garbage.importing():
    pass
gc.collect()
print(gc.get_freeze_count() > 0, alive())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment(), cwd=ROOT)
    assert done.stdout == "True None\n"
