"""Are the cards there, and can they be used?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from nodecheck.facts import (
    NOT_ASKED,
    OWN_FAULT,
    Absent,
    Card,
    Maybe,
    Node,
    Stack,
    Topology,
    Why,
    known,
    or_none,
)
from nodecheck.facts.host import DeviceFile
from nodecheck.judge.finding import NODE, Cause, Owner, Status
from nodecheck.judge.rule import (
    Look,
    OnAmd,
    Outcome,
    card_rule,
    fail,
    observe,
    passed,
    rule,
    skipped,
    smi,
    unknown,
    warn,
)
from nodecheck.profile import Profile

PCI_VENDORS = {"nvidia": "10de:", "amd": "1002:"}
GIVE_TO_CONTAINER = "--device=/dev/kfd --device=/dev/dri --group-add video --group-add render"
"""What a container has to be started with to use AMD's cards."""
_NODES = "/sys/class/kfd/kfd/topology/nodes/*"


def own(node: Node, profile: Profile) -> tuple[Card, ...]:
    """The cards of the profile's vendor; what is there of another is told by cards.vendor."""
    return tuple(card for card in node.known_cards if profile.vendor in (None, card.vendor))


@dataclass(frozen=True)
class _Start:
    """A way in which the driver's library does not start, told by what it says of itself."""

    says: str
    detail: str
    next_step: str


_STARTS = (
    _Start(
        "VERSION_MISMATCH",
        "The driver's library and its kernel module are of different versions, so the driver cannot be "
        "asked.",
        "Have the node rebooted, or the driver's kernel module loaded anew, so that both are of one "
        "version. In a container, start it anew so that it gets the libraries of the driver that is loaded "
        "now.",
    ),
    _Start(
        "DRIVER_NOT_LOADED",
        "The driver's kernel module is not loaded.",
        "Have the provider load the driver (`modprobe nvidia` as root) and find out in the kernel log why "
        "it was not loaded.",
    ),
    _Start(
        "NO_PERMISSION",
        "This user may not talk to the driver.",
        "Start the container with its GPUs, or have this user given access to /dev/nvidiactl and "
        "/dev/nvidia*.",
    ),
    _Start(
        "NVML_ERROR_UNKNOWN",
        "The driver's library fails to start without saying why; in a container this is how lost access to "
        "the device files looks.",
        "Start the container anew. If it comes back, ask the provider to keep `systemctl daemon-reload` on "
        "the host from taking the devices away.",
    ),
)


@rule(
    "cards.listed",
    "The driver lists the cards",
    reads="the list of cards of the driver's library (nvmlInit, nvmlDeviceGetCount_v2)",
    door="nvml",
    passes="the driver answers and lists at least one card; for a profile without cards: none is listed, "
    "or they are stated",
    fails="there is no driver, it cannot be asked, it does not answer in time, or it lists no card",
    cause=Cause.faulty,
    owner=Owner.provider,
    required=True,
    meaning="Nothing on this node can use a GPU in this state, and nothing else about the cards can be seen.",
    next_step="Send this report to the provider and ask for another node.",
    repeat="nvidia-smi -L",
    on_amd=OnAmd(
        reads="KFD's topology and the PCI bus (/sys/class/kfd/kfd/topology/nodes, /sys/bus/pci/devices)",
        door="kfd",
        repeat=f"grep -H . {_NODES}/gpu_id; lspci -d 1002:",
    ),
)
def listed(node: Node, profile: Profile) -> Iterator[Outcome]:
    cards = node.cards
    if profile.count == 0:
        yield _none_promised(cards)
    elif profile.vendor == "amd":
        yield _listed_of_amd(node, profile)
    elif isinstance(cards, Absent):
        yield _not_listed(cards, _on_bus(node, profile))
    elif cards:
        yield passed(f"The driver lists {len(cards)}.", observed=len(cards))
    else:
        detail = f"The driver answers and lists no card; {_on_bus(node, profile)}."
        yield fail(detail, observed=0, cause=Cause.not_as_rented)


