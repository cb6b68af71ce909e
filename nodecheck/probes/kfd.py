"""KFD's topology in sysfs: the devices that programs can use by ROCm, and what joins them.

A container that is given some of the cards sees the folders of all of them, and may not read those of the others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.probes.text import number, parse
from nodecheck.sources import Files

NODES = "/sys/class/kfd/kfd/topology/nodes"

PCIE, XGMI = 2, 11
"""Types of a link (linux/kfd_topology.h, CRAT_IOLINK_TYPE_…)."""


@dataclass(frozen=True)
class KfdLink:
    """What leads from one device to another, as the driver counts it."""

    to: int
    """Number of the node at the far end."""
    kind: int
    weight: int
    min_mb_per_s: int
    max_mb_per_s: int


@dataclass(frozen=True)
class KfdDevice:
    """A node of the topology that is a GPU, or a partition of one."""

    node: int
    gpu_id: int
    """KFD's own number for it, by which it names the device in its files."""
    address: str
    """`0000:0c:00.0`. In a partition mode the function is the number of the partition."""
    properties: dict[str, int]
    memory_bytes: Maybe[int]
    """All memory banks together; a bank is a heap of type 1 or 2 (visible or not)."""
    memory_width_bits: Maybe[int]
    links: tuple[KfdLink, ...]
    links_hidden: bool
    """A link could not be read, so that the list is short."""

    @property
    def gfx(self) -> str | None:
        """`gfx942` for gfx_target_version 90402: two digits each for minor and stepping, which is hexadecimal."""
        version = self.properties.get("gfx_target_version", 0)
        if not 0 < version < 1_000_000:
            return None
        return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"

    @property
    def partition(self) -> int:
        return int(self.address[-1])


@dataclass(frozen=True)
class Kfd:
    devices: tuple[KfdDevice, ...]
    hidden: int
    """Nodes that are there and may not be read."""

    def at(self, node: int) -> KfdDevice | None:
        return next((device for device in self.devices if device.node == node), None)


def probe(files: Files) -> Maybe[Kfd]:
    """The topology; `not_present` where amdgpu has none to show (no driver, or a sandbox in front of it)."""
    names = files.list(NODES)
    if isinstance(names, Absent):
        return names
    devices, hidden = [], 0
    for node in sorted(int(name) for name in names if re.fullmatch(r"[0-9]{1,4}", name)):
        gpu_id = parse(files.read(f"{NODES}/{node}/gpu_id"), number)
        if gpu_id == 0:
            continue  # CPUs
        properties = parse(files.read(f"{NODES}/{node}/properties"), _properties)
        if isinstance(gpu_id, Absent) or isinstance(properties, Absent):
            hidden += 1
            continue
        devices.append(_device(files, node, gpu_id, properties))
    return Kfd(tuple(devices), hidden)


def _device(files: Files, node: int, gpu_id: int, properties: dict[str, int]) -> KfdDevice:
    location, domain = properties.get("location_id", 0), properties.get("domain", 0)
    links, hidden = _links(files, node)
    memory, width = _memory(files, node)
    return KfdDevice(
        node=node,
        gpu_id=gpu_id,
        address=f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7}",
        properties=properties,
        memory_bytes=memory,
        memory_width_bits=width,
        links=links,
        links_hidden=hidden,
    )


def _properties(text: str) -> dict[str, int] | None:
    """`simd_count 1216` and so on, one a line."""
    return {name: int(value) for name, value in re.findall(r"^(\w{1,64}) ([0-9]{1,20})$", text, re.M)} or None


def _links(files: Files, node: int) -> tuple[tuple[KfdLink, ...], bool]:
    folder = f"{NODES}/{node}/io_links"
    names = files.list(folder)
    if isinstance(names, Absent):
        return (), True
    links, hidden = [], False
    for name in sorted(names, key=lambda name: (len(name), name)):
        said = parse(files.read(f"{folder}/{name}/properties"), _properties)
        if isinstance(said, Absent) or "node_to" not in said:
            # A link to a card that this container is not given.
            hidden = True
            continue
        links.append(
            KfdLink(
                to=said["node_to"],
                kind=said.get("type", 0),
                weight=said.get("weight", 0),
                min_mb_per_s=said.get("min_bandwidth", 0),
                max_mb_per_s=said.get("max_bandwidth", 0),
            )
        )
    return tuple(links), hidden


_HEAPS_OF_THE_CARD = (1, 2)
"""Frame buffer, visible to the CPU and not (HSA_HEAPTYPE_FRAME_BUFFER_…)."""


def _memory(files: Files, node: int) -> tuple[Maybe[int], Maybe[int]]:
    """Size of the banks and their width; `local_mem_size` among the properties is 0 on data-centre cards."""
    folder = f"{NODES}/{node}/mem_banks"
    names = files.list(folder)
    if isinstance(names, Absent):
        return names, names
    total, width = 0, 0
    for name in names:
        bank = parse(files.read(f"{folder}/{name}/properties"), _properties)
        if isinstance(bank, Absent):
            return bank, bank
        if bank.get("heap_type") in _HEAPS_OF_THE_CARD:
            total += bank.get("size_in_bytes", 0)
            width = max(width, bank.get("width", 0))
    none = Absent(why=Why.not_present, detail=f"{folder} holds no bank of the card's own memory")
    return total or none, width or none
