"""How cards, switches, CPUs and adapters hang together, from one survey of NVML and from sysfs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from nodecheck.facts import Absent, Card, Maybe, Topology, Why, known
from nodecheck.facts.card import Link
from nodecheck.facts.topology import Adapter, Distance, Pair, PciDevice
from nodecheck.probes.answer import named, named_at_least, number, part, text
from nodecheck.probes.kernel_log import pci_address
from nodecheck.probes.text import number as whole
from nodecheck.probes.text import parse, word
from nodecheck.sources import Files
from nodecheck.sources.nvml import Survey

_PCI = "/sys/bus/pci/devices"
_INFINIBAND = "/sys/class/infiniband"
_NET = "/sys/class/net"
_DRIVER = "/proc/driver/nvidia"

_GPU_VENDORS = ("10de", "1002")
_GPU_CLASSES = ("0300", "0302", "0380", "1200")
"""VGA, 3D and display controllers, processing accelerators."""
_NVIDIA, _BRIDGE = "10de", "0680"

_ANCESTORS: dict[int, Distance] = {
    0: "internal", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS",
}  # fmt: skip
_P2P = {
    0: "ok", 1: "chipset_not_supported", 2: "gpu_not_supported", 3: "topology_not_supported",
    4: "disabled_by_regkey", 5: "not_supported", 6: "unknown",
}  # fmt: skip


def probe(survey: Maybe[Survey], files: Files, cards: Maybe[tuple[Card, ...]]) -> Topology:
    """Everything known of the topology; never raises for what the node answers."""
    return Topology(
        pci_devices=pci_devices(files),
        nvml_count=survey if isinstance(survey, Absent) else number(survey.get("nvmlDeviceGetCount"), 0, 64),
        nvml_seconds=survey if isinstance(survey, Absent) else survey.seconds,
        excluded=survey if isinstance(survey, Absent) else _excluded(survey),
        device_files=_device_files(files),
        driver_cards=_driver_cards(files),
        pairs=_pairs(survey, cards),
        adapters=_adapters(files, places(files, cards if known(cards) else ())),
        nvlink_disabled_by_driver=parse(files.read(f"{_DRIVER}/params"), _nvlink_disabled),
    )


# The PCI bus


def pci_devices(files: Files) -> Maybe[tuple[PciDevice, ...]]:
    """Cards and NVSwitches. AMD's graphics beside cards, as CPUs have them built in, are no cards but displays."""
    addresses = files.list(_PCI)
    if isinstance(addresses, Absent):
        return addresses
    found = [device for address in addresses if (device := _pci_device(files, address))]
    if any(device.kind == "card" and not _may_be_built_in(device) for device in found):
        found = [
            device.model_copy(update={"kind": "display"}) if _may_be_built_in(device) else device
            for device in found
        ]
    return tuple(found)


def _may_be_built_in(device: PciDevice) -> bool:
    return device.pci_class.startswith("0300") and device.pci_id.startswith("1002:")


def _pci_device(files: Files, address: str) -> PciDevice | None:
    """The device, if it is a card or an NVSwitch."""
    folder = f"{_PCI}/{address}"
    pci_class = _hex(files, f"{folder}/class")
    if not pci_class.startswith((*_GPU_CLASSES, _BRIDGE)):
        return None
    vendor = _hex(files, f"{folder}/vendor")
    if pci_class.startswith(_BRIDGE):
        if vendor != _NVIDIA:
            return None
    elif vendor not in _GPU_VENDORS:
        return None
    return PciDevice(
        address=address.lower(),
        pci_id=f"{vendor}:{_hex(files, f'{folder}/device')}",
        pci_class=pci_class,
        kind="nvswitch" if pci_class.startswith(_BRIDGE) else "card",
        numa_node=parse(files.read(f"{folder}/numa_node"), whole),
        current_width=_lanes(files, f"{folder}/current_link_width"),
        max_width=_lanes(files, f"{folder}/max_link_width"),
        current_speed_gt_per_s=parse(files.read(f"{folder}/current_link_speed"), _gt_per_s),
        max_speed_gt_per_s=parse(files.read(f"{folder}/max_link_speed"), _gt_per_s),
        driver=_last_name(files.resolve(f"{folder}/driver")),
        aer_uncorrected=_aer_uncorrected(files, folder),
        aer_corrected=parse(files.read(f"{folder}/aer_dev_correctable"), _aer_total),
    )


