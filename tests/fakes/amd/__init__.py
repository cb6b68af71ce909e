"""Nodes with AMD's cards, made up: one description, and what each source says of it.

    node = describe("mi300x", 8)
    node.cards[3].ecc["XGMI_WAFL"] = [0, 2, 0]       # plant a fault: every source tells it
    tree = plant(node)                               # KFD, PCI and amdgpu's files
    amd_smi.answer(node, "static", "7.2")            # what `amd-smi static --json` of that release prints
    amdsmi.write(node, folder, "7.0")                # ROCm's binding as a module that can be imported

The figures are those of AMD's data sheets and of recorded nodes; ids, serial numbers and versions are made up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

MIB, GIB = 1024**2, 1024**3

Kind = Literal["bare", "guest", "container"]
"""`bare`: the machine itself. `guest`: virtual functions, each in a PCI domain of its own. `container`: on `bare`."""


@dataclass(frozen=True)
class Product:
    name: str
    device: int
    virtual_device: int
    subsystem: int
    target: int
    """gfx_target_version, 90402."""
    gfx: str
    units: int
    memory_bytes: int
    watts: int
    pcie: float
    """GT/s."""
    links: Literal["all", "fours", "pairs", "none"]
    """Which cards are joined by xGMI: all, within each four, or as the dies of MI250s are."""
    pci_class: str = "120000"
    clock_mhz: int = 2100
    memory_mhz: int = 1300
    bus_bits: int = 8192
    partitions: int = 8
    """Devices of a package in CPX mode."""


PRODUCTS = {
    "mi300x": Product(
        "AMD Instinct MI300X", 0x74A1, 0x74B5, 0x74A1, 90402, "gfx942", 304, 206_141_652_992, 750, 32.0, "all",
    ),
    "mi325x": Product(
        "AMD Instinct MI325X", 0x74A5, 0x74B9, 0x74A1, 90402, "gfx942", 304, 274_861_129_728, 1000, 32.0, "all",
    ),
    "mi355x": Product(
        "AMD Instinct MI355X", 0x75A3, 0x75B3, 0x75A3, 90500, "gfx950", 256, 309_220_868_096, 1400, 32.0, "all",
        clock_mhz=2400,
    ),
    "mi300a": Product(
        "AMD Instinct MI300A", 0x74A0, 0x74A0, 0x74A0, 90402, "gfx942", 228, 137_438_953_472, 550, 32.0, "all",
    ),
    "mi250x": Product(
        "AMD Instinct MI250X", 0x7408, 0x7408, 0x0B0C, 90010, "gfx90a", 110, 68_702_699_520, 560, 16.0, "pairs",
        pci_class="038000", clock_mhz=1700, memory_mhz=1600, bus_bits=4096,
    ),
    "mi210": Product(
        "AMD Instinct MI210", 0x740F, 0x7410, 0x0C34, 90010, "gfx90a", 104, 68_702_699_520, 300, 16.0, "fours",
        pci_class="038000", clock_mhz=1700, memory_mhz=1600, bus_bits=4096,
    ),
}  # fmt: skip

ECC_BLOCKS = ("UMC", "SDMA", "GFX", "MMHUB", "PCIE_BIF", "HDP", "XGMI_WAFL")
BUSES = (0x0C, 0x15, 0x1E, 0x69, 0x9F, 0xAF, 0xBF, 0xDF)
HIVE = 0x5C9F2A1B3D4E6F70


@dataclass
class AmdCard:
    """One device: a card, a die of an MI250, or a partition."""

    address: str
    unique_id: int
    gpu_id: int
    node: int
    """KFD's number; the CPUs have the first ones."""
    render_minor: int
    numa: int
    name: str
    device: int
    gfx: str
    target: int
    units: int
    memory_bytes: int
    used_bytes: int
    cap_watts: float
    default_watts: float
    hive: int
    serial: str
    compute: str = "SPX"
    memory: str = "NPS1"
    ecc: dict[str, list[int]] = field(default_factory=lambda: {name: [0, 0, 0] for name in ECC_BLOCKS})
    """Block → corrected, uncorrected, deferred."""
    bad_pages: str = ""
    """A letter a page: R retired, P pending, F could not be reserved."""
    threshold: int = 256
    width: int = 16
    replays: int = 0
    naks: int = 0
    recoveries: int = 2
    limits: dict[str, int] = field(default_factory=dict)
    """Limit → share of the time in which it holds the clocks down, %."""
    processes: dict[int, int] = field(default_factory=dict)
    """pid → bytes."""

    @property
    def package(self) -> str:
        return self.address[:-1] + "0"

    @property
    def partition(self) -> int:
        return int(self.address[-1]) if self.compute != "SPX" else 0


