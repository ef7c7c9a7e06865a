"""What the package offers without loading anything heavy."""

from __future__ import annotations

import subprocess
import sys

from tests.screens.processes import ROOT


def test_naming_a_recipe_or_an_event_loads_neither_torch_nor_bitsandbytes() -> None:
    program = "import sys, quant, quant.jobs.events, quant.recipe; print({'torch', 'bitsandbytes'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


def test_neither_a_job_nor_its_library_loads_bitsandbytes() -> None:
    """Its import takes seconds and may fetch code."""
    program = (
        "import sys, quant.jobs.run, quant.planning.plan, quant.modules; "
        "from quant.cpu.bitsandbytes_library import nf4_library; nf4_library(); "
        "print({'bitsandbytes', 'kernels'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"
