"""What the kernel's log tells. A log that is closed to this user makes each of these `unknown`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from nodecheck.facts import Absent, Card, KernelLog, LogEvent, Node, Why, known
from nodecheck.judge.amdgpu import AMDGPU_SOURCE, messages
from nodecheck.judge.finding import NODE, Cause, Owner, Status
from nodecheck.judge.rule import OnAmd, Outcome, fail, of_card, passed, rule, skipped, unknown, warn
from nodecheck.judge.xids import SXID_SOURCE, XID_SOURCE, sxids, xids
from nodecheck.profile import Profile

MANY_CORRECTED = 1000
"""Corrected errors that are worth a warning; a few are normal on any machine. Our own bound."""

_LONGEST_QUOTED = 160

SETTLED_SECONDS = 600.0
"""Network ports go down and up while a machine starts; after this they should stay up. Our own bound."""


@dataclass(frozen=True)
class _Look:
    """What a rule on the log is shown, once for each event."""

    event: LogEvent
    node: Node
    profile: Profile

    @property
    def card(self) -> Card | None:
        """The card that the event is about, if it is one of this node's."""
        if isinstance(self.event.device, Absent):
            return None
        return next((card for card in self.node.known_cards if card.pci_address == self.event.device), None)

    @property
    def of_another(self) -> bool:
        """Whether the event is about a card that is not rented.

        A container on a larger machine sees the log of all its cards. But a card that the bundle lacks may be
        the very one that the line is about: this is said only where all the bundle's cards are there.
        """
        cards = self.node.known_cards
        addresses = [
            card.pci_address for card in cards if card.usable is not False and known(card.pci_address)
        ]
        whole = 0 < self.profile.count <= len(addresses) == len(cards)
        return whole and known(self.event.device) and self.event.device not in addresses

    @property
    def device(self) -> str:
        return "the line does not say which" if isinstance(self.event.device, Absent) else self.event.device

    @property
    def told(self) -> str:
        """How often and when; the line itself is what the outcome has observed."""
        first, last = self.event.first_seconds, self.event.last_seconds
        often = "once" if self.event.count == 1 else f"{self.event.count} times"
        if isinstance(first, Absent) or isinstance(last, Absent):
            return f"seen {often}"
        return f"seen {often}, " + " to ".join(dict.fromkeys((self._when(first), self._when(last))))

    @property
    def quoted(self) -> str:
        """The line, cut where it is long, and how often and when it was seen."""
        text = self.event.text
        return f"“{text if len(text) <= _LONGEST_QUOTED else f'{text[:_LONGEST_QUOTED]}…'}” ({self.told})"

    def _when(self, seconds: float) -> str:
        when = self.node.at(seconds)
        computed = "" if isinstance(when, Absent) else f" (computed: {when:%Y-%m-%d %H:%M:%S} UTC)"
        return f"{seconds:.0f} s after boot{computed}"


_Say = Callable[[_Look], Outcome | None]
"""What an event means; None where it is only worth a mention."""


def _log_rule(
    id: str,
    title: str,
    *,
    of: Callable[[LogEvent], bool],
    nothing: str,
    needs: Callable[[Profile], str] | None = None,
    **words: Any,
) -> Callable[[_Say], _Say]:
    """Register the decorated function as a rule on the log's events that `of` picks.

    It gives an outcome for each event that means trouble, completed with the card, the line and its source.
    If there is none, the rule passes with a sentence that begins with `nothing` and names what is only worth
    a mention; of an excerpt it says the same, and is unknown. `needs` says why a profile does not need the rule
    at all, or nothing where it does.
    """

    def register(say: _Say) -> _Say:
        def judge(node: Node, profile: Profile) -> Iterator[Outcome]:
            log = node.kernel_log
            if needs and (reason := needs(profile)):
                yield skipped(reason)
            elif isinstance(log, Absent):
                yield unknown(NODE, log)
            elif isinstance(log.events, Absent):
                yield unknown(NODE, log.events)
            else:
                looks = [_Look(event, node, profile) for event in log.events if of(event)]
                yield from _judged(looks, log, nothing, say)

        rule(id, title, door="kernel_log", **words)(judge)
        return say

    return register


