"""Two looks at a node, or at two nodes, held against each other fact by fact.

Cards are joined first, on UUID where both sides know it, else on their place; everything else is joined on its own
name (a disk on its mount, an adapter on its port), never on its place in a list. What moves by itself is kept apart:
counters are told as differences, and readings of a moment (`READINGS`) are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any, Literal

from pydantic import BaseModel

from nodecheck.facts.base import Absent, Fact, Maybe, known
from nodecheck.facts.card import Card, EccBlock, Link
from nodecheck.facts.host import DeviceFile, Disk
from nodecheck.facts.kernel_log import LogEvent
from nodecheck.facts.measurements import Check, StageRun, Transport
from nodecheck.facts.node import Door, Node
from nodecheck.facts.stack import ContextTest, Library, Toolkit, TorchDevice
from nodecheck.facts.topology import Adapter, Pair, PciDevice

READINGS: dict[str, tuple[str, ...]] = {
    "temperatures": ("Temperature.gpu_celsius", "Temperature.memory_celsius", "Temperature.margin_celsius"),
    "clocks of the moment and why they are where they are": (
        "Clocks.sm_mhz",
        "Clocks.memory_mhz",
        "Clocks.event_reasons",
        "Clocks.performance_state",
        "Clocks.limited_percent",
    ),
    "power draw": ("Power.draw_watts",),
    "link rates that fall in idleness": ("Pcie.generation", "PciDevice.current_speed_gt_per_s"),
    "used and free memory": (
        "Memory.used_bytes",
        "Memory.free_bytes",
        "Memory.unexplained_bytes",
        "HostMemory.available_bytes",
        "HostMemory.shm_free_bytes",
        "ContextTest.free_bytes",
    ),
    "free space of disks": ("Disk.free_bytes",),
    "utilization and processes": ("Card.gpu_utilization_percent", "Card.processes", "Host.stuck_processes"),
    "time since boot": ("Host.uptime_seconds",),
    "how long questions took": (
        "Health.start_seconds",
        "Health.slowest_call",
        "Health.slowest_call_seconds",
        "Topology.nvml_seconds",
        "Topology.amd_smi_seconds",
        "Torch.import_seconds",
        "ContextTest.context_seconds",
        "ContextTest.kernel_seconds",
        "StageRun.seconds",
        "Measurements.seconds",
    ),
    "how much of the kernel log is left": ("KernelLog.lines", "KernelLog.first_line_seconds"),
    "when a kernel message came, and its words": (
        "LogEvent.first_seconds",
        "LogEvent.last_seconds",
        "LogEvent.text",
        "LogEvent.action",
    ),
    "what a stage wrote, and how much of the data it compared": (
        "StageRun.stacks",
        "StageRun.detail",
        "Check.compared",
        "Check.covered",
        "Check.examples",
        "Transport.notes",
    ),
    "which source and how a door was": (
        "Card.source",
        "Card.other_sources",
        "Host.other_sources",
        "Stack.other_sources",
        "Topology.other_sources",
        "Pair.source",
        "Door.detail",
    ),
}
"""What moves by itself and is left out, by what it is called: `Model.field`."""

NAMES: dict[str, tuple[str, ...]] = {
    "names, addresses and serial numbers": (
        "Host.name",
        "Card.index",
        "Card.uuid",
        "Card.pci_address",
        "Card.package",
        "Card.hive",
        "Identity.serial",
        "Identity.minor",
        "Identity.render_minor",
        "Link.remote_pci_address",
        "Fabric.cluster_uuid",
        "Fabric.clique_id",
        "TorchDevice.uuid",
        "TorchDevice.pci_address",
        "PciDevice.address",
        "Adapter.pci_address",
        "Topology.driver_cards",
        "Host.acs_bridges",
    ),
    "which boot it is": ("Host.boot_id",),
}
"""What two nodes always differ in; left out where the reports are of two."""

COUNTERS = frozenset(
    (
        *(f"EccCounts.{name}" for name in (
            "corrected", "uncorrected", "sram_corrected", "sram_uncorrected", "dram_corrected",
            "dram_uncorrected", "deferred",
        )),
        *(f"EccBlock.{name}" for name in ("corrected", "uncorrected", "deferred")),
        *(f"Health.{name}" for name in (
            "retired_pages_single_bit", "retired_pages_double_bit", "remapped_rows_corrected",
            "remapped_rows_uncorrected", "bad_pages_retired", "bad_pages_pending", "bad_pages_unreservable",
        )),
        *(f"Pcie.{name}" for name in ("replays", "rollovers", "recoveries", "naks_sent", "naks_received")),
        *(f"Link.{name}" for name in (
            "replay_errors", "recovery_errors", "crc_flit_errors", "crc_data_errors", "effective_errors",
        )),
        *(f"Violations.{name}" for name in (
            "power_seconds", "thermal_seconds", "board_limit_seconds", "reliability_seconds",
        )),
        "Power.energy_joules", "Adapter.link_downed", "PciDevice.aer_uncorrected", "PciDevice.aer_corrected",
        "LogEvent.count", "Check.wrong",
    )
)  # fmt: skip
"""`Model.field`s that only grow, until a reset or a reload of the driver."""

_NOT_COMPARED = frozenset(
    (
        "Node.format", "Node.taken_at", "Node.tool_version", "Node.level",
        "Node.cards", "Measurements.figures",
        "Pair.a", "Pair.b", "ContextTest.card", "StageRun.cards", "Check.cards", "Transport.cards",
    )
)  # fmt: skip
"""What is no fact of a node; what is compared in a way of its own; what both sides were joined on."""

_PSEUDONYM = re.compile(r"host-\d+|(?:[A-Z]+-)?00000000-0000-4000-8000-\d{12}")
"""What a scrubbed recording has in place of a host's name and a card's UUID: the same for every node."""

Value = str | int | float | bool | None
"""None: there is no such thing on that side."""


Way = Literal["uuid", "slot", "pci_address", "order", "none"]


class JoinedCards(Fact):
    """A card of either side, or the two that are taken for the same."""

    label: str
    """The name that everything here uses: `GPU 3`, as the first side counts."""
    before: str | None
    """`Card.key`."""
    after: str | None
    by: Way
    """`order`: the order of their PCI addresses. `none`: only one side has it."""


class Change(Fact):
    """One fact that is not what it was."""

    subject: str
    """A joined card's label, or `node`."""
    path: str
    """Below the subject: `power.limit_watts`, `host.disks[/scratch].filesystem`."""
    before: Maybe[Value]
    after: Maybe[Value]

    @property
    def of_sight(self) -> bool:
        """Whether it is not the fact that changed but whether it could be seen."""
        return isinstance(self.before, Absent) or isinstance(self.after, Absent)


