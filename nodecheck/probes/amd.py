"""AMD's cards: what sysfs, amd-smi, ROCm's binding and rocm-smi say, in that order of belief.

A source is asked only where those before it leave something open, or where a second opinion matters.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeVar

from nodecheck.facts import Absent, Card, Maybe, Stack, Topology, Why, known
from nodecheck.facts.base import NVIDIA_ALONE
from nodecheck.facts.card import Link
from nodecheck.facts.stack import Driver
from nodecheck.facts.topology import Pair, PciDevice
from nodecheck.probes import amdgpu, amdsmi, belief, kfd, rocm_smi, topology
from nodecheck.probes.amd_smi import AmdSmi, PairTold
from nodecheck.probes.belief import Reading
from nodecheck.probes.kernel_log import pci_address
from nodecheck.probes.kfd import Kfd, KfdDevice
from nodecheck.probes.text import parse, word
from nodecheck.sources import Commands, Files
from nodecheck.sources.amdsmi import AmdsmiSurvey
from nodecheck.sources.child import Output

Binding = Callable[[], Maybe[AmdsmiSurvey]]
K = TypeVar("K")
"""What a source names a card by: its PCI address, or a number of its own."""

AMD = "1002"
_MODULE = "/sys/module/amdgpu"
_DRIVER = "/sys/bus/pci/drivers/amdgpu"
_ROCM = "/opt/rocm"

_LINKS_TOLD_TO_GUESTS_FROM = (7, 12)
"""Until then amd-smi says of every xGMI link of a virtual function that it is down."""

_WEIGHT_OF_A_HOP, _WEIGHT_WITHIN_A_PACKAGE = 15, 13

_NEEDED = (
    "identity.name", "identity.vbios", "memory.total_bytes", "power.limit_watts",
    "health.ecc_volatile.uncorrected", "health.bad_pages_retired",
)  # fmt: skip
"""Facts for which ROCm's binding is asked where neither sysfs nor amd-smi tells them."""
_NOBODY_TELLS = (Why.not_supported, Why.no_permission, Why.not_asked)


@dataclass(frozen=True)
class Seen:
    """AMD's part of a node."""

    cards: tuple[Card, ...]
    pairs: tuple[Pair, ...]
    topology: dict[str, Any]
    """Counts and times, by their names in `Topology`."""
    driver: Driver
    driver_sources: tuple[tuple[str, str], ...]
    """(Path below `Stack`, source) of what was not read from files."""


_COUNTS_FROM = (
    ("amd_smi_count", "amd_smi"),
    ("amd_smi_seconds", "amd_smi"),
    ("amdsmi_count", "amdsmi"),
    ("kfd_count", "sysfs"),
    ("kfd_hidden", "sysfs"),
)


def is_here(files: Files) -> bool:
    """Whether the node has anything of AMD's: a few looks at files, which is all that another node is asked."""
    nodes = files.list(kfd.NODES)
    if known(nodes) and any(_gpu(files, node) for node in nodes):
        return True
    if known(files.list(_DRIVER)) or _unbound(files):
        return True
    devices = files.list("/dev")  # where a sandbox hides all of sysfs
    return known(devices) and "kfd" in devices


def _gpu(files: Files, node: str) -> bool:
    number = files.read(f"{kfd.NODES}/{node}/gpu_id")
    return isinstance(number, Absent) or number.strip() != "0"


def _unbound(files: Files) -> bool:
    """A card on the PCI bus of which no driver has taken hold."""
    addresses = files.list(amdgpu.PCI)
    return not isinstance(addresses, Absent) and any(
        _starts(files, f"{amdgpu.PCI}/{address}/class", "0x12", "0x0380", "0x0302", "0x0300")
        and _starts(files, f"{amdgpu.PCI}/{address}/vendor", f"0x{AMD}")
        for address in addresses
    )


def _starts(files: Files, path: str, *beginnings: str) -> bool:
    text = files.read(path)
    return isinstance(text, str) and text.strip().lower().startswith(beginnings)