def _judged(looks: list[_Look], log: KernelLog, nothing: str, say: _Say) -> Iterator[Outcome]:
    source = f"kernel log ({log.source})"
    mentioned = []
    for look in looks:
        outcome = say(look)
        if outcome is None:
            mentioned.append(look)
            continue
        subject = of_card(look.card) if look.card else NODE
        yield replace(outcome, subject=subject, observed=look.event.text, observed_from=source)
    if len(mentioned) == len(looks):
        also = "".join(f" Mentioned only: {look.quoted}." for look in mentioned[:3])
        more = f" And {len(mentioned) - 3} more of the kind." if len(mentioned) > 3 else ""
        said = f"{nothing} {_extent(log)}.{also}{more}"
        if log.excerpt:
            why = f"the log was not pasted whole; {said[0].lower()}{said[1:]}"
            yield unknown(NODE, Absent(why=Why.not_asked, detail=why), observed_from=source)
        else:
            yield passed(said, observed=len(mentioned), observed_from=source)


def _extent(log: KernelLog) -> str:
    lines = "1 line" if log.lines == 1 else f"{log.lines} lines"
    if log.complete is True:
        return f"in the {lines} since boot"
    left = f"in the {lines} {'pasted' if log.excerpt else 'left of the log'}"
    if isinstance(log.first_line_seconds, Absent):
        return left
    return f"{left} (from {log.first_line_seconds:.0f} s after boot on)"


def _without_cards(profile: Profile) -> str:
    return "" if profile.count else f"The profile {profile.name} has no cards."


def _without_nvidia(profile: Profile) -> str:
    return "" if profile.vendor == "nvidia" else f"The profile {profile.name} has no cards of NVIDIA's."


def _without_amd(profile: Profile) -> str:
    return "" if profile.vendor == "amd" else f"The profile {profile.name} has no cards of AMD's."


def _without_nvlink(profile: Profile) -> str:
    promised = profile.links is not None and profile.links.interconnect in ("nvlink", "nvlink_pairs")
    return "" if promised else f"The profile {profile.name} promises no NVLink."


@rule(
    "kernel_log.readable",
    "The kernel log of this boot can be read whole",
    reads="/dev/kmsg, else dmesg, else the journal: which opens, and whether its first line is the boot's",
    door="kernel_log",
    passes="The log is there from the boot's first line on.",
    cause=Cause.not_visible,
    owner=Owner.provider,
    meaning="Errors that the driver reported in lines that are gone cannot be seen.",
    next_step="Run as root, or in a container that may read the log; or ask the provider for the errors.",
    repeat="dmesg | head",
)
def readable(node: Node, _: Profile) -> Iterator[Outcome]:
    log = node.kernel_log
    if isinstance(log, Absent):
        yield unknown(NODE, log)
    elif isinstance(log.source, Absent):
        yield unknown(NODE, log.source)
    elif isinstance(log.complete, Absent):
        yield unknown(NODE, log.complete, observed=log.lines, unit="lines")
    elif log.complete:
        yield passed(
            f"{log.source} holds all {log.lines} lines since boot.", observed=log.lines, unit="lines"
        )
    else:
        gone = "Lines of this boot have been overwritten or cleared; what is said of the log holds"
        if log.excerpt:
            gone = "What was pasted is not known to begin with this boot; what is said of the log holds"
        yield Outcome(Status.unknown, detail=f"{gone} {_extent(log)}.", observed=log.lines, unit="lines")


@_log_rule(
    "kernel_log.xid",
    "No Xid in the kernel log",
    of=lambda event: event.kind == "xid",
    nothing="No Xid that speaks against this bundle's cards",
    needs=_without_nvidia,
    reads="`NVRM: Xid` lines, by number and card, against nodecheck's table of Xids",
    passes="No Xid, or only such as say nothing about the bundle's cards.",
    warns="Xids that a program causes as a rule (13, 31, 43, 45 …: the renter's), Xids that may point at the "
    "card, and numbers that the table does not have.",
    fails="Xids of broken hardware or of a card that needs a reset; Xid 154 that asks for one.",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="The driver has reported an error of the card.",
    next_step="Send the line to the provider.",
    repeat="dmesg | grep Xid",
)
def _xid(look: _Look) -> Outcome | None:
    code = look.event.code
    if look.of_another:
        return None
    if code == 154:
        return _recovery(look)
    entry = xids().get(code) if code is not None else None
    if entry is None:
        return warn(
            f"Xid {code} is not in the table: {look.told}.",
            next_step="Look the number up in NVIDIA's Xid catalogue, and send the line to the provider.",
        )
    if entry.gravity == "ignore":
        return None
    # The Xids of NVLink 5 say themselves whether they are fatal.
    grave = entry.gravity == "fail" and look.event.severity != "non_fatal"
    return (fail if grave else warn)(
        f"Xid {code} ({entry.name}): {entry.meaning} It was {look.told}.",
        cause=entry.cause,
        owner=entry.owner,
        next_step=entry.next_step,
        expected_from=XID_SOURCE,
    )