def _hex(files: Files, path: str) -> str:
    """The digits of `0x030200`; empty where they cannot be read."""
    content = files.read(path)
    return content.strip().lower().removeprefix("0x") if isinstance(content, str) else ""


def _lanes(files: Files, path: str) -> Maybe[int]:
    """Lanes; 0 is what the kernel shows for a device without a link of its own, 255 for one that is gone."""
    lanes = parse(files.read(path), whole)
    if isinstance(lanes, Absent) or 1 <= lanes <= 32:
        return lanes
    return Absent(why=Why.not_supported if lanes == 0 else Why.failed, detail=f"{lanes} lanes")


def _gt_per_s(content: str) -> float | None:
    """`32.0 GT/s PCIe` → 32.0."""
    match = re.match(r"\s*([0-9]{1,4}(?:\.[0-9]{1,3})?) GT/s", content)
    return float(match[1]) if match else None


def _last_name(path: Maybe[str]) -> Maybe[str]:
    return path if isinstance(path, Absent) else path.rsplit("/", 1)[-1]


def _aer_total(content: str) -> int | None:
    """The last line of a table of AER counters: `TOTAL_ERR_FATAL 0`."""
    match = re.search(r"^TOTAL_ERR_\w+ ([0-9]{1,19})$", content, re.MULTILINE)
    return int(match[1]) if match else None


def _aer_uncorrected(files: Files, folder: str) -> Maybe[int]:
    total = 0
    for name in ("aer_dev_fatal", "aer_dev_nonfatal"):
        count = parse(files.read(f"{folder}/{name}"), _aer_total)
        if isinstance(count, Absent):
            return count
        total += count
    return total


# What the driver has


def _excluded(survey: Survey) -> Maybe[tuple[str, ...]]:
    count = number(survey.get("nvmlGetExcludedDeviceCount"), 0, 64)
    if isinstance(count, Absent):
        return count
    found = []
    for k in range(count):
        bus_id = text(part(part(survey.get("nvmlGetExcludedDeviceInfoByIndex", k), "pci"), "busId"))
        if isinstance(bus_id, Absent):
            return bus_id
        found.append(pci_address(bus_id) or bus_id)
    return tuple(sorted(found))


def _device_files(files: Files) -> Maybe[tuple[str, ...]]:
    names = files.list("/dev")
    if isinstance(names, Absent):
        return names
    minors = sorted(int(match[1]) for name in names if (match := re.fullmatch(r"nvidia([0-9]{1,4})", name)))
    return tuple(f"/dev/nvidia{minor}" for minor in minors)


def _driver_cards(files: Files) -> Maybe[tuple[str, ...]]:
    names = files.list(f"{_DRIVER}/gpus")
    if isinstance(names, Absent):
        return names
    return tuple(sorted(pci_address(name) or name for name in names))


def _nvlink_disabled(parameters: str) -> bool | None:
    match = re.search(r"^NvLinkDisable: ([0-9]+)\s*$", parameters, re.MULTILINE)
    return match[1] != "0" if match else None


# Pairs of cards


def _pairs(survey: Maybe[Survey], cards: Maybe[tuple[Card, ...]]) -> Maybe[tuple[Pair, ...]]:
    if isinstance(survey, Absent):
        return survey
    if isinstance(cards, Absent):
        return cards
    usable = [card for card in cards if card.source == "nvml" and card.usable is not False]
    return tuple(_pair(survey, a, b) for a, b in combinations(usable, 2))