def _listed_of_amd(node: Node, profile: Profile) -> Outcome:
    cards, topology = node.cards, node.topology
    if known(cards) and cards:
        return passed(f"{len(cards)} can be seen.", observed=len(cards))
    if isinstance(topology, Absent):
        return unknown(NODE, topology)
    on_bus = _on_bus(node, profile)
    hidden, shown = or_none(topology.kfd_hidden) or 0, topology.kfd_count
    if hidden:
        return fail(
            f"KFD has {hidden} cards and keeps all of them from this container; {on_bus}.",
            observed=0,
            cause=Cause.misconfigured,
            owner=Owner.renter,
            next_step=f"Start the container with its cards ({GIVE_TO_CONTAINER}).",
        )
    if isinstance(shown, Absent) and shown.why in (Why.not_asked, Why.timed_out):
        return unknown(NODE, shown)
    detail = f"There is no card of AMD's to be seen: KFD shows none; {on_bus}."
    return fail(detail, observed=0, cause=Cause.not_as_rented)


def _none_promised(cards: Maybe[tuple[Card, ...]]) -> Outcome:
    if isinstance(cards, Absent) and cards.why is not Why.not_present:
        return skipped(f"The profile has no cards; whether the node has any was not seen: {cards}.")
    if isinstance(cards, Absent) or not cards:
        return passed("No card, as the profile says.", observed=0, expected=0)
    names = ", ".join(sorted({str(card.identity.name) for card in cards}))
    return passed(f"The profile has no cards; the node has {len(cards)}: {names}.", observed=len(cards))


def _not_listed(absent: Absent, on_bus: str) -> Outcome:
    ours = absent.detail.startswith(OWN_FAULT) or "nvidia-ml-py" in absent.detail
    if absent.why is Why.not_asked or ours:
        return unknown(NODE, absent)
    observed = str(absent)
    if absent.why is Why.timed_out:
        return fail(
            f"The driver does not answer ({absent.detail}); {on_bus}.",
            observed=observed,
            next_step="Ask the provider to reset the cards or reboot the node; a card that hangs the driver "
            "again is broken.",
        )
    for start in _STARTS:
        if start.says in absent.detail:
            return fail(
                f"{start.detail} It says: {absent.detail}; {on_bus}.",
                observed=observed,
                cause=Cause.misconfigured,
                next_step=start.next_step,
            )
    if absent.why is Why.not_present:
        return fail(
            f"The driver's library was not found ({absent.detail}); {on_bus}.",
            observed=observed,
            cause=Cause.misconfigured,
            next_step="In a container, start it with its GPUs (`docker run --gpus all`, or the provider's "
            "switch for it). Otherwise the driver is not installed: ask the provider.",
        )
    return fail(f"The driver cannot be asked ({absent}); {on_bus}.", observed=observed)


def _on_bus(node: Node, profile: Profile) -> str:
    count = _pci_count(node, profile)
    return "the PCI bus could not be seen" if isinstance(count, Absent) else f"the PCI bus shows {count}"


def _pci_count(node: Node, profile: Profile) -> Maybe[int]:
    if isinstance(node.topology, Absent):
        return node.topology
    devices = node.topology.pci_devices
    if isinstance(devices, Absent):
        return devices
    vendor = PCI_VENDORS[profile.card.vendor] if profile.card else ""
    return sum(d.kind == "card" and d.pci_id.startswith(vendor) for d in devices)