def probe(files: Files, commands: Commands, binding: Binding, bus: Maybe[tuple[PciDevice, ...]]) -> Seen:
    """Every card of AMD's that this machine or container is given, and what joins them.

    `bus` is what the PCI bus shows. A card that KFD keeps from this container is not its own; one that the driver
    has not brought up is listed as a card that cannot be used.
    """
    shown, displays = kfd.probe(files), _displays(bus)
    devices = _devices(shown, displays)
    addresses = _addresses(shown, devices, bus)
    if not addresses and known(bus):
        return _nothing(shown, devices, files)
    packages = Counter(_package_of(address) for address in devices)
    readings = {
        address: [
            amdgpu.read(files, address, _device(shown, devices, address), packages[_package_of(address)])
        ]
        for address in addresses
    }
    virtual = any(r[0].values.get("modes.virtualization") == "virtual_function" for r in readings.values())

    smi = _ask_amd_smi(commands, readings, virtual)
    survey: Maybe[AmdsmiSurvey] = Absent(why=Why.not_asked, detail="the sources before it told what it could")
    if not addresses and isinstance(smi.addresses, dict):
        addresses = sorted(smi.addresses.values())
        readings = {address: [] for address in addresses}
    for address in addresses:
        readings[address].append(of_one(smi.reading(address), packages[_package_of(address)]))
    if _leaves_open(smi, readings):
        survey = binding()
        if not addresses and not isinstance(survey, Absent):
            addresses = sorted(amdsmi.addresses(survey).values())
            readings = {address: [] for address in addresses}
        for address in addresses:
            readings[address].append(of_one(amdsmi.reading(survey, address), packages[_package_of(address)]))
    if (
        isinstance(smi.addresses, Absent)
        and isinstance(survey, Absent)
        and smi.reason().why is not Why.timed_out
    ):
        told = rocm_smi.readings(commands.run("rocm_smi"))
        if not isinstance(told, Absent):
            addresses = addresses or sorted(told)
            for address in addresses:
                readings.setdefault(address, []).extend([told[address]] if address in told else [])

    for address in addresses:
        device = _device(shown, devices, address)
        extra = {
            "usable": _usable(files, shown, device, readings[address]),
            "package": _package(shown, device),
            "links": _links(shown, device, _link_states(smi, survey, address, virtual)),
        }
        readings[address].insert(0, Reading("sysfs", {**_values(readings[address]), **extra}))
    cards = tuple(
        belief.card(address, i, _of_each_source(readings[address])) for i, address in enumerate(addresses)
    )
    driver, told_by = _driver(files, smi)
    return Seen(
        cards=cards,
        pairs=_pairs(files, shown, devices, smi, survey, cards),
        topology=_counts(shown, devices, displays, smi, survey),
        driver=driver,
        driver_sources=told_by,
    )


def _nothing(shown: Maybe[Kfd], devices: dict[str, KfdDevice], files: Files) -> Seen:
    """No card: at most graphics that are built into a CPU, or cards that KFD keeps from this container."""
    none = Absent(why=Why.not_asked, detail="there is no card of AMD's to ask about")
    smi = AmdSmi({}, virtual=False)
    driver, told_by = _driver(files, smi)
    return Seen((), (), _counts(shown, devices, frozenset(), smi, none), driver, told_by)


def _counts(
    shown: Maybe[Kfd],
    devices: dict[str, KfdDevice],
    displays: frozenset[str],
    smi: AmdSmi,
    survey: Maybe[AmdsmiSurvey],
) -> dict[str, Any]:
    listed = smi.addresses
    return {
        "kfd_count": shown if isinstance(shown, Absent) else len(devices),
        "kfd_hidden": shown if isinstance(shown, Absent) else shown.hidden,
        "amd_smi_count": listed
        if isinstance(listed, Absent)
        else sum(place not in displays for place in listed.values()),
        "amd_smi_seconds": smi.seconds,
        "amdsmi_count": amdsmi.count(survey),
    }


_OF_A_PACKAGE = ("uuid", "memory.")