def _pair(survey: Survey, a: Card, b: Card) -> Pair:
    first, second = sorted((a.index, b.index))

    def p2p(kind: str) -> Maybe[str]:
        answer = survey.get("nvmlDeviceGetP2PStatus", first, second, f"NVML_P2P_CAPS_INDEX_{kind}")
        return named_at_least(answer, _P2P)

    p2p_nvlink = p2p("NVLINK")
    return Pair(
        a=a.key,
        b=b.key,
        distance=named(survey.get("nvmlDeviceGetTopologyCommonAncestor", first, second), _ANCESTORS),
        nvlinks=_nvlinks(a, b, p2p_nvlink),
        p2p_read=p2p("READ"),
        p2p_write=p2p("WRITE"),
        p2p_nvlink=p2p_nvlink,
        p2p_atomics=p2p("ATOMICS"),
    )


def _nvlinks(a: Card, b: Card, p2p_nvlink: Maybe[str]) -> Maybe[int]:
    """NVLinks between two cards: those that end at the other card, and those that both have to NVSwitches.

    The latter count where the driver says that NVLink joins the two.
    """
    direct, switched = [], []
    for here, there in ((a, b), (b, a)):
        active = _active_links(here)
        if isinstance(active, Absent):
            return active
        switches = [link for link in active if _ends_at_switch(link)]
        to_cards = [link for link in active if link not in switches]
        if p2p_nvlink == "ok":
            for link in to_cards:
                if isinstance(link.remote_pci_address, Absent):
                    return Absent(
                        why=Why.not_present, detail="links lead to a card whose address is not shown"
                    )
                if isinstance(link.remote_kind, Absent) and link.remote_pci_address != there.pci_address:
                    return link.remote_kind
        direct.append(sum(link.remote_pci_address == there.pci_address for link in to_cards))
        switched.append(len(switches))
    if not min(switched):
        return min(direct)
    if isinstance(p2p_nvlink, Absent):
        return p2p_nvlink
    return min(direct) + (min(switched) if p2p_nvlink == "ok" else 0)


def _active_links(card: Card) -> Maybe[list[Link]]:
    if isinstance(card.links, Absent):
        return [] if card.links.why is Why.not_supported else card.links
    for link in card.links:
        if isinstance(link.active, Absent):
            return link.active
    return [link for link in card.links if link.active is True]


def _ends_at_switch(link: Link) -> bool:
    """A switch outside of a virtual machine may tell neither its kind nor its address."""
    if link.remote_kind == "switch":
        return True
    return link.remote_kind != "gpu" and isinstance(link.remote_pci_address, Absent)


# Places on the bus


@dataclass(frozen=True)
class Place:
    """Where a device sits in the PCI tree."""

    way: tuple[str, ...]
    """The host bridge `pci0000:15`, every bridge, the device; () where it is not on PCI or not seen."""
    address: Maybe[str]
    numa_node: Maybe[int]

    @classmethod
    def behind(cls, files: Files, link: str) -> Place:
        """The place of the PCI device that a link of sysfs leads to, or to a part of."""
        path = files.resolve(link)
        if isinstance(path, Absent):
            return cls((), path, path)
        names = path.removeprefix("/sys/devices/").split("/")
        while names and pci_address(names[-1]) != names[-1]:
            names.pop()
        if not names:
            elsewhere = Absent(why=Why.not_present, detail=f"not on the PCI bus: {path}")
            return cls((), elsewhere, elsewhere)
        return cls(tuple(names), names[-1], parse(files.read(f"{_PCI}/{names[-1]}/numa_node"), whole))


Cards = dict[str, Place]
"""`Card.key` → its place."""


def places(files: Files, cards: Sequence[Card]) -> Cards:
    """Where each card sits; the partitions of one of AMD's packages sit where the package does."""
    return {
        card.key: Place.behind(files, f"{_PCI}/{_function(card.pci_address, card.partition)}")
        for card in cards
        if known(card.pci_address)
    }


def _function(address: str, partition: Maybe[int]) -> str:
    """The address on the bus: a partition's number is only KFD's way to name it."""
    return f"{address[:-1]}0" if known(partition) and partition else address


def _distances(place: Place, cards: Cards) -> tuple[tuple[str, Distance], ...]:
    distances = ((key, distance(card, place)) for key, card in cards.items())
    return tuple((key, far) for key, far in distances if not isinstance(far, Absent))