@rule(
    "cards.vendor",
    "The cards are of the profile's vendor",
    reads="which vendor's driver lists the cards",
    door="nvml",
    passes="every card is of the vendor that the profile names",
    fails="a card of another vendor is listed",
    cause=Cause.not_as_rented,
    owner=Owner.provider,
    required=True,
    meaning="This is another kind of machine, or the wrong profile was named. Nothing of the profile "
    "applies.",
    next_step="Name the profile of the bundle that was rented; if it was this one, send the node back.",
    repeat="nvidia-smi -L || amd-smi list",
    on_amd=OnAmd(door="kfd", repeat="lspci -nn | grep -E '10de:|1002:'"),
)
def vendor(node: Node, profile: Profile) -> Iterator[Outcome]:
    if profile.card is None:
        yield skipped(f"The profile {profile.name} has no cards.")
    elif isinstance(node.cards, Absent):
        yield unknown(NODE, node.cards)
    elif not node.cards:
        yield skipped("There is no card to look at; see cards.listed.")
    else:
        counted = Counter(card.vendor for card in node.cards)
        seen = ", ".join(sorted(counted))
        told = " and ".join(f"{number} of {name}" for name, number in sorted(counted.items()))
        judged = passed if seen == profile.card.vendor else fail
        displays = _displays(node)
        yield judged(
            f"The cards are of {seen}{displays}."
            if judged is passed
            else f"The node has {told}, and the profile {profile.name} is of {profile.card.vendor}{displays}.",
            observed=seen,
            expected=profile.card.vendor,
            expected_from=profile.card.stated_by("vendor").witness,
        )


def _displays(node: Node) -> str:
    """Graphics of a card maker's that no program computes on: those in a CPU, mostly."""
    devices = None if isinstance(node.topology, Absent) else or_none(node.topology.pci_devices)
    makers = tuple(PCI_VENDORS.values())
    beside = [d.pci_id for d in devices or () if d.kind == "display" and d.pci_id.startswith(makers)]
    return (
        f"; beside them the machine's own graphics ({', '.join(beside)}), which are no card" if beside else ""
    )


@rule(
    "cards.count",
    "The node has as many cards as were rented",
    reads="the number of cards that the driver lists (nvmlDeviceGetCount_v2)",
    door="nvml",
    passes="the driver lists as many cards as the profile has",
    fails="it lists fewer, or more, or any where the profile has none",
    cause=Cause.not_as_rented,
    owner=Owner.provider,
    required=True,
    meaning="With fewer cards the bundle is not delivered. With more, the profile does not describe this "
    "node and its figures do not hold.",
    next_step="Send this report to the provider. If more cards are there than rented, name the profile "
    "that fits.",
    repeat="nvidia-smi -L | wc -l",
    on_amd=OnAmd(
        reads="the devices that KFD's topology shows, and cards on the PCI bus that it lacks",
        door="kfd",
        repeat=f"grep -Lx 0 {_NODES}/gpu_id | wc -l",
    ),
)
def count(node: Node, profile: Profile) -> Iterator[Outcome]:
    promised: dict[str, Any] = {"expected": profile.count, "expected_from": f"profile {profile.name}"}
    if profile.cards is None or (profile.count == 0 and not node.known_cards):
        yield skipped(f"The profile {profile.name} has no cards.")
        return
    if isinstance(node.cards, Absent):
        yield unknown(NODE, node.cards, **promised)
        return
    cards = own(node, profile)
    shown, listed = len(cards), _listed(node, cards, profile)
    if isinstance(listed, Absent) and shown <= profile.count:
        yield unknown(NODE, listed, **promised)
        return
    seen = shown if isinstance(listed, Absent) else listed
    if seen == profile.count and shown != seen:
        detail = f"The driver lists {seen} cards, and {shown} can be read."
        yield Outcome(Status.unknown, detail=detail, observed=shown, **promised)
        return
    if seen == profile.count:
        yield passed(f"{seen} of {profile.count}.", observed=seen, **promised)
        return
    detail = f"The driver lists {seen}{_split(cards)}, the profile has {profile.count}"
    on_bus = _pci_count(node, profile)
    cause = Cause.not_as_rented
    if known(on_bus) and seen < profile.count <= on_bus:
        detail += f"; the PCI bus shows {on_bus}: a card is lost to the driver, or hidden from this container"
        cause = Cause.faulty
    yield fail(f"{detail}.", observed=seen, cause=cause, **promised)


def _split(cards: tuple[Card, ...]) -> str:
    """Of AMD's packages that are split into partitions: how many packages it really is."""
    modes = {mode for card in cards if known(mode := card.modes.compute_partition) and mode != "SPX"}
    packages = {package for card in cards if known(package := card.package)}
    if not modes or len(packages) in (0, len(cards)):
        return ""
    return f" devices, which are {len(packages)} packages split into partitions ({', '.join(sorted(modes))})"


