"""Are these still the cards that were accepted, set as they were?"""

from __future__ import annotations

from collections.abc import Iterator

from nodecheck.facts import Absent, Card, Maybe, Node, known
from nodecheck.facts.card import BUSY_BYTES
from nodecheck.judge import Cause, Owner
from nodecheck.judge.finding import NODE
from nodecheck.judge.rule import Outcome, fail, of_card, passed, skipped, smi, unknown, warn
from nodecheck.judge.rules.condition import MIB
from nodecheck.rental.drift.rule import (
    NOTHING_BEFORE,
    Changed,
    Drift,
    card_drift,
    drift_rule,
    no_cards,
    pairs,
    place,
    same,
    words_for,
)

ANEW = "If the change was agreed, accept the node anew: `nodecheck accept --profile …`."


def _cards(drift: Drift) -> tuple[Node, tuple[Card, ...], tuple[Card, ...]] | Outcome:
    """The reference, its cards and those of now; or why they cannot be compared."""
    then = drift.reference
    if then is None:
        return skipped(NOTHING_BEFORE)
    return no_cards(drift, then) or (then, then.known_cards, drift.now.known_cards)


def _successor(card: Card, now: tuple[Card, ...]) -> Card | None:
    """Another card in the place of one that is no longer there."""
    here = place(card)
    return next((other for other in now if known(here) and place(other) == here), None)


@drift_rule(
    "drift.cards.gone",
    "Every card is still there",
    reads="UUID and PCI address of every card",
    door="nvml",
    passes="every card that was there is listed",
    fails="a card is no longer listed, and no other sits in its place",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="The card has fallen off the bus, was taken out, or is no longer handed to this container. What ran on it "
    "has ended.",
    next_step="Look for Xid 79 in the kernel log, and send this to the provider: the card has to be reset or replaced.",
    repeat="nvidia-smi -L",
)
def gone(drift: Drift) -> Iterator[Outcome]:
    cards = _cards(drift)
    if isinstance(cards, Outcome):
        yield cards
        return
    then, before, now = cards
    lost = [card for card in before if same(card, now) is None and _successor(card, now) is None]
    for card in lost:
        yield fail(
            f"{card.label}, {_name(card.uuid)}, is no longer listed.",
            subject=of_card(card),
            observed="gone",
            expected=_name(card.uuid),
            expected_from=drift.witness(then),
        )
    if not lost:
        yield passed(f"All {len(before)} are there.", observed=len(now), expected_from=drift.witness(then))


@drift_rule(
    "drift.cards.new",
    "No card has come to the node",
    reads="UUID and PCI address of every card",
    door="nvml",
    passes="no card is listed that was not there before",
    warns="one is",
    cause=Cause.not_as_rented,
    owner=Owner.provider,
    meaning="This is another bundle than the one that was accepted; its figures do not hold for it.",
    next_step=f"Ask the provider what was changed. {ANEW}",
    repeat="nvidia-smi -L",
)
def new(drift: Drift) -> Iterator[Outcome]:
    cards = _cards(drift)
    if isinstance(cards, Outcome):
        yield cards
        return
    then, before, now = cards
    come = [card for card in now if same(card, before) is None and _successor(card, before) is None]
    for card in come:
        yield warn(
            f"{card.label}, {_name(card.uuid)}, was not there before.",
            subject=of_card(card),
            observed=_name(card.uuid),
            expected_from=drift.witness(then),
        )
    if not come:
        yield passed("None.", observed=len(now), expected_from=drift.witness(then))


@drift_rule(
    "drift.cards.replaced",
    "Each card is the one that was accepted",
    reads="UUID and serial number of the card in each place (nvmlDeviceGetUUID, nvmlDeviceGetSerial)",
    door="nvml",
    passes="they are as they were",
    warns="another card sits in the place",
    cause=Cause.not_as_rented,
    owner=Owner.provider,
    meaning="The card was exchanged, or the machine under this guest is another one. What was measured at acceptance "
    "says nothing of it.",
    next_step="Ask the provider why, and accept the node anew: `nodecheck accept --profile …`.",
    repeat=smi("uuid", "serial"),
)
def replaced(drift: Drift) -> Iterator[Outcome]:
    cards = _cards(drift)
    if isinstance(cards, Outcome):
        yield cards
        return
    then, before, now = cards
    alike = True
    for card in now:
        own = same(card, before)
        old = own or _successor(card, before)
        if old is None:
            continue
        if own and not _differ(own.identity.serial, card.identity.serial):
            if known(own.uuid) and isinstance(card.uuid, Absent) and isinstance(card.identity.serial, Absent):
                alike = False
                yield unknown(of_card(card), card.uuid, expected=own.uuid, expected_from=drift.witness(then))
            continue
        alike = False
        yield warn(
            f"The card at {card.pci_address} is another one: {_told(card)}, and not {_told(old)}.",
            subject=of_card(card),
            observed=_told(card),
            expected=_told(old),
            expected_from=drift.witness(then),
        )
    if alike:
        yield passed("None was exchanged.", observed=len(now), expected_from=drift.witness(then))