class Count(Fact):
    """A counter that moved."""

    subject: str
    path: str
    before: int | float
    after: int | float
    difference: int | float
    """Negative, of one node, where it was reset in between: then `after` is what came since."""


class Comparison(Fact):
    """What differs between the facts of two looks."""

    same_node: bool
    cards: tuple[JoinedCards, ...]
    changes: tuple[Change, ...]
    counters: tuple[Count, ...]
    left_out: tuple[str, ...]
    """What was not compared, in words."""


def compare(before: Node, after: Node) -> Comparison:
    """Everything but figures, which have a spread and are no matter of equal or not."""
    same = same_node(before, after)
    cards = join_cards(before, after)
    skipped = {field for fields in READINGS.values() for field in fields} | _NOT_COMPARED
    if not same:
        skipped |= {field for fields in NAMES.values() for field in fields}
    lone = {card.label for card in cards if card.by == "none"}
    one, other = labels(cards, before, "before"), labels(cards, after, "after")
    # A side without cards still names them elsewhere, by the keys that they have on the other.
    walk = _Walk(skipped, lone, one or other, other or one)
    found = list(walk.models(before, after, "node", ""))
    by_key = {card.key: card for card in before.known_cards}, {card.key: card for card in after.known_cards}
    if isinstance(before.cards, Absent) or isinstance(after.cards, Absent):
        found += walk.values(before.cards, after.cards, "node", "cards", "Node.cards")
    else:
        for joined in cards:
            card, now = by_key[0].get(joined.before or ""), by_key[1].get(joined.after or "")
            if card is None or now is None:
                found.append(Change(subject=joined.label, path="", before=_told(card), after=_told(now)))
            else:
                found += walk.models(card, now, joined.label, "")
    return Comparison(
        same_node=same,
        cards=cards,
        changes=tuple(item for item in found if isinstance(item, Change)),
        counters=tuple(item for item in found if isinstance(item, Count)),
        left_out=(*READINGS, *(() if same else NAMES)),
    )