def _listed(node: Node, cards: tuple[Card, ...], profile: Profile) -> Maybe[int]:
    """How many cards the driver lists: what is read of them may be less, out of an output that was cut short."""
    topology = node.topology
    counted: Maybe[int]
    if profile.vendor != "amd":
        counted = topology if isinstance(topology, Absent) else topology.nvml_count
    elif not isinstance(topology, Absent) and topology.kfd_count == NOT_ASKED:
        counted = topology.amd_smi_count  # of a node that is known from pasted outputs alone
    else:
        counted = len(cards)
    if isinstance(counted, Absent):
        return counted if counted.why is Why.failed else len(cards)
    return counted


@rule(
    "cards.count.agreement",
    "Every way of counting gives the same cards",
    reads="cards on the PCI bus (sysfs), cards of the kernel driver (/proc/driver/nvidia/gpus), device "
    "files, NVML, torch",
    door="pci",
    passes="all counts that could be made agree, or the rest of a larger board is seen on the PCI bus "
    "beside the bundle's cards, as a container shows it",
    warns="outside of containers, the PCI bus or the kernel driver has a card more than the driver lists, and "
    "the bundle is whole without it",
    fails="the PCI bus or the kernel driver has a card that the bundle misses, or torch sees fewer cards "
    "than the driver although no variable hides them",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="A card that the bus has and the driver does not is lost (fallen off the bus, or failed to "
    "start) or was taken out of this container.",
    next_step="Look for Xid 79 and 'fallen off the bus' in the kernel log, and have the provider reset or "
    "replace the card.",
    repeat="nvidia-smi -L; grep -l 0x10de /sys/bus/pci/devices/*/vendor; ls /dev/nvidia[0-9]*",
    on_amd=OnAmd(
        reads="devices of KFD's topology, packages on the PCI bus and those that amdgpu drives, render nodes, amd-smi, "
        "ROCm's binding, torch",
        next_step="Look in the kernel log for what amdgpu says of the card (kernel_log.amdgpu), and have the provider "
        "reset or replace it.",
        repeat=f"grep -Lx 0 {_NODES}/gpu_id; ls /sys/bus/pci/drivers/amdgpu /dev/dri; amd-smi list",
    ),
)
def agreement(node: Node, profile: Profile) -> Iterator[Outcome]:
    if profile.count == 0:
        yield skipped(f"The profile {profile.name} has no cards.")
        return
    if isinstance(node.cards, Absent):
        yield unknown(NODE, node.cards)
        return
    topology, stack = node.topology, node.stack
    if profile.vendor == "amd":
        yield _agreement_of_amd(node, profile)
        return
    listed = _listed(node, node.cards, profile)
    if isinstance(listed, Absent):
        yield unknown(NODE, listed)
        return
    counts: dict[str, Maybe[int]] = {
        "NVML": listed,
        "PCI bus": _pci_count(node, profile),
        "kernel driver": _length(topology, lambda t: t.driver_cards),
        "device files": _length(topology, lambda t: t.device_files),
        "torch": _torch_count(stack),
    }
    seen = {name: number for name, number in counts.items() if known(number)}
    told = ", ".join(f"{name} {counts[name]}" if name in seen else f"{name} not seen" for name in counts)
    if len(seen) == 1:
        yield Outcome(Status.unknown, detail=f"Nothing to compare NVML's count with: {told}.", observed=told)
        return
    below = max(seen.get("PCI bus", 0), seen.get("kernel driver", 0))
    if below > listed and listed < profile.count:
        yield fail(f"A card is lost to the driver, or hidden: {told}.", observed=told)
    elif seen.get("torch", listed) < listed and not _hidden(stack):
        yield fail(
            f"torch sees fewer cards than the driver: {told}.",
            observed=told,
            cause=Cause.misconfigured,
            owner=Owner.renter,
            next_step="See stack.torch.devices and stack.cuda_init for the reason.",
        )
    elif below > listed and known(node.host) and node.host.container == "none":
        yield warn(
            f"The bundle is whole, and a card more is on this machine that the driver does not list: {told}.",
            observed=told,
        )
    elif below > listed:
        yield passed(f"The bundle is part of a larger board: {told}.", observed=told)
    else:
        yield passed(f"{told}.", observed=told)