def _differ(was: Maybe[str], now: Maybe[str]) -> bool:
    return known(was) and known(now) and was != now


def _name(uuid: Maybe[str]) -> str:
    return uuid if known(uuid) else "whose UUID was not seen"


def _told(card: Card) -> str:
    serial = card.identity.serial
    return f"{_name(card.uuid)}{f', serial {serial}' if known(serial) else ''}"


card_drift(
    "drift.cards.moved",
    "Each card sits where it sat",
    path="pci_address",
    reads="PCI address of each card, found by its UUID (nvmlDeviceGetPciInfo_v3)",
    passes="it is as it was",
    warns="it is another one",
    cause=Cause.not_as_rented,
    owner=Owner.provider,
    meaning="The card was seated anew, or the machine around it has changed: NUMA node and the way to other cards and "
    "adapters may be others.",
    next_step=f"Ask the provider what was changed. {ANEW}",
    repeat=smi("uuid"),
)(lambda changed: warn(f"It was at {changed.was} and is at {changed.now}."))


@drift_rule(
    "drift.cards.order",
    "The driver numbers the cards as before",
    reads="the driver's number of each card (the order of nvmlDeviceGetHandleByIndex_v2)",
    door="nvml",
    passes="the cards that are there have the order that they had",
    warns="the order is another one",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="Programs that name cards by number now mean other ones.",
    next_step="Name cards by UUID (CUDA_VISIBLE_DEVICES=GPU-…), or adapt the numbers in your start files.",
    repeat="nvidia-smi -L",
)
def order(drift: Drift) -> Iterator[Outcome]:
    cards = _cards(drift)
    if isinstance(cards, Outcome):
        yield cards
        return
    then = cards[0]
    both = list(pairs(then, drift.now))
    was = [old.key for old, _ in sorted(both, key=lambda pair: pair[0].index)]
    now = [old.key for old, _ in sorted(both, key=lambda pair: pair[1].index)]
    words = {"observed": ", ".join(now), "expected": ", ".join(was), "expected_from": drift.witness(then)}
    if was == now:
        yield passed(f"{len(both)} in the order that they had.", **words)
    else:
        told = ", ".join(
            f"{new.short_name} was {old.short_name}" for old, new in both if old.index != new.index
        )
        yield warn(f"The numbers have changed: {told}.", **words)


@card_drift(
    "drift.cards.memory",
    "Each card has the memory that it had",
    path="memory.total_bytes",
    unit="bytes",
    reads="memory of each card (nvmlDeviceGetMemoryInfo v2, total)",
    passes="it is as it was",
    warns="it is more",
    fails="it is less",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="A part of the card's memory is no longer there: it was divided, capped, or taken out of use.",
    next_step="Send this to the provider.",
    repeat=smi("memory.total"),
)
def memory(changed: Changed) -> Outcome:
    said = f"{changed.now / MIB:,.0f} MiB, not {changed.was / MIB:,.0f} MiB."
    return fail(said) if changed.now < changed.was else warn(said)


for _id, _title, _path, _field in (
    ("drift.cards.vbios", "Each card has the VBIOS that it had", "identity.vbios", "vbios_version"),
    ("drift.cards.inforom", "Each card has the InfoROM that it had", "identity.inforom_image", "inforom.img"),
):
    card_drift(
        _id,
        _title,
        path=_path,
        reads=f"version of the {_title.split()[4]} of each card",
        passes="it is as it was",
        warns="it is another version",
        cause=Cause.misconfigured,
        owner=Owner.provider,
        meaning="The card's firmware was exchanged; limits and behaviour may be others than those that were accepted.",
        next_step=f"Ask the provider. {ANEW}",
        repeat=smi(_field),
    )(lambda changed: warn(f"It was {changed.was} and is {changed.now}."))