def distance(a: Place, b: Place) -> Maybe[Distance]:
    """nvidia-smi's name for the nearest common ancestor; absent where a place or the NUMA nodes are not known.

    Below one switch is PIX, below several on one root port PXB, below one host bridge PHB, on one NUMA node
    NODE.
    """
    for place in (a, b):
        if isinstance(place.address, Absent):
            return place.address
    if a.way == b.way:
        return "internal"
    shared = 0
    while shared < min(len(a.way), len(b.way)) and a.way[shared] == b.way[shared]:
        shared += 1
    if shared > 1:
        # Under one switch, each way down is the switch's own port and the device.
        return "PIX" if max(len(a.way), len(b.way)) - shared <= 2 else "PXB"
    if shared == 1:
        return "PHB"
    for near in (a.numa_node, b.numa_node):
        if isinstance(near, Absent):
            return near
        if near < 0:
            return Absent(why=Why.not_supported, detail="the machine has no NUMA node for it")
    return "NODE" if a.numa_node == b.numa_node else "SYS"


# Network adapters


def _adapters(files: Files, cards: Cards) -> Maybe[tuple[Adapter, ...]]:
    verbs = files.list(_INFINIBAND)
    net = files.list(_NET)
    if isinstance(verbs, Absent) and isinstance(net, Absent):
        return net
    found = [a for name in (verbs if known(verbs) else ()) for a in _infiniband(files, name, cards)]
    seen = {adapter.pci_address for adapter in found if known(adapter.pci_address)}
    for name in net if known(net) else ():
        adapter = _ethernet(files, name, cards)
        if adapter is not None and adapter.pci_address not in seen:
            found.append(adapter)
    return tuple(found)


def _infiniband(files: Files, name: str, cards: Cards) -> Iterator[Adapter]:
    folder = f"{_INFINIBAND}/{name}"
    ports = files.list(f"{folder}/ports")
    place = Place.behind(files, f"{folder}/device")
    for port in ports if known(ports) else ():
        if not port.isdecimal():
            continue
        here = f"{folder}/ports/{port}"
        yield Adapter(
            name=name,
            port=int(port),
            link_layer=parse(files.read(f"{here}/link_layer"), word),
            state=parse(files.read(f"{here}/state"), _state),
            rate_gbit_per_s=parse(files.read(f"{here}/rate"), _rate),
            link_downed=parse(files.read(f"{here}/counters/link_downed"), whole),
            pci_address=place.address,
            numa_node=place.numa_node,
            distances=_distances(place, cards),
        )


def _state(content: str) -> str | None:
    """`4: ACTIVE` → `ACTIVE`."""
    return word(content.split(":", 1)[-1])


def _rate(content: str) -> float | None:
    """`400 Gb/sec (4X NDR)` → 400.0."""
    match = re.match(r"\s*([0-9]{1,6}(?:\.[0-9]{1,3})?) Gb/sec", content)
    return float(match[1]) if match else None


def _ethernet(files: Files, name: str, cards: Cards) -> Adapter | None:
    """A network interface with a device behind it, unlike bridges, tunnels and the loopback."""
    folder = f"{_NET}/{name}"
    if isinstance(files.resolve(f"{folder}/device"), Absent):
        return None
    place = Place.behind(files, f"{folder}/device")
    return Adapter(
        name=name,
        port=1,
        pci_address=place.address,
        link_layer=parse(files.read(f"{folder}/type"), _link_layer),
        state=parse(files.read(f"{folder}/operstate"), word),
        rate_gbit_per_s=parse(files.read(f"{folder}/speed"), _speed),
        link_downed=Absent(why=Why.not_supported, detail="counted for InfiniBand alone"),
        numa_node=place.numa_node,
        distances=_distances(place, cards),
    )


def _link_layer(content: str) -> str | None:
    """ARPHRD number → `Ethernet`, `InfiniBand`, or `type N`."""
    kind = whole(content)
    return None if kind is None else {1: "Ethernet", 32: "InfiniBand"}.get(kind, f"type {kind}")


def _speed(content: str) -> float | None:
    """Mbit/s → Gbit/s; -1 is what an interface without a link shows."""
    megabits = whole(content)
    return None if megabits is None or megabits < 0 else megabits / 1000