def _agreement_of_amd(node: Node, profile: Profile) -> Outcome:
    """KFD's count beside all others. Where packages are split, the bus and some tools count packages."""
    cards, topology = own(node, profile), node.topology
    if isinstance(topology, Absent):
        return unknown(NODE, topology)
    listed = topology.kfd_count
    if isinstance(listed, Absent):
        return unknown(NODE, listed, door="kfd")
    packages = len({card.package for card in cards if known(card.package)}) if _split(cards) else listed
    counts: dict[str, Maybe[int]] = {
        "KFD": listed,
        "PCI bus": _pci_count(node, profile),
        "amdgpu": _length(topology, lambda t: t.driver_cards),
        "render nodes": _length(topology, lambda t: t.device_files),
        "amd-smi": topology.amd_smi_count,
        "ROCm's binding": topology.amdsmi_count,
        "torch": _torch_count(node.stack),
    }
    seen = {name: number for name, number in counts.items() if known(number)}
    told = ", ".join(f"{name} {counts[name]}" if name in seen else f"{name} not seen" for name in counts)
    words: dict[str, Any] = {"observed": told}
    if len(seen) == 1:
        return Outcome(Status.unknown, detail=f"Nothing to compare KFD's count with: {told}.", **words)
    below = max(seen.get("PCI bus", 0), seen.get("amdgpu", 0))
    if below > packages and listed < profile.count:
        return fail(f"A card is lost to the driver, or hidden: {told}.", **words)
    if seen.get("torch", listed) < listed and not _hidden(node.stack):
        return fail(
            f"torch sees fewer cards than the driver: {told}.",
            cause=Cause.misconfigured,
            owner=Owner.renter,
            next_step="See stack.torch.devices and stack.context for the reason. Where a package `amdsmi` of the "
            "Python index is installed beside torch, remove it: with a second libamd_smi torch counts no card.",
            **words,
        )
    tools = [
        name for name in ("amd-smi", "ROCm's binding") if seen.get(name, listed) not in (listed, packages)
    ]
    if tools:
        said = f"KFD and {' and '.join(tools)} count differently, and which is right is not known: {told}."
        return Outcome(Status.unknown, detail=said, door="amd_smi", **words)
    if below > packages and known(node.host) and node.host.container == "none" and not topology.kfd_hidden:
        return warn(
            f"The bundle is whole, and a card more is on this machine that KFD does not show: {told}.",
            **words,
        )
    return passed(f"{'The bundle is part of a larger board: ' if below > packages else ''}{told}.", **words)


def _length(topology: Maybe[Topology], field: Callable[[Topology], Maybe[tuple[Any, ...]]]) -> Maybe[int]:
    if isinstance(topology, Absent):
        return topology
    items = field(topology)
    return items if isinstance(items, Absent) else len(items)


def _torch_count(stack: Maybe[Stack]) -> Maybe[int]:
    if isinstance(stack, Absent):
        return stack
    torch = stack.torch
    if isinstance(torch, Absent):
        return torch
    if isinstance(torch.cuda, Absent) and isinstance(torch.hip, Absent):
        return Absent(why=Why.not_supported, detail="torch is built for the CPU")
    return torch.device_count


