"""The way from the cards to the CPU: IOMMU and PCI bridges."""

from __future__ import annotations

import re
from typing import Literal

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.sources import Files

_VENDORS = ("0x10de", "0x1002")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def cards(files: Files) -> Maybe[tuple[str, ...]]:
    """PCI addresses of the cards: a GPU maker's display controllers and accelerators (classes 03 and 12)."""
    addresses = files.list("/sys/bus/pci/devices")
    if isinstance(addresses, Absent):
        return addresses
    return tuple(
        address
        for address in addresses
        if _text(files, address, "class").startswith(("0x03", "0x12"))
        and _text(files, address, "vendor") in _VENDORS
    )


def _text(files: Files, address: str, attribute: str) -> str:
    text = files.read(f"/sys/bus/pci/devices/{address}/{attribute}")
    return text.strip().lower() if isinstance(text, str) else ""


def iommu(
    files: Files, cards: Maybe[tuple[str, ...]], boot_command_line: Maybe[str]
) -> Maybe[Literal["off", "passthrough", "translated"]]:
    """How the cards' own reads and writes reach memory: as they are, or translated by an IOMMU.

    Asked of the cards' own groups; where those do not tell, of the kernel's command line.
    """
    units = files.list("/sys/class/iommu")
    if isinstance(units, Absent):
        # A sandbox without any PCI bus hides the IOMMU along with it.
        return "off" if units.why is Why.not_present and not isinstance(cards, Absent) else units
    if not units:
        return "off"
    kinds = set()
    for address in cards if isinstance(cards, tuple) else ():
        group = files.resolve(f"/sys/bus/pci/devices/{address}/iommu_group")
        kind = files.read(f"{group}/type") if isinstance(group, str) else group
        if isinstance(kind, str):
            kinds.add(kind.strip())
    if any(kind.startswith("DMA") for kind in kinds):
        return "translated"
    if kinds == {"identity"}:
        return "passthrough"
    words = boot_command_line.split() if isinstance(boot_command_line, str) else []
    if "iommu=pt" in words or "iommu.passthrough=1" in words:
        return "passthrough"
    if {"iommu=off", "intel_iommu=off", "amd_iommu=off"} & set(words):
        return "off"
    if {"iommu.passthrough=0", "iommu=nopt", "iommu.strict=1"} & set(words):
        return "translated"
    return Absent(
        why=Why.failed, detail="there is an IOMMU; neither the cards' groups nor the boot tell its mode"
    )


def acs_bridges(files: Files, cards: Maybe[tuple[str, ...]]) -> Maybe[tuple[str, ...]]:
    """The bridges between the cards and the CPU that send the traffic from card to card up to the CPU.

    A bridge with Access Control Services on does so when it redirects requests or completions (PCI Express
    Base Specification, ACS extended capability, control register bits 2 and 3).
    """
    if isinstance(cards, Absent):
        return cards
    bridges: set[str] = set()
    for address in cards:
        place = files.resolve(f"/sys/bus/pci/devices/{address}")
        if isinstance(place, Absent):
            return place
        bridges.update(name for name in place.split("/")[:-1] if _ADDRESS.fullmatch(name))
    redirecting = []
    for bridge in sorted(bridges):
        space = files.read_hex(f"/sys/bus/pci/devices/{bridge}/config")
        if isinstance(space, Absent):
            return space
        redirects = _redirects(space)
        if redirects is None:
            detail = "without root the kernel shows only the first 64 bytes of a bridge's configuration"
            return Absent(why=Why.no_permission, detail=detail)
        if redirects:
            redirecting.append(bridge)
    return tuple(redirecting)


_EXTENDED = 0x100
_ACS = 0x000D
_REDIRECT = 0b01100
"""P2P request redirect and P2P completion redirect."""


def _redirects(space_hex: str) -> bool | None:
    """Whether the configuration space says that ACS redirects; None where only the header can be read."""
    try:
        space = bytes.fromhex(space_hex)
    except ValueError:
        return None
    if len(space) <= 64:
        return None
    offset, visited = _EXTENDED, set[int]()
    # A space of 256 bytes has no extended capabilities at all, so no ACS either.
    while _EXTENDED <= offset <= len(space) - 8 and offset not in visited:
        visited.add(offset)
        header = int.from_bytes(space[offset : offset + 4], "little")
        if header in (0, 0xFFFFFFFF):
            break
        if header & 0xFFFF == _ACS:
            return bool(int.from_bytes(space[offset + 6 : offset + 8], "little") & _REDIRECT)
        offset = header >> 20 & 0xFFC
    return False