def of_one(reading: Reading, partitions: int) -> Reading:
    """The reading without what tools say of a whole package where the card is a partition of it."""
    if partitions <= 1:
        return reading
    return Reading(
        reading.source, {path: v for path, v in reading.values.items() if not path.startswith(_OF_A_PACKAGE)}
    )


def _values(readings: Sequence[Reading]) -> dict[str, Any]:
    """What sysfs has said of the card so far."""
    return dict(readings[0].values) if readings and readings[0].source == "sysfs" else {}


def _of_each_source(readings: Sequence[Reading]) -> list[Reading]:
    """The readings, of each source the first."""
    return list({reading.source: reading for reading in reversed(readings)}.values())[::-1]


# Which cards


def _displays(bus: Maybe[tuple[PciDevice, ...]]) -> frozenset[str]:
    """Addresses of graphics that are built into a CPU and sit beside the cards."""
    return frozenset(d.address for d in (() if isinstance(bus, Absent) else bus) if d.kind == "display")


def _devices(shown: Maybe[Kfd], displays: frozenset[str]) -> dict[str, KfdDevice]:
    """KFD's devices that are cards, by address."""
    if isinstance(shown, Absent):
        return {}
    return {device.address: device for device in shown.devices if device.address not in displays}


def _addresses(
    shown: Maybe[Kfd], devices: dict[str, KfdDevice], bus: Maybe[tuple[PciDevice, ...]]
) -> list[str]:
    found = set(devices)
    if isinstance(shown, Absent) or not shown.hidden:
        packages = {_package_of(address) for address in devices}
        found |= {
            device.address
            for device in (() if isinstance(bus, Absent) else bus)
            if device.kind == "card"
            and device.pci_id.startswith(f"{AMD}:")
            and _package_of(device.address) not in packages
        }
    return sorted(found, key=lambda address: address.zfill(16))


def _package_of(address: str) -> str:
    """The address without its function: partitions of one package differ in that alone."""
    return address.rpartition(".")[0]


def _device(shown: Maybe[Kfd], devices: dict[str, KfdDevice], address: str) -> Maybe[KfdDevice]:
    if isinstance(shown, Absent):
        return shown
    return devices.get(address) or Absent(why=Why.not_present, detail="KFD has no such device")


_LINKS_WITHIN_A_PACKAGE_MB_PER_S = 200_000
"""The two dies of an MI250 are joined by four links of 50 GB/s; no two packages are."""
_TWO_DIES = ("gfx90a",)


def _package(shown: Maybe[Kfd], device: Maybe[KfdDevice]) -> Maybe[str]:
    if isinstance(shown, Absent):
        return shown
    if isinstance(device, Absent):
        return device
    together = [f"{_package_of(device.address)}.0"]
    if device.gfx in _TWO_DIES:
        together = [device.address] + [
            other.address
            for link in device.links
            if link.kind == kfd.XGMI
            and link.max_mb_per_s >= _LINKS_WITHIN_A_PACKAGE_MB_PER_S
            and (other := shown.at(link.to))
        ]
    return min(together)


def _usable(
    files: Files, shown: Maybe[Kfd], device: Maybe[KfdDevice], readings: Sequence[Reading]
) -> Maybe[bool]:
    if _values(readings).get("lost") is True:
        return False
    if isinstance(shown, Absent):
        return Absent(
            why=shown.why, detail=f"KFD shows no topology ({shown.detail}): amdgpu has not started the cards"
        )
    if isinstance(device, Absent):
        return False
    paths = ["/dev/kfd"]
    if minor := device.properties.get("drm_render_minor"):
        paths.append(f"/dev/dri/renderD{minor}")
    for path in paths:
        allowed = files.access(path)
        if isinstance(allowed, Absent):
            return Absent(why=allowed.why, detail=f"{path}: {allowed.detail}")
        if not allowed:
            return Absent(why=Why.no_permission, detail=f"{path} may not be opened by this user")
    return True


# Asking