def same_node(before: Node, after: Node) -> bool:
    """Whether the two are of one node: a card in common, the same boot, or the same host name."""
    if _telling_uuids(before) & _telling_uuids(after):
        return True
    if isinstance(before.host, Absent) or isinstance(after.host, Absent):
        return False
    return any(
        known(one) and one == other and not _PSEUDONYM.fullmatch(one)
        for one, other in (
            (before.host.boot_id, after.host.boot_id),
            (before.host.name, after.host.name),
        )
    )


def join_cards(before: Node, after: Node) -> tuple[JoinedCards, ...]:
    """Each card with what it is on the other side: on UUID, else slot, else PCI address, else in order.

    Cards left over on one side alone stand by themselves: a card gone, or one more.
    """
    left, right = list(before.known_cards), list(after.known_cards)
    same = same_node(before, after)
    pairs: list[tuple[Card, Card | None, Way]] = []
    ways: tuple[tuple[Way, Callable[[Card], Maybe[object] | None]], ...] = (
        ("uuid", lambda card: None if not same and _PSEUDONYM.fullmatch(str(card.uuid)) else card.uuid),
        ("slot", lambda card: card.identity.module_id),
        ("pci_address", lambda card: card.pci_address),
    )
    for way, of in ways:
        there = _unique(right, of)
        for mark, card in _unique(left, of).items():
            if mark in there:
                pairs.append((card, there[mark], way))
                left.remove(card)
                right.remove(there[mark])
    if not same:
        for card, other in zip(list(left), list(right), strict=False):
            pairs.append((card, other, "order"))
            left.remove(card)
            right.remove(other)
    pairs += [(card, None, "none") for card in left]
    place = {card.key: i for i, card in enumerate(before.known_cards)}
    pairs.sort(key=lambda pair: place[pair[0].key])
    joined = [
        JoinedCards(label=card.short_name, before=card.key, after=other.key if other else None, by=way)
        for card, other, way in pairs
    ]
    taken = {card.label for card in joined}
    for card in right:
        label = card.short_name if card.short_name not in taken else f"{card.short_name} (new)"
        joined.append(JoinedCards(label=label, before=None, after=card.key, by="none"))
    return tuple(joined)


def labels(cards: tuple[JoinedCards, ...], node: Node, side: Literal["before", "after"]) -> Mapping[str, str]:
    """A card's key, and its PCI address → its label in the comparison."""
    found = {key: card.label for card in cards if (key := getattr(card, side)) is not None}
    for card in node.known_cards:
        if known(card.pci_address) and card.key in found:
            found[card.pci_address] = found[card.key]
    return found


def _telling_uuids(node: Node) -> set[str]:
    uuids = {card.uuid for card in node.known_cards if known(card.uuid)}
    return {uuid for uuid in uuids if not _PSEUDONYM.fullmatch(uuid)}


def _unique(cards: list[Card], of: Callable[[Card], Maybe[object] | None]) -> dict[object, Card]:
    """Cards by a mark, without those that share it or have none."""
    marks = [(mark, card) for card in cards if (mark := of(card)) is not None and known(mark)]
    often = Counter(mark for mark, _ in marks)
    return {mark: card for mark, card in marks if often[mark] == 1}


Label = Callable[[str], str]

_KEYS: dict[type, Callable[[Any, Label], str]] = {
    Link: lambda link, _: str(link.index),
    EccBlock: lambda block, _: str(block.name),
    Disk: lambda disk, _: str(disk.mount),
    DeviceFile: lambda file, _: str(file.path),
    LogEvent: lambda event, label: " ".join(
        str(part)
        for part in (
            event.kind,
            event.code,
            event.name,
            label(event.device) if known(event.device) else None,
            event.severity,
        )
        if part is not None
    ),
    Adapter: lambda adapter, _: f"{adapter.name}:{adapter.port}",
    PciDevice: lambda device, label: label(device.address),
    Pair: lambda pair, label: f"{label(pair.a)} – {label(pair.b)}",
    Library: lambda library, _: str(library.path),
    Toolkit: lambda toolkit, _: str(toolkit.path),
    TorchDevice: lambda device, label: (
        label(device.uuid) if known(device.uuid) else f"device {device.index}"
    ),
    ContextTest: lambda test, label: label(test.card),
    Door: lambda door, _: str(door.name),
    Transport: lambda transport, _: str(transport.name),
    StageRun: lambda run, label: " ".join((run.stage, *map(label, run.cards))),
    Check: lambda check, label: " ".join(
        str(part) for part in (check.check, *map(label, check.cards), check.at.size_bytes, check.at.dtype) if part
    ),
}  # fmt: skip
"""What tells one item of a list from the others, on both sides alike."""