@card_drift(
    "drift.cards.power_limit",
    "No card's power limit was lowered",
    path="power.limit_watts",
    unit="W",
    reads="the power limit in force (nvmlDeviceGetEnforcedPowerLimit)",
    passes="it is as it was, or higher",
    warns="it is lower",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    meaning="The card is slower under load than it was when it was accepted.",
    next_step="Ask the provider to set the limit back (`nvidia-smi -pl`, as root).",
    repeat=smi("enforced.power.limit", "power.limit", "power.default_limit"),
)
def power_limit(changed: Changed) -> Outcome | None:
    # Drivers round the limit to whole watts in one version and to milliwatts in another.
    if changed.now > changed.was - 1:
        return None
    return warn(f"{changed.now:g} W, not {changed.was:g} W.")


@card_drift(
    "drift.cards.clocks",
    "No card's clocks were capped",
    path="clocks.max_sm_mhz",
    unit="MHz",
    reads="highest SM clock (nvmlDeviceGetMaxClockInfo)",
    passes="it is as it was, or higher",
    warns="it is lower",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    meaning="The card computes more slowly than it did when it was accepted.",
    next_step="Ask the provider why the clocks were limited.",
    repeat=smi("clocks.max.sm"),
)
def clocks(changed: Changed) -> Outcome | None:
    return warn(f"{changed.now} MHz, not {changed.was} MHz.") if changed.now < changed.was else None


for _id, _title, _path, _meaning, _repeat in (
    (
        "drift.cards.mig",
        "MIG is as it was",
        "modes.mig_enabled",
        "Programs now get a slice of the card, or the whole of what was a slice.",
        smi("mig.mode.current", "mig.mode.pending"),
    ),
    (
        "drift.cards.mig_instances",
        "The card is divided as it was",
        "modes.mig_instances",
        "Slices were made or taken away: UUIDs of slices in start files may name nothing now.",
        "nvidia-smi -L",
    ),
    (
        "drift.cards.ecc",
        "ECC is as it was",
        "health.ecc_enabled",
        "Without ECC errors in memory go unnoticed; with it a little memory and bandwidth are gone.",
        smi("ecc.mode.current", "ecc.mode.pending"),
    ),
    (
        "drift.cards.compute_mode",
        "The compute mode is as it was",
        "modes.compute",
        "The mode decides how many programs may use the card at once.",
        smi("compute_mode"),
    ),
    (
        "drift.cards.persistence",
        "Persistence mode is as it was",
        "modes.persistence",
        "Without it the first program on an idle card starts seconds later, and settings are lost between programs.",
        smi("persistence_mode"),
    ),
    (
        "drift.cards.compute_partition",
        "The package is split as it was",
        "modes.compute_partition",
        "Programs see another number of devices, each with another share of the card.",
        "amd-smi partition",
    ),
    (
        "drift.cards.memory_partition",
        "The memory is split as it was",
        "modes.memory_partition",
        "Each device reaches another share of the memory.",
        "amd-smi partition",
    ),
):
    card_drift(
        _id,
        _title,
        path=_path,
        reads=f"the setting of each card (`{_path}` in the facts)",
        passes="it is",
        warns="it was changed",
        cause=Cause.misconfigured,
        owner=Owner.provider,
        meaning=_meaning,
        next_step=f"Ask the provider who changed it, and have it set back. {ANEW}",
        repeat=_repeat,
    )(lambda changed: warn(f"It was {words_for(changed.was)} and is {words_for(changed.now)}."))


@card_drift(
    "drift.cards.pcie_width",
    "The PCIe link has kept its lanes",
    path="pcie.width",
    unit="lanes",
    reads="lanes of the link (nvmlDeviceGetCurrPcieLinkWidth); the generation falls when a card idles and is not held "
    "against it",
    passes="there are as many as there were, or more",
    fails="there are fewer",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="Half the lanes are half the bandwidth between host and card.",
    next_step="Send this to the provider: the card or its riser wants to be seated anew.",
    repeat=smi("pcie.link.width.current", "pcie.link.width.max"),
)
def pcie_width(changed: Changed) -> Outcome | None:
    return fail(f"{changed.now} lanes, not {changed.was}.") if 0 < changed.now < changed.was else None


# May they still be used?


