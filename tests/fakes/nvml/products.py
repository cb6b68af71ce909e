"""What the cards say of themselves when they are well: facts for the stand-in, stated apart from `profiles/`.

Sources: a real H200 guest (driver 580), `nvidia-smi -q -x` of rented B200, GB200 and A100 nodes, NVIDIA's
product briefs. Where a figure is only plausible (VBIOS, board parts, idle draw) no check may depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Form = Literal["board", "bridge", "card"]
"""`board`: SXM on a baseboard with NVSwitch. `bridge`: PCIe, joined by NVLink bridges. `card`: PCIe alone."""


@dataclass(frozen=True)
class Product:
    name: str
    device_id: int
    subsystem_id: int
    architecture: int
    """`nvmlDeviceArchitecture_t`: 7 Ampere, 8 Ada, 9 Hopper, 10 Blackwell."""
    capability: tuple[int, int]
    cores: int
    memory_mib: int
    reserved_mib: int
    bus_bits: int
    watts: int
    min_watts: int
    sm_mhz: int
    memory_mhz: int
    application_sm_mhz: int
    pcie_generation: int
    bar1_mib: int
    form: Form
    links: int = 0
    """NVLinks that a card has."""
    link_version: int = 0
    """`nvmlNvlinkVersion_t`: 4 is 3.0, 6 is 4.0, 7 is 5.0."""
    link_mb_per_s: int = 0
    links_per_pair: int = 0
    bridged_group: int = 2
    switch_ids: tuple[str, int] | None = None
    """PCI id of the NVSwitches that show on the bus of an eight-card board, and how many there are."""
    fabric: bool = False
    """Whether NVML knows a fabric state for it (Hopper and later, on a board)."""
    data_centre: bool = True
    """ECC, row remapping, MIG, serial numbers."""
    board_part: str = "692-2G520-0282-001"
    vbios: str = "96.00.A5.00.1A"
    inforom: str = "G520.0282.02.02"
    arm: bool = False
    """Grace: the CPUs are ARM and the cards sit in PCI domains of their own."""


_A100: dict[str, Any] = {
    "architecture": 7,
    "capability": (8, 0),
    "cores": 6912,
    "bus_bits": 5120,
    "sm_mhz": 1410,
    "application_sm_mhz": 1095,
    "pcie_generation": 4,
    "board_part": "692-2G506-0200-003",
    "vbios": "92.00.45.00.03",
    "inforom": "G506.0200.00.05",
}
_NVLINK3: dict[str, Any] = {
    "form": "board",
    "links": 12,
    "link_version": 4,
    "link_mb_per_s": 25000,
    "links_per_pair": 12,
    "switch_ids": ("10de:1af1", 6),
}
_HOPPER: dict[str, Any] = {"architecture": 9, "capability": (9, 0), "pcie_generation": 5}
_NVLINK4: dict[str, Any] = {
    "form": "board",
    "links": 18,
    "link_version": 6,
    "link_mb_per_s": 26562,
    "links_per_pair": 18,
    "switch_ids": ("10de:22a3", 4),
    "fabric": True,
}
_BLACKWELL: dict[str, Any] = {
    "architecture": 10,
    "capability": (10, 0),
    "cores": 18944,
    "bus_bits": 7680,
    "memory_mhz": 3996,
    "pcie_generation": 5,
}
_NVLINK5: dict[str, Any] = {
    "form": "board",
    "links": 18,
    "link_version": 7,
    "link_mb_per_s": 53125,
    "links_per_pair": 18,
    "fabric": True,
}

PRODUCTS: dict[str, Product] = {
    "a100": Product(
        name="NVIDIA A100-SXM4-80GB", device_id=0x20B2, subsystem_id=0x1463, memory_mib=81920,
        reserved_mib=623, watts=400, min_watts=100, memory_mhz=1593, bar1_mib=131072, **_A100, **_NVLINK3,
    ),
    "a100-40": Product(
        name="NVIDIA A100-SXM4-40GB", device_id=0x20B0, subsystem_id=0x134F, memory_mib=40960,
        reserved_mib=518, watts=400, min_watts=100, memory_mhz=1215, bar1_mib=65536, **_A100, **_NVLINK3,
    ),
    "h100": Product(
        name="NVIDIA H100 80GB HBM3", device_id=0x2330, subsystem_id=0x16C1, cores=16896, memory_mib=81559,
        reserved_mib=551, bus_bits=5120, watts=700, min_watts=200, sm_mhz=1980, application_sm_mhz=1980,
        memory_mhz=2619, bar1_mib=131072, **_HOPPER, **_NVLINK4,
    ),
    "h100-pcie": Product(
        name="NVIDIA H100 PCIe", device_id=0x2331, subsystem_id=0x1626, cores=14592, memory_mib=81559,
        reserved_mib=551, bus_bits=5120, watts=350, min_watts=200, sm_mhz=1755, application_sm_mhz=1755,
        memory_mhz=1593, bar1_mib=131072, form="card", links=18, **_HOPPER,
    ),
    "h100-nvl": Product(
        name="NVIDIA H100 NVL", device_id=0x2321, subsystem_id=0x1839, cores=16896, memory_mib=95830,
        reserved_mib=551, bus_bits=6016, watts=400, min_watts=200, sm_mhz=1785, application_sm_mhz=1785,
        memory_mhz=2619, bar1_mib=131072, form="bridge", links=12, link_version=6, link_mb_per_s=26562,
        links_per_pair=12, **_HOPPER,
    ),
    "h200": Product(
        name="NVIDIA H200", device_id=0x2335, subsystem_id=0x18BE, cores=16896, memory_mib=143771,
        reserved_mib=616, bus_bits=6016, watts=700, min_watts=200, sm_mhz=1980, application_sm_mhz=1980,
        memory_mhz=3201, bar1_mib=262144, **_HOPPER, **_NVLINK4,
    ),
    "h200-nvl": Product(
        name="NVIDIA H200 NVL", device_id=0x233B, subsystem_id=0x1996, cores=16896, memory_mib=143771,
        reserved_mib=616, bus_bits=6016, watts=600, min_watts=200, sm_mhz=1785, application_sm_mhz=1785,
        memory_mhz=3201, bar1_mib=262144, form="bridge", links=18, link_version=6, link_mb_per_s=26562,
        links_per_pair=6, bridged_group=4, **_HOPPER,
    ),
    "b200": Product(
        name="NVIDIA B200", device_id=0x2901, subsystem_id=0x1999, memory_mib=183359, reserved_mib=728,
        watts=1000, min_watts=200, sm_mhz=1965, application_sm_mhz=1965, bar1_mib=262144,
        board_part="692-2G525-0220-500", vbios="97.00.FA.00.09", **_BLACKWELL, **_NVLINK5,
    ),
    "gb200": Product(
        name="NVIDIA GB200", device_id=0x2941, subsystem_id=0x2046, memory_mib=189471, reserved_mib=742,
        watts=1200, min_watts=200, sm_mhz=2062, application_sm_mhz=2062, bar1_mib=262144, arm=True,
        board_part="900-2G548-A801-000", vbios="97.00.B9.00.69", **_BLACKWELL, **_NVLINK5,
    ),
    "l40s": Product(
        name="NVIDIA L40S", device_id=0x26B9, subsystem_id=0x1851, architecture=8, capability=(8, 9),
        cores=18176, memory_mib=46068, reserved_mib=604, bus_bits=384, watts=350, min_watts=100, sm_mhz=2520,
        application_sm_mhz=2520, memory_mhz=9001, pcie_generation=4, bar1_mib=65536, form="card",
        board_part="900-2G133-0080-000", vbios="95.02.66.00.02", inforom="G133.0242.00.03",
    ),
    "rtx4090": Product(
        name="NVIDIA GeForce RTX 4090", device_id=0x2684, subsystem_id=0x16F3, architecture=8,
        capability=(8, 9), cores=16384, memory_mib=24564, reserved_mib=347, bus_bits=384, watts=450,
        min_watts=150, sm_mhz=3105, application_sm_mhz=3105, memory_mhz=10501, pcie_generation=4,
        bar1_mib=32768, form="card", data_centre=False, vbios="95.02.3C.80.62",
    ),
}  # fmt: skip
"""By the name of the profile of the card."""