def _ask_amd_smi(commands: Commands, readings: dict[str, list[Reading]], virtual: bool) -> AmdSmi:
    """One command after the other, since they lock one another out; after one that hung none is begun."""
    said: dict[str, Maybe[Output]] = {}

    def ask(*names: str) -> None:
        for name in names:
            before = next((output for output in said.values() if isinstance(output, Absent)), None)
            if before is not None and before.why is not Why.not_asked:
                said[name] = Absent(why=before.why, detail=before.detail)
            else:
                said[name] = commands.run(f"amd_smi_{name.replace('-', '_')}")

    def open_still(path: str) -> bool:
        return not readings or any(isinstance(r[0].values.get(path), Absent) for r in readings.values())

    ask("version", "list", "static", "metric", "firmware")
    if len(readings) != 1:
        ask("topology", "xgmi")
    if open_still("health.bad_pages_retired"):
        ask("bad-pages")
    if open_still("processes"):
        ask("process")
    if open_still("modes.compute_partition"):
        ask("partition")
    return AmdSmi(said, virtual)


def _leaves_open(smi: AmdSmi, readings: dict[str, list[Reading]]) -> bool:
    """Whether something that the binding could tell is still unknown; where amd-smi hung, it would hang as well."""
    if isinstance(smi.addresses, Absent):
        return smi.addresses.why not in (Why.timed_out, Why.not_asked)
    for of_card in readings.values():
        for path in _NEEDED:
            value = belief.believe(path, of_card).value
            if isinstance(value, Absent) and value.why not in _NOBODY_TELLS:
                return True
    return False


# Links


LinkStates = tuple[tuple[str | None, str], ...]


def _link_states(smi: AmdSmi, survey: Maybe[AmdsmiSurvey], address: str, virtual: bool) -> Maybe[LinkStates]:
    if virtual:
        release = smi.release
        if isinstance(release, Absent) or release < _LINKS_TOLD_TO_GUESTS_FROM:
            return Absent(
                why=Why.not_supported,
                detail="this release says of every link of a virtual function that it is down",
            )
    states = smi.link_states(address)
    if not isinstance(states, Absent):
        return states
    of_binding = amdsmi.link_states(survey, address)
    return states if isinstance(of_binding, Absent) else of_binding


_NO_COUNTERS = dict.fromkeys(
    ("version", "replay_errors", "recovery_errors", "crc_flit_errors", "crc_data_errors", "effective_errors"),
    NVIDIA_ALONE,
)


def _links(shown: Maybe[Kfd], device: Maybe[KfdDevice], states: Maybe[LinkStates]) -> Maybe[tuple[Link, ...]]:
    """xGMI links by the cards at their ends; by the ports where their states are told and their ends are not."""
    if isinstance(shown, Absent):
        return shown
    if isinstance(device, Absent):
        return device
    ways = [link for link in device.links if link.kind == kfd.XGMI]
    if not ways and device.links_hidden:
        return Absent(
            why=Why.no_permission, detail="the links lead to cards that this container is not given"
        )
    ends = [there.address if (there := shown.at(link.to)) else None for link in ways]
    named = {} if isinstance(states, Absent) else {far: said for far, said in states if far}
    unnamed = [] if isinstance(states, Absent) else [said for far, said in states if not far and said != "X"]

    def active(end: str | None) -> Maybe[bool]:
        if isinstance(states, Absent):
            return states
        if end in named:
            return named[end] == "U"
        if unnamed and "D" not in unnamed:
            return True
        return Absent(why=Why.not_present, detail="the state of this link is not told")

    if "D" in unnamed:
        apart = Absent(why=Why.not_present, detail="which card is at the end of the port is not told")
        return tuple(
            Link(
                index=i, active=said == "U", remote_kind="gpu", remote_pci_address=apart,
                speed_mb_per_s=apart, **_NO_COUNTERS,
            )
            for i, said in enumerate(unnamed)
        )  # fmt: skip
    return tuple(
        Link(
            index=i,
            active=active(end),
            speed_mb_per_s=way.max_mb_per_s or Absent(why=Why.not_supported, detail="KFD says 0"),
            remote_kind="gpu",
            remote_pci_address=end
            or Absent(why=Why.no_permission, detail="a card that this container is not given"),
            **_NO_COUNTERS,
        )
        for i, (way, end) in enumerate(zip(ways, ends, strict=True))
    )


