"""The most memory in use on a card during a measurement, by whatever process."""

from __future__ import annotations

import threading

import torch


class DevicePeak:
    """The most memory in use on a device while inside, by any process, as far as an occasional look shows it.

    Looking takes locks of the driver that launches of the timed steps need, too, so it must not be done often.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._stop = device, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.nbytes = 0

    def __enter__(self) -> DevicePeak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(0.05):
            free, total = torch.cuda.mem_get_info(self._device)
            self.nbytes = max(self.nbytes, total - free)
