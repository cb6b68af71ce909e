"""Samples one card by NVML while it is under load, in a process of its own.

Started by `nodecheck.sources.crew` as a plain file

    python -I -S nvml_sampler.py '{"path": […], "uuid": …, "every_seconds": 0.075}' REQUESTS_FD ANSWERS_FD

so that nothing but the standard library and pynvml is imported. Writes one JSON line a sample:

    {"at": 12.3, "sample": [sm_mhz, watts, celsius, event reasons as NVML's bits, pcie_generation, pcie_width]}

`at` is `time.monotonic()`, one clock for the whole machine; null stands for what the card does not tell. Ends when
the descriptor for requests, over which none ever come, is closed, be it in the middle of a call that hangs.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

_PR_SET_PDEATHSIG = 1
_TEMPERATURE_GPU = 0


def questions(nvml: Any, card: Any) -> list[Callable[[], float]]:
    """What a sample asks, in its order."""

    def reasons() -> int:
        newer = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        # Older drivers and older pynvml know it by its old name alone.
        with contextlib.suppress(nvml.NVMLError):
            if newer is not None:
                return int(newer(card))
        return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(card))

    return [
        lambda: nvml.nvmlDeviceGetClockInfo(card, nvml.NVML_CLOCK_SM),
        lambda: nvml.nvmlDeviceGetPowerUsage(card) / 1000,
        lambda: nvml.nvmlDeviceGetTemperature(card, _TEMPERATURE_GPU),
        reasons,
        lambda: nvml.nvmlDeviceGetCurrPcieLinkGeneration(card),
        lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(card),
    ]


def sample(nvml: Any, asks: list[Callable[[], float]]) -> list[float | None]:
    def told(ask: Callable[[], float]) -> float | None:
        try:
            return ask()
        except (nvml.NVMLError, AttributeError):
            return None

    return [told(ask) for ask in asks]


def end_with(descriptor: int) -> None:
    while os.read(descriptor, 4096):
        pass
    os._exit(0)


def main() -> None:
    order, requests, answers = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    threading.Thread(target=end_with, args=(requests,), daemon=True).start()
    sys.path[:] = order["path"]
    import pynvml

    pynvml.nvmlInit()
    asks = questions(pynvml, pynvml.nvmlDeviceGetHandleByUUID(order["uuid"]))
    while True:
        line = {"at": time.monotonic(), "sample": sample(pynvml, asks)}
        os.write(answers, json.dumps(line).encode() + b"\n")
        time.sleep(order["every_seconds"])


if __name__ == "__main__":
    main()