# Pairs


def _pairs(
    files: Files,
    shown: Maybe[Kfd],
    devices: dict[str, KfdDevice],
    smi: AmdSmi,
    survey: Maybe[AmdsmiSurvey],
    cards: Sequence[Card],
) -> tuple[Pair, ...]:
    told, places = smi.pairs, topology.places(files, cards)
    return tuple(_pair(shown, devices, told, survey, places, a, b) for a, b in combinations(cards, 2))


def _pair(
    shown: Maybe[Kfd],
    devices: dict[str, KfdDevice],
    told: Maybe[dict[tuple[str, str], PairTold]],
    survey: Maybe[AmdsmiSurvey],
    places: topology.Cards,
    a: Card,
    b: Card,
) -> Pair:
    ends = str(a.pci_address), str(b.pci_address)
    readings = [
        Reading("sysfs", both_ways(lambda x, y: _pair_by_kfd(shown, devices, x, y), *ends)),
        Reading("amd_smi", both_ways(lambda x, y: pair_by_amd_smi(told, x, y), *ends)),
        Reading("amdsmi", both_ways(lambda x, y: _pair_by_binding(survey, x, y), *ends)),
    ]
    believed = {path: belief.believe(f"pair.{path}", _under_pair(readings)) for path in _OF_A_PAIR}
    kind, weight = believed["link_type"].value, believed["weight"].value
    return Pair(
        a=a.key,
        b=b.key,
        source=believed["link_type"].source or "sysfs",
        distance=topology.distance(places[a.key], places[b.key]),
        nvlinks=NVIDIA_ALONE,
        p2p_read=NVIDIA_ALONE,
        p2p_write=NVIDIA_ALONE,
        p2p_nvlink=NVIDIA_ALONE,
        p2p_atomics=NVIDIA_ALONE,
        hops=hops(kind, weight),
        **{path: one.value for path, one in believed.items()},
    )


_OF_A_PAIR = ("link_type", "weight", "min_bandwidth_mb_per_s", "max_bandwidth_mb_per_s", "accessible")


def _under_pair(readings: Sequence[Reading]) -> list[Reading]:
    return [Reading(r.source, {f"pair.{path}": value for path, value in r.values.items()}) for r in readings]


def both_ways(ask: Callable[[K, K], dict[str, Any]], a: K, b: K) -> dict[str, Any]:
    """What is said of the way there and of the way back, which are one link."""
    there, back = ask(a, b), ask(b, a)
    values: dict[str, Any] = {}
    for path in _OF_A_PAIR:
        first, second = there[path], back[path]
        if isinstance(first, Absent) or isinstance(second, Absent) or first == second:
            values[path] = second if isinstance(first, Absent) else first
        else:
            values[path] = Absent(why=Why.failed, detail=f"{first} one way and {second} the other")
    return values


def _pair_by_kfd(shown: Maybe[Kfd], devices: dict[str, KfdDevice], a: str, b: str) -> dict[str, Any]:
    here, there = _device(shown, devices, a), _device(shown, devices, b)
    for device in (here, there):
        if isinstance(device, Absent):
            return dict.fromkeys(_OF_A_PAIR, device)
    assert isinstance(here, KfdDevice) and isinstance(there, KfdDevice)  # noqa: S101
    untold = Absent(why=Why.not_supported, detail="KFD does not say")
    way = next((link for link in here.links if link.to == there.node), None)
    if way is None:
        hidden = Absent(why=Why.no_permission, detail="KFD's links cannot all be read")
        # Cards on PCIe have no link of their own there: the way leads through the CPUs.
        values = dict.fromkeys(_OF_A_PAIR, hidden if here.links_hidden else untold)
        return values if here.links_hidden else {**values, "link_type": "pcie"}
    kinds = {kfd.XGMI: "xgmi", kfd.PCIE: "pcie"}
    return {
        "link_type": kinds.get(way.kind, Absent(why=Why.failed, detail=f"KFD's link type {way.kind}")),
        "weight": way.weight or untold,
        "min_bandwidth_mb_per_s": way.min_mb_per_s or untold,
        "max_bandwidth_mb_per_s": way.max_mb_per_s or untold,
        "accessible": untold,
    }


