"""A measurement from start to end: ceilings, a subject, its passes, the figures.

Knows the order; knows nothing about options or streams.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from localdiff.bench.step.ceilings import Ceilings, measure_ceilings
from localdiff.bench.step.code_paths import paths_of
from localdiff.bench.step.measure import Stopwatch
from localdiff.bench.step.memory import forget_device_peak, forget_peak, memory_use
from localdiff.bench.step.report import Report, make_report
from localdiff.bench.step.subject import Make, Progress
from localdiff.denoising import StepPath
from localdiff.machine.hardware import hardware_name
from localdiff.sizes import counted
from quant.cuda.timed import timed_count


def run(
    *,
    context: int,
    steps: int,
    make: Make,
    ceilings_of: Callable[[torch.device], Ceilings] = measure_ceilings,
    progress: Progress = lambda _: None,
) -> Report:
    """Measures a model on a device.

    Args:
        ceilings_of: measures what the device can do, before a model is on it.

    Raises:
        ResourceError: the model does not fit, or kernels fail or compute other numbers than the plain path.
    """
    where = make.device
    progress("measuring what this machine can do at best")
    ceilings = ceilings_of(where)
    remembered = forget_peak(where)
    subject = make(progress)
    forget_device_peak(where)  # converting and comparing weights takes more memory than a step
    stopwatch = Stopwatch(subject, context=context, progress=progress)
    timings = stopwatch.measure(steps)
    path = stopwatch.denoiser.path_taken
    count = timed_count(subject.device)
    timed = f", {counted(count, 'timed tile')}" if count else ""
    return make_report(
        subject,
        timings,
        ceilings,
        paths_of(subject.network, subject.dtype, "" if path == StepPath() else f"{path}{timed}"),
        memory_use(subject.device, remembered=remembered),
        context=context,
        hardware=hardware_name(subject.device),
        threads=torch.get_num_threads(),
    )