class _Walk:
    """Both sides at once, from the top down."""

    def __init__(
        self, skipped: Set[str], lone: Set[str], before: Mapping[str, str], after: Mapping[str, str]
    ) -> None:
        self._skipped = skipped
        self._lone = lone
        self._before: Label = lambda key: before.get(key, key)
        self._after: Label = lambda key: after.get(key, key)

    def models(
        self, before: BaseModel, after: BaseModel, subject: str, path: str
    ) -> Iterator[Change | Count]:
        kind = type(before)
        for name in kind.model_fields:
            field = f"{kind.__name__}.{name}"
            if field not in self._skipped:
                place = f"{path}.{name}" if path else name
                yield from self.values(getattr(before, name), getattr(after, name), subject, place, field)

    def values(
        self, before: Any, after: Any, subject: str, path: str, field: str
    ) -> Iterator[Change | Count]:
        if isinstance(before, Absent) and isinstance(after, Absent):
            if before.why is after.why:
                return
        elif isinstance(before, BaseModel) and type(before) is type(after):
            yield from self.models(before, after, subject, path)
            return
        elif isinstance(before, tuple) and isinstance(after, tuple):
            yield from self._items(before, after, subject, path)
            return
        elif before == after:
            return
        elif field in COUNTERS and _number(before) and _number(after):
            yield Count(
                subject=subject, path=path, before=before, after=after, difference=_less(after, before)
            )
            return
        yield Change(subject=subject, path=path, before=_told(before), after=_told(after))

    def _items(
        self, before: tuple[Any, ...], after: tuple[Any, ...], subject: str, path: str
    ) -> Iterator[Change | Count]:
        first = next(iter((*before, *after)), None)
        if not isinstance(first, (BaseModel, tuple)):
            if set(before) != set(after):
                yield Change(subject=subject, path=path, before=_told(before), after=_told(after))
            return
        one, other = _named(before, self._before), _named(after, self._after)
        for name in {**one, **other}:
            place = f"{path}[{name}]"
            if name in one and name in other:
                yield from self.values(one[name], other[name], subject, place, "")
            elif isinstance(first, (StageRun, Check)) or self._of_a_lone_card(name):
                continue  # measured on one side alone, or a consequence of the card that is told already
            elif isinstance(first, LogEvent):
                counts = [int(side[name].count) if name in side else 0 for side in (one, other)]
                yield Count(
                    subject=subject,
                    path=f"{place}.count",
                    before=counts[0],
                    after=counts[1],
                    difference=counts[1] - counts[0],
                )
            else:
                yield Change(
                    subject=subject, path=place, before=_told(one.get(name)), after=_told(other.get(name))
                )

    def _of_a_lone_card(self, name: str) -> bool:
        return any(re.search(rf"(?<!\w){re.escape(label)}(?!\w)", name) for label in self._lone)


def _named(items: tuple[Any, ...], label: Label) -> dict[str, Any]:
    """The items by their names; of a pair, the last of its values. A name that comes again gets a number."""
    named: dict[str, Any] = {}
    for item in items:
        if isinstance(item, BaseModel):
            of = _KEYS.get(type(item))
            name, value = (of(item, label) if of else str(item)), item
        else:
            name = " – ".join(label(str(part)) for part in item[:-1])
            value = item[-1]
        repeat = 2
        unique = name
        while unique in named:
            unique = f"{name} #{repeat}"
            repeat += 1
        named[unique] = value
    return named


def _told(value: Any) -> Maybe[Value]:
    """A value as one that can stand in a table."""
    if value is None or isinstance(value, (Absent, str, int, float, bool)):
        return value
    if isinstance(value, Disk):
        return f"{value.filesystem} {value.device}"
    if isinstance(value, Card):
        return str(value.identity.name) if known(value.identity.name) else "there"
    if isinstance(value, (Library, Toolkit)):
        return value.version if known(value.version) else "there"
    if isinstance(value, tuple):
        if any(isinstance(item, BaseModel) for item in value):
            return f"{len(value)} seen"
        return ", ".join(" ".join(map(str, item)) if isinstance(item, tuple) else str(item) for item in value)
    return "there"


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _less(after: float, before: float) -> float:
    difference = after - before
    return difference if isinstance(difference, int) else round(difference, 6)