def pair_by_amd_smi(told: Maybe[Mapping[tuple[K, K], PairTold]], a: K, b: K) -> dict[str, Any]:
    """What amd-smi says of the way from the one card to the other, by their names in `Pair`."""
    if isinstance(told, Absent):
        return dict.fromkeys(_OF_A_PAIR, told)
    said = told.get((a, b))
    if said is None:
        missing = Absent(why=Why.not_present, detail="amd-smi topology leaves this pair out")
        return dict.fromkeys(_OF_A_PAIR, missing)
    return {
        "link_type": said.link_type,
        "weight": said.weight,
        "min_bandwidth_mb_per_s": said.min_mb_per_s,
        "max_bandwidth_mb_per_s": said.max_mb_per_s,
        "accessible": said.accessible,
    }


def _pair_by_binding(survey: Maybe[AmdsmiSurvey], a: str, b: str) -> dict[str, Any]:
    if isinstance(survey, Absent):
        return dict.fromkeys(_OF_A_PAIR, survey)
    numbers = {place: i for i, place in amdsmi.addresses(survey).items()}
    if a not in numbers or b not in numbers:
        missing = Absent(why=Why.not_present, detail="ROCm's binding does not list both cards")
        return dict.fromkeys(_OF_A_PAIR, missing)
    i, j = numbers[a], numbers[b]
    return {
        "link_type": amdsmi.link_type(survey, i, j),
        "weight": amdsmi.weight(survey, i, j),
        "min_bandwidth_mb_per_s": amdsmi.bandwidth(survey, i, j, "min"),
        "max_bandwidth_mb_per_s": amdsmi.bandwidth(survey, i, j, "max"),
        "accessible": amdsmi.accessible(survey, i, j),
    }


def hops(kind: Maybe[str], weight: Maybe[int]) -> Maybe[int]:
    """How many xGMI links a way of this weight leads over."""
    if isinstance(kind, Absent) or isinstance(weight, Absent):
        return kind if isinstance(kind, Absent) else weight
    if kind != "xgmi":
        return Absent(why=Why.not_supported, detail=f"counted over xGMI alone, and this is {kind}")
    if weight == _WEIGHT_WITHIN_A_PACKAGE:
        return 1
    hops, rest = divmod(weight, _WEIGHT_OF_A_HOP)
    return (
        hops
        if hops and not rest
        else Absent(why=Why.failed, detail=f"the weight {weight} is no number of hops")
    )


# The driver


def _driver(files: Files, smi: AmdSmi) -> tuple[Driver, tuple[tuple[str, str], ...]]:
    """Versions of amdgpu and of ROCm. Those of the module, of its package and of ROCm are three different ones."""
    loaded = files.list(_MODULE)
    beside = parse(files.read(f"{_MODULE}/version"), word)
    if isinstance(loaded, Absent):
        beside = Absent(why=loaded.why, detail="the kernel module amdgpu is not loaded, or cannot be seen")
    elif isinstance(beside, Absent):
        beside = Absent(
            why=beside.why, detail="amdgpu is the kernel's own, and its version that of the kernel"
        )
    installations = _installations(files)
    rocm = smi.versions("rocm_version")
    sources = [("driver.amdsmi_version", "amd_smi")]
    if not isinstance(installations, Absent) and installations:
        rocm = dict(installations).get(_ROCM, installations[-1][1])
    elif isinstance(rocm, Absent) and isinstance(installations, Absent):
        rocm = installations
    else:
        sources.append(("driver.rocm_version", "amd_smi"))
    driver = Driver(
        **{name: NVIDIA_ALONE for name in Driver.model_fields if name not in _DRIVER_FACTS},
        version=beside,
        amdsmi_version=smi.versions("amdsmi_library_version"),
        rocm_version=rocm,
        rocm_installations=installations,
        package_version=_package_version(files),
        in_tree=loaded if isinstance(loaded, Absent) else "version" not in loaded,
    )
    return driver, tuple(sources)