def _recovery(look: _Look) -> Outcome | None:
    """Xid 154 says itself what the card needs."""
    action = look.event.action
    if action == "None":
        return None
    if action is None:
        return warn(f"Xid 154: the recovery action has changed, the line does not say to what: {look.told}.")
    reboot = "Ask the provider to restart the machine."
    return fail(
        f"Xid 154: the driver asks for “{action}” before the card is used again: {look.told}.",
        next_step=reboot if "boot" in action.lower() else xids()[154].next_step,
        expected_from=XID_SOURCE,
    )


@_log_rule(
    "kernel_log.sxid",
    "No SXid of an NVSwitch in the kernel log",
    of=lambda event: event.kind == "sxid",
    nothing="No SXid of weight",
    needs=_without_nvlink,
    reads="`SXid` lines of nvidia-nvswitch by number and switch; the line's own word goes first",
    passes="No SXid, or only such as say nothing about the node.",
    warns="Non-fatal SXids, and numbers that the table does not have.",
    fails="Fatal SXids.",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="An NVSwitch has reported an error: traffic between cards may stop or slow down.",
    next_step="Send the line to the provider.",
    repeat="dmesg | grep SXid",
)
def _sxid(look: _Look) -> Outcome | None:
    code, severity = look.event.code, look.event.severity
    entry = sxids().get(code) if code is not None else None
    words = {"next_step": entry.next_step if entry else "", "expected_from": SXID_SOURCE}
    said = (
        f"SXid {code} ({entry.name}): {entry.meaning} It was"
        if entry
        else f"SXid {code} is not in the table:"
    )
    if severity == "fatal" or (severity is None and entry and entry.gravity == "fail"):
        return fail(f"{said} {look.told}.", **words)
    if entry and entry.gravity == "ignore":
        return None
    return warn(f"{said} {look.told}.", **words)


@_log_rule(
    "kernel_log.fallen_off_bus",
    "No card fell off the bus",
    of=lambda event: event.kind == "fallen_off_bus" or (event.kind == "xid" and event.code == 79),
    nothing="No card of this bundle fell off the bus",
    needs=_without_cards,
    reads="the driver's wordings for a card that no longer answers, with an Xid 79 or without any Xid",
    passes="No such line about the bundle's cards.",
    fails="Such a line about a card of the bundle, about a missing one, or one that names no card.",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="A card stopped answering on PCI Express: power, seat, slot, heat or the card itself.",
    next_step="Ask the provider to restart the machine and to look at the card's seat and power.",
    repeat="dmesg | grep -i 'fallen off the bus'",
    on_amd=OnAmd(reads="amdgpu's words for a card that is lost", repeat="dmesg | grep -i 'lost from bus'"),
)
def _fallen_off_bus(look: _Look) -> Outcome | None:
    return None if look.of_another else fail(f"A card fell off the bus ({look.device}): {look.told}.")


@_log_rule(
    "kernel_log.driver",
    "The driver started every card",
    of=lambda event: event.kind in ("card_init", "nvrm"),
    nothing="No card failed to start",
    needs=_without_cards,
    reads="`RmInitAdapter failed`, failed probes, a missing BAR; other complaints of NVRM are only mentioned",
    passes="No card failed to start.",
    warns="A card failed to start, and is usable now.",
    fails="A card failed to start and is not usable now, or cards are missing and the line names none.",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="The driver could not bring a card up: its firmware, the machine's memory windows, or the card.",
    next_step="Send the lines to the provider.",
    repeat="dmesg | grep NVRM",
    on_amd=OnAmd(
        reads="`Fatal error during GPU init`, failed probes and starts of the card's blocks, no readable "
        "description of them",
        repeat="dmesg | grep -E 'amdgpu.*(Fatal|failed)'",
    ),
)
def _driver(look: _Look) -> Outcome | None:
    if look.event.kind == "nvrm" or look.of_another:
        return None
    usable = [card for card in look.node.known_cards if card.usable is True]
    back = look.card in usable if known(look.event.device) else len(usable) >= look.profile.count
    said = f"A card could not be started ({look.device}): {look.told}."
    return warn(f"{said} It is usable now.") if back else fail(said)