@dataclass
class Way:
    """What leads from one card to another."""

    kind: Literal["xgmi", "pcie"]
    weight: int
    mb_per_s: int
    down: bool = False


@dataclass
class AmdNode:
    product: Product
    kind: Kind
    cards: list[AmdCard]
    ways: dict[tuple[int, int], Way]
    """(Position of the one card, of the other) → the way, once for each direction."""
    rocm: str = "7.2.0"
    module: str = "6.16.13"
    """Version of the kernel module; empty where it is the kernel's own."""
    loaded: bool = True
    groups_missing: tuple[str, ...] = ()
    hidden: set[int] = field(default_factory=set)
    """Positions of cards that the container is not given."""

    @property
    def virtual(self) -> bool:
        return self.kind == "guest"

    def set_way(self, a: int, b: int, way: Way) -> None:
        self.ways[a, b] = self.ways[b, a] = way

    @property
    def given(self) -> list[AmdCard]:
        return [card for i, card in enumerate(self.cards) if i not in self.hidden]


def describe(
    product: str, count: int, *, kind: Kind = "bare", compute: str = "SPX", memory: str = "NPS1"
) -> AmdNode:
    """A healthy node. `count` is of packages; in CPX each of them is eight cards, an MI250X counts as two."""
    made = PRODUCTS[product]
    each = made.partitions if compute == "CPX" else 2 if made.links == "pairs" else 1
    cards: list[AmdCard] = []
    for package in range(count):
        for part in range(each):
            position = package * each + part
            cards.append(
                _card(made, kind, package, part, position, each if compute == "CPX" else 1, compute, memory)
            )
    node = AmdNode(made, kind, cards, {})
    for a in range(len(cards)):
        for b in range(len(cards)):
            if a != b:
                node.ways[a, b] = _way(made, each, a, b, compute)
    return node


def _card(
    made: Product, kind: Kind, package: int, part: int, position: int, parts: int, compute: str, memory: str
) -> AmdCard:
    if kind == "guest":
        address = f"{(package + 1) * 0x10 + 1:04x}:00:00.0"
    elif made.links == "pairs":
        address = f"0000:{BUSES[package] + part * 4:02x}:00.0"
    else:
        address = f"0000:{BUSES[package]:02x}:00.{part}"
    identity = 0x9A3B_0000_0000_0000 | (0x1111 * (package + 1)) << 16 | (part if made.links == "pairs" else 0)
    return AmdCard(
        address=address,
        unique_id=identity,
        gpu_id=10_000 + 137 * position,
        node=2 + position,
        render_minor=128 + position,
        numa=-1 if kind == "guest" else package // 4,
        name=f"{made.name} VF" if kind == "guest" else made.name,
        device=made.virtual_device if kind == "guest" else made.device,
        gfx=made.gfx,
        target=made.target,
        units=made.units // parts,
        memory_bytes=(made.memory_bytes - (320 * MIB if kind == "guest" else 0))
        // (parts if memory != "NPS1" else 1),
        used_bytes=298 * MIB,
        cap_watts=made.watts,
        default_watts=made.watts,
        hive=0 if made.links == "none" else HIVE + (package // 4 if made.links == "fours" else 0),
        serial=f"69232500{package + 1:04d}",
        compute=compute,
        memory=memory,
    )


def _way(made: Product, each: int, a: int, b: int, compute: str) -> Way:
    package_a, package_b = a // each, b // each
    if package_a == package_b:
        return Way("xgmi", 13 if compute != "SPX" else 15, 819_200 if compute != "SPX" else 200_000)
    if made.links == "fours" and package_a // 4 != package_b // 4:
        return Way("pcie", 72, 32_000)
    if made.links == "pairs":
        return Way("xgmi", 15 if a % 2 == b % 2 else 30, 50_000 * (1 + (a % 2 == b % 2)))
    return Way("xgmi", 15, 50_000)
