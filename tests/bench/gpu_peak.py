"""The most memory that a card held during a measurement, whoever took it."""

from __future__ import annotations

import threading

import torch


class DevicePeak:
    """The most that was taken on a device while inside, by anybody, as far as a look now and then shows it.

    Looking takes locks of the driver, which steps that are being timed launch through: it must not be done often.
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