@_log_rule(
    "kernel_log.amdgpu",
    "No message of amdgpu speaks against the cards",
    of=lambda event: event.kind == "amdgpu",
    nothing="Nothing from amdgpu that speaks against this bundle's cards",
    needs=_without_amd,
    reads="lines of amdgpu, KFD and RAS by message and card, against nodecheck's table of them",
    passes=f"None, or only such as say nothing about the bundle's cards; fewer than {MANY_CORRECTED} corrected "
    "errors of a "
    "card are mentioned only.",
    warns="Messages that a program causes as a rule (page faults, queues that do not end …: the renter's), and "
    "those that "
    f"may point at the card: resets, deferred errors, heat, firmware; {MANY_CORRECTED} corrected errors of a card.",
    fails="Uncorrectable errors, poison that was used, failed resets, too many bad pages, links or memory that did not "
    "start, too much heat.",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="The driver has reported an error of the card.",
    next_step="Send the line to the provider.",
    repeat="dmesg | grep -E 'amdgpu|kfd'",
)
def _amdgpu(look: _Look) -> Outcome | None:
    event = look.event
    entry = messages().get(event.name) if event.name else None
    if look.of_another or entry is None:
        return None
    if entry.gravity == "ignore":
        if not event.name or not event.name.endswith("_correctable") or event.count < MANY_CORRECTED:
            return None
        return warn(f"{event.count} times: {entry.name}. It was {look.told}.", expected_from=AMDGPU_SOURCE)
    return (fail if entry.gravity == "fail" else warn)(
        f"{entry.name[0].upper()}{entry.name[1:]}: {entry.meaning} It was {look.told}.",
        cause=entry.cause,
        owner=entry.owner,
        next_step=entry.next_step,
        expected_from=AMDGPU_SOURCE,
    )


@_log_rule(
    "kernel_log.iommu",
    "The IOMMU has refused no card",
    of=lambda event: event.kind == "iommu",
    nothing="No fault of a card of this bundle",
    needs=_without_cards,
    reads="faults that the IOMMU reports (AMD-Vi, DMAR), by device",
    passes="None of a card of the bundle; those of other devices are mentioned only.",
    warns="A card reached for memory that the IOMMU does not let it have.",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    meaning="Copies between cards or from the host went astray: peer access through an IOMMU that translates is "
    "known for "
    "it, and programs hang or compute with wrong data.",
    next_step="Ask the provider to boot with iommu=pt (host.iommu), and send the line.",
    repeat="dmesg | grep -E 'IO_PAGE_FAULT|DMAR:.*fault'",
)
def _iommu(look: _Look) -> Outcome | None:
    return warn(f"A card was refused by the IOMMU ({look.device}): {look.told}.") if look.card else None


@_log_rule(
    "kernel_log.nvlink",
    "No trouble with NVLink in the kernel log",
    of=lambda event: event.kind == "nvlink",
    nothing="No complaint about NVLink",
    needs=_without_nvlink,
    reads="complaints of the driver's NVLink parts (`knvlink…`, `nvidia-nvlink`, `nvidia-nvswitch`)",
    passes="No such line.",
    warns="Any such line; whether links are missing is for topology.nvlink.active_links to say.",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="Links were not found or not set up; the driver may be stuck in the attempt.",
    next_step="Compare the active NVLinks with the profile (`nvidia-smi nvlink -s`), and send in the lines.",
    repeat="dmesg | grep -i nvlink",
)
def _nvlink(look: _Look) -> Outcome | None:
    return None if look.of_another else warn(f"Trouble with NVLink: {look.told}.")


@_log_rule(
    "kernel_log.pcie",
    "No PCI Express errors in the kernel log",
    of=lambda event: event.kind == "aer",
    nothing="No PCI Express error of weight",
    reads="AER reports by device and severity, downstream port containment, lost hot-plug links",
    passes=f"No errors, or fewer than {MANY_CORRECTED} corrected ones of a device.",
    warns=f"Uncorrected errors, unless fatal ones of a card; {MANY_CORRECTED} corrected ones of a device.",
    fails="A fatal error of a card.",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="Transfers over PCI Express fail or are repeated: slot, riser, cable, or the card.",
    next_step="Send the lines to the provider.",
    repeat="dmesg | grep -E 'AER|PCIe Bus Error|DPC'",
)
def _pcie(look: _Look) -> Outcome | None:
    event = look.event
    if event.severity == "corrected":
        if event.count < MANY_CORRECTED:
            return None
        return warn(f"{event.count} corrected PCI Express errors ({look.device}): {look.told}.")
    said = f"Uncorrected PCI Express error ({look.device}): {look.told}."
    return fail(said) if event.severity == "fatal" and look.card else warn(said)