@card_rule(
    "cards.usable",
    "The driver hands out the card",
    reads="whether the driver gives a handle for the card (nvmlDeviceGetHandleByIndex_v2)",
    passes="the driver hands out the card",
    fails="the card is listed and may not be opened, is lost, or wants a reset",
    cause=Cause.faulty,
    owner=Owner.provider,
    required=True,
    meaning="The card is counted and cannot be used: programs that start on it fail or hang.",
    next_step="Ask the provider to reset or replace the card, or, where access is refused, to give this "
    "container its device file.",
    repeat="nvidia-smi -q",
    on_amd=OnAmd(
        reads="whether KFD has a device for the card, and this user may open /dev/kfd and its render node",
        door="kfd",
        repeat="ls -l /dev/kfd /dev/dri/renderD*; id; rocminfo | grep gfx",
    ),
)
def usable(look: Look) -> Outcome:
    card = look.card
    seen = observe(card, "usable", card.source)
    words: dict[str, Any] = {"observed_from": seen.source, "expected": True}
    if card.lost is True:
        return fail("The driver has lost the card: it fell off the bus.", observed=False, **words)
    if seen.value is True:
        return passed("", observed=True, **words)
    # A card that is not handed out answers nothing, and its facts say why.
    why = seen.value if isinstance(seen.value, Absent) else card.uuid
    if card.vendor == "amd" and seen.value is False:
        return fail("amdgpu has not brought up this card: KFD has no device for it.", observed=False, **words)
    if isinstance(why, Absent) and why.why is not Why.not_asked:
        said, cause = _NOT_HANDED_OUT.get(why.why, ("The driver does not hand out this card", Cause.faulty))
        return fail(f"{said} ({why}).", cause=cause, observed=str(why), **words)
    if isinstance(seen.value, Absent):
        return unknown(NODE, seen.value, **words)
    return fail("The card is listed and the driver does not hand it out.", observed=False, **words)


_NOT_HANDED_OUT = {
    Why.timed_out: ("The driver does not answer for this card", Cause.faulty),
    Why.no_permission: ("The card is listed and this user may not open it", Cause.misconfigured),
}


@rule(
    "cards.kfd",
    "KFD gives this container its cards",
    reads=f"nodes of KFD's topology that are there and may not be read ({_NODES}/gpu_id)",
    door="kfd",
    passes="none is kept back, or the bundle is whole without those that are: how many of how many is stated",
    fails="some are kept from this container, and the bundle is short of cards",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="The machine has more cards than this container was given: programs in it see too few.",
    next_step=f"Start the container with all of its cards ({GIVE_TO_CONTAINER}), or ask the provider to give it them.",
    repeat=f"cat {_NODES}/gpu_id",
)
def kfd(node: Node, profile: Profile) -> Iterator[Outcome]:
    if profile.vendor != "amd":
        yield skipped(f"The profile {profile.name} has no cards of AMD's.")
        return
    if isinstance(node.topology, Absent):
        yield unknown(NODE, node.topology)
        return
    shown, hidden = node.topology.kfd_count, node.topology.kfd_hidden
    for absent in (shown, hidden):
        if isinstance(absent, Absent):
            yield unknown(NODE, absent)
            return
    assert known(shown) and known(hidden)  # noqa: S101
    told = f"{shown} of {shown + hidden} can be seen from here."
    short = hidden and shown < profile.count
    promised = f"profile {profile.name}"
    yield (fail if short else passed)(told, observed=shown, expected=profile.count, expected_from=promised)


@rule(
    "cards.device_files",
    "This user may open the cards' device files",
    reads="/dev/kfd and the render nodes in /dev/dri: mode, group, and whether this user may open them",
    door="render",
    passes="/dev/kfd and every render node may be opened for reading and writing",
    fails="one is missing, or may not be opened",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="Every program that uses the cards opens these files first, and ends with `Unable to open /dev/kfd`, or "
    "sees no card.",
    next_step=f"Start the container with {GIVE_TO_CONTAINER}.",
    repeat="ls -ln /dev/kfd /dev/dri/renderD*; id",
)
def device_files(node: Node, profile: Profile) -> Iterator[Outcome]:
    if profile.vendor != "amd":
        yield skipped(f"The profile {profile.name} has no cards of AMD's.")
        return
    if isinstance(node.host, Absent):
        yield unknown(NODE, node.host)
        return
    seen = observe(node, "host.device_files", "linux")
    files = node.host.device_files
    if isinstance(files, Absent):
        if files.why is Why.not_present:
            yield fail(
                f"There is no /dev/kfd ({files.detail}).", observed="no /dev/kfd", observed_from=seen.source
            )
        else:
            yield unknown(NODE, files, observed_from=seen.source)
        return
    unseen = next((file.allowed for file in files if isinstance(file.allowed, Absent)), None)
    shut = [file for file in files if file.allowed is False]
    more = f" and {len(shut) - 2} more" if len(shut) > 2 else ""
    observed = ", ".join(file.path for file in shut[:2]) + more or "all open"
    words: dict[str, Any] = {"observed_from": seen.source, "observed": observed}
    if shut:
        yield _shut(shut, node, words)
    elif len(files) < 2:
        yield fail("There is no render node in /dev/dri.", **words | {"observed": "no render node"})
    elif unseen is not None:
        yield unknown(NODE, unseen, observed_from=seen.source)
    else:
        yield passed(f"/dev/kfd and {len(files) - 1} render nodes may be opened.", **words)