@drift_rule(
    "drift.cards.access",
    "This container may still use its cards",
    reads="whether NVML starts and hands out cards, beside the device files and the kernel driver's own list",
    door="nvml",
    passes="the driver hands out a card",
    fails="it hands out none, though the device files are there and the kernel driver lists its cards",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    meaning="The container has lost the right to open the device files, as after `systemctl daemon-reload` or a "
    "change of the container's resources on the host. Programs that hold a card run on; no new one starts. "
    "The cards themselves are sound.",
    next_step="Restart the container (a restart inside of it does not help). Ask the provider to hand out the devices "
    "through CDI or with their /dev/char links, so that it does not come back.",
    repeat="nvidia-smi; ls -l /dev/nvidia*; ls /proc/driver/nvidia/gpus",
)
def access(drift: Drift) -> Iterator[Outcome]:
    now, topology = drift.now, drift.now.topology
    if isinstance(now.cards, tuple) and any(card.usable is True for card in now.cards):
        yield passed("The driver hands out cards.", observed=True)
        return
    if isinstance(topology, Absent):
        yield unknown(NODE, topology)
        return
    files, listed = topology.device_files, topology.driver_cards
    if not (known(files) and files and known(listed) and listed):
        yield skipped(
            "No device files of cards, or no kernel driver that lists any, are here; see cards.listed."
        )
        return
    said = str(now.cards) if isinstance(now.cards, Absent) else "every card is refused"
    refused = isinstance(now.cards, tuple) or "UNKNOWN" in said or "NO_PERMISSION" in said
    if not refused:
        yield skipped(f"The driver fails in another way; see cards.listed ({said}).")
        return
    yield fail(
        f"The driver hands out no card ({said}), while {len(files)} device files are there and the kernel driver lists "
        f"{len(listed)}.",
        observed=said,
        expected="a card",
    )


# Who is on them?


@drift_rule(
    "drift.cards.processes",
    "Programs on the cards (stated)",
    reads="processes on each card (nvmlDeviceGetComputeRunningProcesses_v3)",
    door="nvml",
    passes="always; how many there are and what they hold is stated: in a rental they are the renter's own",
    cause=Cause.misconfigured,
    owner=Owner.renter,
    meaning="",
    next_step="",
    repeat="nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name,used_memory --format=csv",
)
def processes(drift: Drift) -> Iterator[Outcome]:
    if drift.profile.count == 0:
        yield skipped(f"The profile {drift.profile.name} has no cards.")
        return
    if isinstance(drift.now.cards, Absent):
        yield unknown(NODE, drift.now.cards)
        return
    seen = [card.processes for card in drift.now.cards if known(card.processes)]
    pids = {process.pid for some in seen for process in some}
    held = sum(card.memory.used_bytes for card in drift.now.cards if known(card.memory.used_bytes))
    if not seen and drift.now.cards:
        yield unknown(NODE, next(c.processes for c in drift.now.cards if isinstance(c.processes, Absent)))
    else:
        yield passed(f"{len(pids)} in sight, {held / MIB:,.0f} MiB in use on all cards.", observed=len(pids))


@drift_rule(
    "drift.cards.memory_held",
    "No memory is held that nobody in sight explains",
    reads="memory in use, less what the processes in sight hold",
    door="nvml",
    passes=f"no more than {BUSY_BYTES // MIB} MiB, or no more than at acceptance",
    warns="more, on the machine itself; in a container, whose own processes the driver may not list, only where the "
    "profile requires `cards.memory.unexplained`",
    cause=Cause.not_as_rented,
    owner=Owner.provider,
    meaning="A process that ended has left its memory behind, or somebody else is on the card.",
    next_step="End your own programs and look again. If the memory stays in use, ask the provider to reset the card.",
    repeat=smi("memory.used") + "; nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv",
)
def memory_held(drift: Drift) -> Iterator[Outcome]:
    if drift.profile.count == 0:
        yield skipped(f"The profile {drift.profile.name} has no cards.")
        return
    if isinstance(drift.now.cards, Absent):
        yield unknown(NODE, drift.now.cards)
        return
    accepted = drift.baseline.known_cards if drift.baseline else ()
    host = drift.now.host
    apart = known(host) and host.container == "none"
    judged = apart or drift.profile.requires("cards.memory.unexplained", False)
    free, closed = 0, None
    for card in drift.now.cards:
        held = card.memory.unexplained_bytes
        if isinstance(held, Absent):
            closed = held
            continue
        before = same(card, accepted)
        was = before.memory.unexplained_bytes if before else 0
        if held <= max(BUSY_BYTES, was + MIB if known(was) else 0):
            free += 1
        elif judged:
            yield warn(
                f"{held / MIB:,.0f} MiB are held by no process that can be seen from here.",
                subject=of_card(card),
                observed=held,
                expected=BUSY_BYTES,
                expected_from="less than one CUDA context takes",
                unit="bytes",
            )
        else:
            why = "In a container the driver need not list one's own programs: whose memory it is cannot be told."
            yield skipped(f"{held / MIB:,.0f} MiB are held by no process in sight. {why}", of_card(card))
    if free and free == len(drift.now.cards):
        yield passed("None.", observed=0)
    elif closed is not None:
        yield unknown(NODE, closed)
    elif not drift.now.cards:
        yield skipped("There is no card to look at; see cards.listed.")