@_log_rule(
    "kernel_log.memory",
    "No errors of host memory or CPU in the kernel log",
    of=lambda event: event.kind in ("mce", "edac"),
    nothing="No error of weight of host memory or CPU",
    reads="machine checks, the firmware's error reports, EDAC counts",
    passes=f"No errors, or fewer than {MANY_CORRECTED} corrected ones.",
    warns=f"Machine checks that were not corrected or do not say; {MANY_CORRECTED} corrected errors.",
    fails="Uncorrected memory errors, fatal machine checks.",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="The machine around the cards has a fault: programs may crash or compute wrong results.",
    next_step="Send the lines to the provider: a memory module or CPU may need replacing.",
    repeat="dmesg | grep -iE 'edac|hardware error|machine check'",
)
def _memory(look: _Look) -> Outcome | None:
    event = look.event
    what = "memory" if event.kind == "edac" else "hardware"
    if event.severity == "corrected":
        if event.count < MANY_CORRECTED:
            return None
        return warn(f"{event.count} corrected errors of the host's {what}: {look.told}.")
    return (fail if event.severity == "fatal" else warn)(f"Error of the host's {what}: {look.told}.")


@_log_rule(
    "kernel_log.system",
    "The kernel ran without lockups, crashes or lack of memory",
    of=lambda event: event.kind in ("lockup", "panic", "oom", "segfault"),
    nothing="No lockup, crash or lack of memory",
    reads="lockups, hung tasks, RCU stalls, oopses, the out-of-memory killer, crashes inside GPU libraries",
    passes="None of these; programs ended by the limit of their own cgroup are mentioned only.",
    warns="Any of these.",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="The machine hung or ran out of memory, or a program crashed inside a library of the GPU stack.",
    next_step="Send the lines to the provider.",
    repeat="dmesg | grep -iE 'lockup|blocked for more|stall|oops|out of memory|segfault'",
)
def _system(look: _Look) -> Outcome | None:
    kind = look.event.kind
    renters: dict[str, Any] = {"cause": Cause.misconfigured, "owner": Owner.renter}
    if kind == "oom":
        if look.device == "memory cgroup":
            return None
        step = "See which program took the memory; give it less, or rent more."
        return warn(f"The machine ran out of memory: {look.told}.", next_step=step, **renters)
    if kind == "segfault":
        step = "Check that the library fits the driver and torch (see the findings under stack)."
        return warn(f"A program crashed inside {look.device}: {look.told}.", next_step=step, **renters)
    if kind == "panic":
        return warn(f"The kernel itself met a fault: {look.told}.")
    return warn(f"The kernel met a {look.device}: {look.told}.")


@_log_rule(
    "kernel_log.adapters",
    "The network adapters ran without trouble",
    of=lambda event: event.kind in ("link_down", "adapter_heat", "adapter_power"),
    nothing="No trouble with network adapters",
    reads="ports that went down, adapters that were too hot; too little power in the slot is mentioned only",
    passes=f"None of these; a port that went down within {SETTLED_SECONDS:.0f} s of boot is mentioned only.",
    warns="A port went down later, or an adapter or its module was too hot.",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="Traffic between nodes stops while a port is down, and slows when an adapter is too hot.",
    next_step="Send the lines to the provider, with the ports' state (`ibstat`, `ip link`).",
    repeat="dmesg | grep -iE 'link down|lost carrier|temperature'",
)
def _adapters(look: _Look) -> Outcome | None:
    event = look.event
    if event.kind == "adapter_heat":
        return warn(f"A network adapter or its module was too hot ({look.device}): {look.told}.")
    starting = not isinstance(event.last_seconds, Absent) and event.last_seconds < SETTLED_SECONDS
    if event.kind == "adapter_power" or starting:
        return None
    return warn(f"The port {look.device} went down: {look.told}.")