def _shut(shut: list[DeviceFile], node: Node, words: dict[str, Any]) -> Outcome:
    """Whose group is missing, and the command that mends it; without one it is the container's list of devices."""
    told = f"May not be opened by this user: {words['observed']}"
    groups = {file.group: file.group_id for file in shut if file.member is False and known(file.group)}
    if not groups:
        return fail(
            f"{told}, although its group is not what stands against it.",
            next_step=f"The container's list of devices lacks them: start it with {GIVE_TO_CONTAINER}.",
            **words,
        )
    names = ", ".join(sorted(str(name) for name in groups))
    add = " ".join(f"--group-add {number}" for number in groups.values() if known(number))
    inside = known(node.host) and node.host.container not in ("none",)
    return fail(
        f"{told}, who is not in the group {names}.",
        next_step=f"Start the container with {add} (the group's number on the machine)."
        if inside
        else f"`sudo usermod -aG {names.replace(', ', ',')} $USER`, then log in anew.",
        **words,
    )


@rule(
    "cards.duplicate",
    "No card is listed twice",
    reads="UUID and PCI address of every card (nvmlDeviceGetUUID, nvmlDeviceGetPciInfo_v3)",
    door="nvml",
    passes="every card has a UUID and a PCI address of its own",
    fails="two entries share a UUID or a PCI address",
    cause=Cause.not_as_rented,
    owner=Owner.provider,
    meaning="What is listed as two cards is one: they share memory, compute and links.",
    next_step="Send this report to the provider: fewer cards are there than were rented.",
    repeat=smi("uuid"),
    on_amd=OnAmd(
        reads="UUID (KFD's unique_id) and PCI address of every card; partitions of a package share the UUID",
        door="kfd",
        repeat=f"grep -HE 'unique_id|location_id|domain' {_NODES}/properties",
    ),
)
def duplicate(node: Node, profile: Profile) -> Iterator[Outcome]:
    if isinstance(node.cards, Absent):
        if profile.count == 0:
            yield skipped(f"The profile {profile.name} has no cards.")
        else:
            yield unknown(NODE, node.cards)
        return
    if len(node.cards) < 2:
        yield skipped("Fewer than two cards are listed.")
        return
    names: list[str] = []
    for value in (v for card in node.cards for v in (card.uuid, card.pci_address)):
        if isinstance(value, Absent):
            if profile.vendor == "amd" and value.why is Why.not_supported:
                continue  # partitions, and some virtual functions, have none of their own
            yield unknown(NODE, value)
            return
        names.append(value)
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        yield fail(f"Listed more than once: {', '.join(twice)}.", observed=", ".join(twice))
    else:
        yield passed(f"{len(node.cards)} UUIDs and PCI addresses, all different.", observed="all different")


_HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
"""Variables that hide cards from a program when it starts."""
_FIRST = "ROCR_VISIBLE_DEVICES"
"""On AMD's cards this one counts first, and the others number what it leaves."""


def _environment(stack: Maybe[Stack]) -> Maybe[dict[str, str]]:
    if isinstance(stack, Absent):
        return stack
    return stack.environment if isinstance(stack.environment, Absent) else dict(stack.environment)


