"""Samples one card of AMD's by sysfs while it is under load, in a process of its own.

Started by `nodecheck.sources.crew` as a plain file

    python -I -S sysfs_sampler.py '{"card": …, "sysfs": "/sys", "every_seconds": 0.075}' REQUESTS_FD ANSWERS_FD

It only reads files: no library of AMD's, and nothing but the standard library. `card` is a UUID, which KFD's topology
tells the PCI address of, or that address; of a partition the whole package is sampled. Writes one JSON line a sample:

    {"at": 12.3, "sample": [sclk_mhz, watts, celsius, null, pcie_generation, pcie_width]}

`at` is `time.monotonic()`, one clock for the whole machine; null stands for what the card does not tell: a virtual
function has no sensors, and no plain file says why a clock is held down. Ends when the descriptor for requests, over
which none ever come, is closed, be it in the middle of a read that hangs; and at once where there is no such card, or
it tells nothing at all.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_MOST_BYTES = 4096
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""PCI Express, by GT/s."""


def address(card: str, sysfs: Path) -> str | None:
    """The PCI address of the card's package; None where KFD shows no such card."""
    if not card.startswith("GPU-"):
        return f"{card[:-1]}0"
    for path in sysfs.glob("class/kfd/kfd/topology/nodes/*/properties"):
        # A node that this container is not given cannot be read.
        with contextlib.suppress(OSError, ValueError):
            said = dict(re.findall(r"^(\w+) (\d{1,20})$", path.read_text(), re.MULTILINE))
            if int(said.get("unique_id", 0)) == int(card[4:], 16):
                place = int(said["location_id"])
                return f"{int(said['domain']):04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.0"
    return None


def read(path: Path, pattern: str, highest: float) -> float | None:
    """The first number that the pattern finds; None where the file cannot be read, or says what cannot be."""
    try:
        with path.open("rb") as file:
            said = re.search(pattern, file.read(_MOST_BYTES).decode("ascii", "replace"), re.MULTILINE)
    except OSError:
        return None
    value = float(said[1]) if said else -1.0
    return value if 0 <= value <= highest else None


def questions(device: Path) -> list[Callable[[], float | None]]:
    """What a sample asks, in its order. Units as the kernel has them (Documentation/gpu/amdgpu/thermal)."""
    sensors = next(iter(sorted(device.glob("hwmon/hwmon*"))), device / "hwmon")

    def sensor(name: str, per_unit: float, highest: float) -> float | None:
        value = read(sensors / name, r"^(\d{1,18})$", highest * per_unit)
        return None if value is None else value / per_unit

    def clock() -> float | None:
        active = read(device / "pp_dpm_sclk", r"^\s*\w{1,3}:\s*(\d{1,5})\s*[Mm][Hh]z\s*\*", 20_000)
        return sensor("freq1_input", 1_000_000, 20_000) if active is None else active

    def power() -> float | None:
        average = sensor("power1_average", 1_000_000, 20_000)
        return sensor("power1_input", 1_000_000, 20_000) if average is None else average

    def temperature() -> float | None:
        """Of the hottest spot; a card with one sensor alone calls that temp1."""
        hottest = sensor("temp2_input", 1000, 250)
        return sensor("temp1_input", 1000, 250) if hottest is None else hottest

    def generation() -> int | None:
        return _GENERATIONS.get(read(device / "current_link_speed", r"^(\d{1,3}(?:\.\d)?) GT/s", 64) or 0.0)

    return [
        clock,
        power,
        temperature,
        lambda: None,
        generation,
        lambda: read(device / "current_link_width", r"^(\d{1,2})$", 32) or None,
    ]


def end_with(descriptor: int) -> None:
    while os.read(descriptor, 4096):
        pass
    os._exit(0)


def main() -> None:
    order, requests, answers = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    threading.Thread(target=end_with, args=(requests,), daemon=True).start()
    sysfs = Path(order["sysfs"])
    place = address(order["card"], sysfs)
    if place is None:
        return
    asks = questions(sysfs / "bus" / "pci" / "devices" / place)
    while True:
        sample = [ask() for ask in asks]
        if all(value is None for value in sample):
            return
        os.write(answers, json.dumps({"at": time.monotonic(), "sample": sample}).encode() + b"\n")
        time.sleep(order["every_seconds"])


if __name__ == "__main__":
    main()
