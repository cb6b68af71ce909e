"""What `lspci` lists: cards and NVSwitches on the bus."""

from __future__ import annotations

import re
from typing import Any

from nodecheck.facts import NOT_ASKED, Topology
from nodecheck.facts.topology import PciDevice
from nodecheck.imports.kind import Kind, Piece, Section
from nodecheck.probes.kernel_log import pci_address

_MAX_DEVICES = 4096
_DEVICE = re.compile(
    r"(?P<address>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[01][0-9a-f]\.[0-7]) "
    r"(?P<what>[A-Z0-9][\w /.-]{2,60}?)(?: \[(?P<class>[0-9a-f]{4})\])?: (?P<name>.{1,300})$"
)
_ID = re.compile(r"\[(?P<id>[0-9a-f]{4}:[0-9a-f]{4})\]")
_CLASSES = {
    "VGA compatible controller": "0300", "3D controller": "0302", "Display controller": "0380",
    "Processing accelerators": "1200", "Bridge": "0680",
}  # fmt: skip
_VENDORS = (("NVIDIA", "10de"), ("Advanced Micro Devices", "1002"))
_DETAILS = (
    ("max_speed_gt_per_s", re.compile(r"\s+LnkCap:.{0,80}?Speed (\d{1,3}(?:\.\d)?)GT/s"), float),
    ("max_width", re.compile(r"\s+LnkCap:.{0,120}?Width x(\d{1,2})"), int),
    ("current_speed_gt_per_s", re.compile(r"\s+LnkSta:.{0,20}?Speed (\d{1,3}(?:\.\d)?)GT/s"), float),
    ("current_width", re.compile(r"\s+LnkSta:.{0,80}?Width x(\d{1,2})"), int),
    ("numa_node", re.compile(r"\s+NUMA node: (\d{1,4})"), int),
)


def _read(section: Section) -> Piece:
    found: dict[str, dict[str, Any]] = {}
    now: dict[str, Any] | None = None
    listed = 0
    for line in section.text[:32_000_000].splitlines():
        if device := _DEVICE.match(line[:500]):
            listed += 1
            now = _device(device)
            if now is not None and len(found) < _MAX_DEVICES:
                found[now["address"]] = now
        elif now is not None:
            for name, pattern, read in _DETAILS:
                if match := pattern.match(line[:200]):
                    now.setdefault(name, read(match[1]))
            if (driver := re.match(r"\s+Kernel driver in use: (\S{1,40})", line[:100])) is not None:
                now["driver"] = driver[1]
    if not found:
        # A list of something else, cut out of the whole: it does not say that there are no cards.
        return Piece(remarks=(f"none of the {listed} devices is a card or an NVSwitch",))
    devices = tuple(PciDevice(**device) for device in found.values())
    return Piece(topology=Topology(pci_devices=devices if devices else NOT_ASKED))


def _device(match: re.Match[str]) -> dict[str, Any] | None:
    """A card or an NVSwitch; None for everything else."""
    pci_class = match["class"] or _CLASSES.get(match["what"], "")
    ids = _ID.findall(match["name"])
    vendor = next((number for name, number in _VENDORS if match["name"].startswith(name)), "")
    pci_id = ids[-1] if ids else f"{vendor}:????"
    if pci_class == "0680":
        kind = "nvswitch" if pci_id.startswith("10de:") else None
    else:
        kind = "card" if pci_class in _CLASSES.values() and pci_id[:5] in ("10de:", "1002:") else None
    address = pci_address(match["address"])
    if kind is None or address is None:
        return None
    return {"address": address, "pci_id": pci_id, "pci_class": f"{pci_class}00", "kind": kind}


LSPCI = Kind("lspci", _read, goes_on=_DEVICE)
KINDS = (LSPCI,)