def _hidden(stack: Maybe[Stack]) -> dict[str, str]:
    """The variables that are set and may hide cards; none where the environment was not seen."""
    environment = _environment(stack)
    if isinstance(environment, Absent):
        return {}
    return {name: environment[name] for name in _HIDING if name in environment}


def left_visible(value: str, present: int) -> int:
    """How many of the cards present a CUDA_VISIBLE_DEVICES leaves: CUDA reads it up to the first that is none."""
    count = 0
    for entry in value.split(","):
        name = entry.strip()
        numbered = name.isascii() and name.isdigit() and int(name) < present
        if not (numbered or name.startswith(("GPU-", "MIG-"))):
            break
        count += 1
    return min(count, present)


def _left(hiding: dict[str, str], present: int, profile: Profile) -> int:
    """How many cards all the variables together leave visible."""
    if profile.vendor == "amd" and _FIRST in hiding:
        present = left_visible(hiding[_FIRST], present)
        hiding = {name: value for name, value in hiding.items() if name != _FIRST}
    elif not hiding:
        return profile.count
    return min((left_visible(value, present) for value in hiding.values()), default=present)


@rule(
    "cards.hidden_by_environment",
    "No variable hides a card",
    reads="CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES",
    door="host",
    passes="none is set, or what is set leaves every card visible",
    warns="a variable leaves fewer cards visible than the profile has",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="Programs started from this shell see fewer cards than the node has; the driver sees them all.",
    next_step="Unset the variable, or set it to all the cards, and look in the shell's and the image's "
    "start files for the line that sets it.",
    repeat="env | grep VISIBLE_DEVICES",
)
def hidden_by_environment(node: Node, profile: Profile) -> Iterator[Outcome]:
    environment = _environment(node.stack)
    if profile.count == 0:
        yield skipped(f"The profile {profile.name} has no cards.")
        return
    if isinstance(environment, Absent):
        yield unknown(NODE, environment)
        return
    hiding = _hidden(node.stack)
    told = ", ".join(f"{name}={value}" for name, value in hiding.items()) or "none set"
    present = len(node.known_cards) or profile.count
    left = _left(hiding, present, profile)
    at_start = environment.get("NVIDIA_VISIBLE_DEVICES", "all")
    if left < min(present, profile.count):
        yield warn(f"{told}: {left} of {profile.count} cards stay visible.", observed=told)
    elif at_start in ("", "void", "none") and not node.known_cards:
        yield warn(
            f"NVIDIA_VISIBLE_DEVICES={at_start}: the container was started without its GPUs.",
            observed=f"NVIDIA_VISIBLE_DEVICES={at_start}",
            next_step="Start the container with NVIDIA_VISIBLE_DEVICES=all.",
        )
    else:
        yield passed(f"{told}.", observed=told)


@rule(
    "cards.excluded",
    "The driver leaves no card out",
    reads="cards that the driver was told to leave out (nvmlGetExcludedDeviceInfoByIndex)",
    door="nvml",
    passes="no card is left out",
    warns="a card is left out, and the bundle's cards are all there without it",
    fails="a card is left out, and the bundle is short of cards",
    cause=Cause.not_as_rented,
    owner=Owner.provider,
    meaning="Somebody has switched the card off in the driver's configuration, as a rule because it is "
    "broken.",
    next_step="Ask the provider why the card is excluded, and for a node where it is not.",
    repeat="nvidia-smi -B",
)
def excluded(node: Node, profile: Profile) -> Iterator[Outcome]:
    if profile.vendor != "nvidia":
        yield skipped(f"The profile {profile.name} has no cards of NVIDIA's.")
    elif isinstance(node.topology, Absent):
        yield unknown(NODE, node.topology)
    elif isinstance(node.topology.excluded, Absent):
        yield unknown(NODE, node.topology.excluded)
    elif node.topology.excluded:
        out = ", ".join(node.topology.excluded)
        judged = fail if len(node.known_cards) < profile.count else warn
        yield judged(f"The driver was told to leave out {out}.", observed=out)
    else:
        yield passed("None is left out.", observed="none")