_DRIVER_FACTS = (
    "version", "rocm_version", "amdsmi_version", "rocm_installations", "package_version", "in_tree",
)  # fmt: skip


def _installations(files: Files) -> Maybe[tuple[tuple[str, str], ...]]:
    names = files.list("/opt")
    if isinstance(names, Absent):
        return names
    found = []
    for name in names:
        if not re.fullmatch(r"rocm(-[0-9.]{1,12})?", name):
            continue
        for file in ("version", "version-rocm"):
            version = parse(files.read(f"/opt/{name}/.info/{file}"), _release)
            if not isinstance(version, Absent):
                found.append((f"/opt/{name}", version))
                break
    return tuple(found)


def _release(text: str) -> str | None:
    """`7.2.0-70`, the release and the number of its build → `7.2.0`."""
    match = re.match(r"\s*([0-9]{1,2}(?:\.[0-9]{1,3}){1,3})\b", text)
    return match[1] if match else None


def _package_version(files: Files) -> Maybe[str]:
    """`/usr/src/amdgpu-6.16.13-2278356.24.04`: the source that the module was built from."""
    names = files.list("/usr/src")
    if isinstance(names, Absent):
        return names
    versions = [name.removeprefix("amdgpu-") for name in names if re.match(r"amdgpu-[0-9]", name)]
    return versions[-1] if versions else Absent(why=Why.not_present, detail="no /usr/src/amdgpu-*")


# Beside NVIDIA's


def join_cards(nvidia: Maybe[tuple[Card, ...]], seen: Seen) -> Maybe[tuple[Card, ...]]:
    """The cards of both makers; each keeps the number that its own source gave it."""
    if isinstance(nvidia, Absent):
        hidden = seen.topology["kfd_hidden"]
        kept = Absent(why=Why.no_permission, detail=f"KFD keeps {hidden} cards from this container")
        return seen.cards or (kept if known(hidden) and hidden else nvidia)
    return tuple(sorted((*nvidia, *seen.cards), key=_place))


def _place(card: Card) -> tuple[bool, str]:
    return (False, card.pci_address.zfill(16)) if known(card.pci_address) else (True, "")


def join_topology(found: Topology, seen: Seen, files: Files) -> Topology:
    """What NVIDIA's probe made of the topology, and AMD's part of it."""
    driven = files.list(_DRIVER)
    minors = sorted(m for card in seen.cards if known(m := card.identity.render_minor))
    return found.model_copy(
        update={
            **seen.topology,
            "other_sources": tuple(sorted({**dict(found.other_sources), **dict(_COUNTS_FROM)}.items())),
            "pairs": (*(found.pairs if known(found.pairs) else ()), *seen.pairs),
            "driver_cards": _both_lists(
                found.driver_cards,
                driven
                if isinstance(driven, Absent)
                else tuple(name for name in driven if pci_address(name) == name),
            ),
            "device_files": _both_lists(
                found.device_files,
                tuple(path for m in minors if known(files.access(path := f"/dev/dri/renderD{m}"))),
            ),
        }
    )


def _both_lists(a: Maybe[tuple[str, ...]], b: Maybe[tuple[str, ...]]) -> Maybe[tuple[str, ...]]:
    if isinstance(a, Absent):
        return b
    return a if isinstance(b, Absent) else (*a, *b)


def join_stack(stack: Stack, seen: Seen) -> Stack:
    """NVIDIA's driver where it is there, with ROCm's versions beside it; else AMD's."""
    driver, sources = seen.driver, dict(seen.driver_sources)
    if known(stack.driver.version):
        driver = stack.driver.model_copy(update={name: getattr(driver, name) for name in _DRIVER_FACTS[1:]})
    others = tuple(sorted({**dict(stack.other_sources), **sources}.items()))
    return stack.model_copy(update={"driver": driver, "other_sources": others})
