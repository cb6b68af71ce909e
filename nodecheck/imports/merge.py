"""Several outputs of one node made into one: what each alone tells is added up, what two tell otherwise is shown.

A fact that two outputs state differently is not known: it becomes `failed`, with what each of them says. No
contradiction is what moves from one look to the next (temperatures, clocks, memory in use): there the more exact
output counts; what only grows (errors): there the later look, which has more of it, does; and a number that one of
the two rounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, TypeVar

from pydantic.fields import FieldInfo

from nodecheck import __version__
from nodecheck.facts import (
    NOT_ASKED,
    Absent,
    Card,
    Door,
    Fact,
    KernelLog,
    Maybe,
    Measurements,
    Node,
    Topology,
    Why,
    known,
)
from nodecheck.facts.base import AMD_ALONE, NVIDIA_ALONE, Gathered
from nodecheck.facts.card import Link
from nodecheck.facts.comparison import COUNTERS, READINGS
from nodecheck.facts.kernel_log import LogEvent
from nodecheck.facts.topology import Adapter, Pair, PciDevice
from nodecheck.imports.kind import Kind, Piece
from nodecheck.probes.belief import CHECKED, agree


@dataclass(frozen=True)
class Told:
    """An output that was understood."""

    file: str
    kind: Kind
    piece: Piece


_MOVES = frozenset(name for names in READINGS.values() for name in names) | {
    "Memory.reserved_bytes",
    "HostMemory.total_bytes",
}
_GROWS = COUNTERS | {"Card.lost"}
_ONCE_FALSE = frozenset({"Card.usable"})
"""Where False in one look counts."""
_KEYS: dict[type[Fact], tuple[str, ...]] = {
    Link: ("index",),
    Pair: ("a", "b"),
    PciDevice: ("address",),
    Adapter: ("name", "port"),
}
_OWN = ("source", "other_sources")
"""What speaks of the output and not of the node."""
_OF_OTHERS = (AMD_ALONE, NVIDIA_ALONE)
"""What a reader of the one vendor's outputs says of the other's facts."""
_ROUNDED_WATTS = 1.0
"""The table of nvidia-smi prints whole watts."""

F = TypeVar("F", bound=Fact)


@dataclass(frozen=True)
class Merged:
    node: Node
    conflicts: tuple[str, ...]
    """Contradictions, a sentence each."""
    unplaced: tuple[str, ...]
    """Outputs of which nothing says which cards they speak of, a sentence each."""


def merge(told: Sequence[Told], now: datetime) -> Merged:
    """One node out of what was told, the most exact first.

    `now` stands for the time where no output says when it was taken.
    """
    merging = _Merging(told)
    groups, unplaced = _joined(told, merging.conflicts)
    listed = [_as_guest(card) for card in merging.cards(groups)]
    names = [
        {
            card.key: merged.key
            for group, merged in zip(groups, listed, strict=True)
            for i, card in group
            if i == n
        }
        for n in range(len(told))
    ]
    pieces = [_renamed(one.piece, by) for one, by in zip(told, names, strict=True)]
    cards: Maybe[tuple[Card, ...]] = tuple(sorted(listed, key=_place))
    if not listed:
        cards = _first([one.piece.cards for one in told])
    figures = [piece.measurements for piece in pieces if known(piece.measurements)]
    node = Node(
        taken_at=next((one.piece.taken_at for one in told if one.piece.taken_at), now).astimezone(
            timezone.utc
        ),
        tool_version=__version__,
        level="standard" if figures else "quick",
        cards=cards,
        host=merging.part([piece.host for piece in pieces]),
        topology=_counted(merging.part([piece.topology for piece in pieces]), listed),
        stack=merging.part([piece.stack for piece in pieces]),
        kernel_log=_logs([one.piece.kernel_log for one in told]),
        measurements=_figures(figures) if figures else NOT_ASKED,
        diagnoses=tuple(diagnosis for piece in pieces for diagnosis in piece.diagnoses),
    )
    node = node.model_copy(update={"doors": _doors(node, told)})
    return Merged(node, tuple(merging.conflicts), unplaced)


# Cards


_Group = list[tuple[int, Card]]
"""One card, in every output that speaks of it, with the output's place among all."""


def _joined(told: Sequence[Told], conflicts: list[str]) -> tuple[list[_Group], tuple[str, ...]]:
    """The cards in all outputs, and which outputs could not be placed. A card that may be one of those that are
    known, and nothing says which, is no further card."""
    groups: list[_Group] = []
    unplaced: list[str] = []
    for n, one in enumerate(told):
        if isinstance(one.piece.cards, Absent):
            continue
        lost = 0
        twice = Counter(card.uuid for card in one.piece.cards)
        taken: set[int] = set()
        for card in one.piece.cards:
            free = [
                k for k, group in enumerate(groups) if k not in taken and group[0][1].vendor == card.vendor
            ]
            found = _same(card, groups, free, told, n, trust_uuid=twice[card.uuid] == 1)
            if found is None and not all(_apart(card, groups[k], told, n) for k in free):
                lost += 1
                continue
            if found is None:
                groups.append([(n, card)])
                found = len(groups) - 1
                if other := _same_number(card, groups, free, told, n):
                    conflicts.append(
                        f"{card.label} of {one.kind.name} ({one.file}) and {other[1].label} of "
                        f"{told[other[0]].kind.name} ({told[other[0]].file}) are different cards: the outputs are of "
                        "two nodes, or the cards were numbered anew between them"
                    )
            else:
                groups[found].append((n, card))
            taken.add(found)
        if lost:
            unplaced.append(
                f"{one.file}: nothing says which of the node's cards {lost} of {one.kind.name} are; paste an output "
                "with their UUIDs or PCI addresses as well (`amd-smi list -e`, `nvidia-smi -L`)"
            )
    return groups, tuple(unplaced)


def _same(
    card: Card, groups: list[_Group], free: list[int], told: Sequence[Told], n: int, *, trust_uuid: bool
) -> int | None:
    """The group of this card: by UUID, by PCI address, else by a number that both tools give alike."""

    def has(group: _Group, name: str) -> bool:
        return any(known(value) and value == getattr(card, name) for value in _values(group, name))

    if trust_uuid and known(card.uuid):
        for k in free:
            if has(groups[k], "uuid"):
                return k
    if known(card.pci_address):
        for k in free:
            if has(groups[k], "pci_address"):
                return k
    for k in free:
        if _numbered_alike(card, groups[k], told, n) and not _other_card(card, groups[k]):
            return k
    return None


def _same_number(
    card: Card, groups: list[_Group], free: list[int], told: Sequence[Told], n: int
) -> tuple[int, Card] | None:
    for k in free:
        if _numbered_alike(card, groups[k], told, n):
            return groups[k][0]
    return None


def _numbered_alike(card: Card, group: _Group, told: Sequence[Told], n: int) -> bool:
    return card.index in _numbers(group, told, n)


def _numbers(group: _Group, told: Sequence[Told], n: int) -> set[int]:
    """The group's numbers from tools that number the cards as output `n` does."""
    if not told[n].piece.numbered:
        return set()
    return {
        other.index
        for i, other in group
        if told[i].piece.numbered and told[i].kind.vendor_numbers == told[n].kind.vendor_numbers
    }


def _apart(card: Card, group: _Group, told: Sequence[Told], n: int) -> bool:
    """Whether something says that this is not the group's card."""
    return _other_card(card, group) or bool(_numbers(group, told, n))


def _other_card(card: Card, group: _Group) -> bool:
    """Whether a UUID or an address says that this is not the group's card."""
    return any(
        known(getattr(card, name))
        and any(known(v) and v != getattr(card, name) for v in _values(group, name))
        for name in ("uuid", "pci_address")
    )


_OF_THE_WHOLE = ("bad_pages_retired", "bad_pages_pending", "bad_pages_unreservable")


def _as_guest(card: Card) -> Card:
    """A virtual function has no table of bad pages: that amd-smi shows none there says nothing of the card."""
    if card.modes.virtualization != "virtual_function":
        return card
    untold = Absent(why=Why.not_supported, detail="a virtual function is not told")
    empty = {name: untold for name in _OF_THE_WHOLE if getattr(card.health, name) == 0}
    return card.model_copy(update={"health": card.health.model_copy(update=empty)})


_LISTS = {"nvidia": ("nvml_count", "nvidia-smi -L"), "amd": ("amd_smi_count", "amd-smi list")}


def _counted(topology: Maybe[Topology], cards: Sequence[Card]) -> Maybe[Topology]:
    """Where no output lists all cards of a vendor, those that are known are no count."""
    if not cards:
        return topology
    whole = Topology() if isinstance(topology, Absent) else topology
    vendors = {card.vendor for card in cards}
    update: dict[str, Maybe[int]] = {}
    if "amd" in vendors:
        update |= dict.fromkeys(
            (name for name in Topology.model_fields if getattr(whole, name) == AMD_ALONE), NOT_ASKED
        )
        whole = whole.model_copy(update=update)
    for vendor in vendors:
        name, command = _LISTS[vendor]
        if getattr(whole, name) == NOT_ASKED:
            told = f"no output lists all cards; paste `{command}` as well"
            update[name] = Absent(why=Why.failed, detail=told)
    return whole.model_copy(update=update) if update else topology


def _values(group: _Group, name: str) -> list[Any]:
    return [getattr(card, name) for _, card in group]


def _place(card: Card) -> tuple[bool, str, int]:
    if isinstance(card.pci_address, Absent):
        return True, "", card.index
    return False, card.pci_address.zfill(16), card.index


def _first(values: Sequence[Maybe[Any]]) -> Any:
    """The first that says something, be it why there is nothing."""
    for value in values:
        if not isinstance(value, Absent) or value.why is not Why.not_asked:
            return value
    return next((value for value in values if value != NOT_ASKED), NOT_ASKED)


# Facts


@dataclass
class _Merging:
    told: Sequence[Told]
    conflicts: list[str] = field(default_factory=list)

    def cards(self, groups: Sequence[_Group]) -> list[Card]:
        merged = []
        for group in groups:
            first = group[0][1]
            numbered = next((c.index for i, c in group if self.told[i].piece.numbered), first.index)
            card = self.fold(group, f"GPU {numbered}: ")
            merged.append(card.model_copy(update={"index": numbered}))
        return merged

    def part(self, values: Sequence[Maybe[F]]) -> Maybe[F]:
        facts = [(n, value) for n, value in enumerate(values) if not isinstance(value, Absent)]
        return self.fold(facts, "") if facts else _first(values)

    def fold(self, facts: Sequence[tuple[int, F]], subject: str) -> F:
        """One fact out of several of its kind, the first being the most exact."""
        (first, result), *rest = facts
        believed = isinstance(result, Card) and result.vendor == "amd"
        folding = _Folding(self, subject, dict.fromkeys(_leaves(result, ""), (first,)), believed)
        for n, other in rest:
            result = folding.both(result, other, n, "")
        return _with_witnesses(result, {path: self._names(told) for path, told in folding.sources.items()})

    def _names(self, told: Sequence[int]) -> str:
        return ", ".join(dict.fromkeys(self.told[n].kind.name for n in told))

    def name(self, n: int) -> str:
        """How a contradiction names an output: with its file where the kind alone does not tell."""
        one = self.told[n]
        alone = sum(other.kind.name == one.kind.name for other in self.told) == 1
        return one.kind.name if alone else f"{one.kind.name} ({one.file})"


@dataclass
class _Folding:
    """One fact on its way through all outputs that tell it."""

    merging: _Merging
    subject: str
    sources: dict[str, tuple[int, ...]]
    """Path below the fact → the outputs that told it."""
    believed: bool = False
    """Whether the more exact output counts but where a second opinion matters (`nodecheck.probes.belief`): AMD's tools
    name alike things differently."""
    settled: set[str] = field(default_factory=set)
    """Paths of contradictions, which no further output resolves."""

    def both(self, a: F, b: F, n: int, path: str) -> F:
        """`a` with what `b`, of output `n`, adds to it."""
        model = type(a)
        update: dict[str, Any] = {}
        for name in model.model_fields:
            if (
                name in _OWN
                or (model is Card and name in ("vendor", "index"))
                or name in _KEYS.get(model, ())
            ):
                continue
            here, there = getattr(a, name), getattr(b, name)
            if here != there and f"{path}{name}" not in self.settled:
                value = self._either(model, name, here, there, n, path)
                if value != here:
                    update[name] = value
        return a.model_copy(update=update) if update else a

    def _either(self, model: type[Fact], name: str, here: Any, there: Any, n: int, path: str) -> Any:
        at, fact = f"{path}{name}", f"{model.__name__}.{name}"
        if isinstance(there, Absent):
            unasked = isinstance(here, Absent) and here.why is Why.not_asked
            return there if here in _OF_OTHERS or (unasked and there not in _OF_OTHERS) else here
        if isinstance(here, Absent):
            return self._take(at, there, n)
        if isinstance(here, Fact) and type(here) is type(there):
            return self.both(here, there, n, f"{at}.")
        if (keys := _keys(here, there)) is not None:
            return self._items(at, here, there, keys, n)
        if fact in _MOVES:
            return here
        if fact in _GROWS:
            return self._take(at, there, n) if there > here else here
        if fact in _ONCE_FALSE:
            return here if there else self._take(at, there, n)
        if self.believed and (at not in CHECKED or agree(here, there, CHECKED[at])):
            return here
        if isinstance(here, float) and isinstance(there, float) and abs(here - there) < _ROUNDED_WATTS:
            return self._take(at, there, n) if here.is_integer() else here
        if fact == "PciDevice.pci_id" and "?" in f"{here}{there}":  # lspci without -nn
            return self._take(at, there, n) if here.endswith("?") else here
        return self._contradiction(at, model.model_fields[name], here, there, n)

    def _take(self, at: str, value: Any, n: int) -> Any:
        below = _leaves(value, f"{at}.") if isinstance(value, Fact) else ()
        self.sources |= dict.fromkeys((at, *below), (n,))
        return value

    def _contradiction(self, at: str, info: FieldInfo, here: Any, there: Any, n: int) -> Any:
        first = self.sources.get(at, (0,))[0]
        said = f"{self.merging.name(first)} says {_shown(here)}, {self.merging.name(n)} says {_shown(there)}"
        self.settled.add(at)
        what = f" ({info.description})" if info.description else ""
        self.merging.conflicts.append(f"{self.subject}{at}{what}: {said}")
        # What a thing is called by has no way to be absent.
        return Absent(why=Why.failed, detail=said) if isinstance(info.default, Absent) else here

    def _items(
        self, at: str, a: tuple[Fact, ...], b: tuple[Fact, ...], keys: tuple[str, ...], n: int
    ) -> tuple[Fact, ...]:
        """Two lists of things with names of their own: those of the same name are one."""
        items = {_key(item, keys): item for item in a}
        before = dict(items)
        for item in b:
            key = _key(item, keys)
            named = f"{at}.{'-'.join(str(part) for part in key)}."
            items[key] = self.both(items[key], item, n, named) if key in items else item
        self.sources = {path: told for path, told in self.sources.items() if not path.startswith(f"{at}.")}
        if items != before:
            self.sources[at] = (*self.sources.get(at, ()), n)
        return tuple(items.values())


def _keys(a: Any, b: Any) -> tuple[str, ...] | None:
    if not (isinstance(a, tuple) and isinstance(b, tuple) and (a or b)):
        return None
    return _KEYS.get(type((a or b)[0]))


def _key(item: Fact, keys: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(getattr(item, name) for name in keys)


def _leaves(fact: Any, path: str) -> Iterator[str]:
    """The paths of everything that is known below a fact."""
    for name in type(fact).model_fields:
        value = getattr(fact, name)
        if isinstance(value, Fact) and not isinstance(value, Absent):
            yield from _leaves(value, f"{path}{name}.")
        elif not isinstance(value, Absent):
            yield f"{path}{name}"


def _with_witnesses(fact: F, sources: dict[str, str]) -> F:
    """The fact, with the source of everything in it that the usual source did not give."""
    if not isinstance(fact, Gathered):
        return fact
    usual = fact.source if isinstance(fact, Card) else ""
    others = tuple(
        (path, name)
        for path, name in sources.items()
        if name != usual and path not in (*_OWN, "vendor", "index")
    )
    return fact.model_copy(update={"other_sources": others})


def _shown(value: Any) -> str:
    return str(value)[:100]


# Names of cards in other facts


def _renamed(piece: Piece, names: dict[str, str]) -> Piece:
    """The piece, with the cards' merged names wherever it speaks of them."""

    def named(cards: Sequence[str]) -> tuple[str, ...]:
        return tuple(names.get(card, card) for card in cards)

    update: dict[str, Any] = {}
    if known(piece.topology):
        topology: dict[str, Any] = {}
        if known(piece.topology.pairs):
            topology["pairs"] = tuple(
                pair.model_copy(update=dict(zip("ab", named((pair.a, pair.b)), strict=True)))
                for pair in piece.topology.pairs
            )
        if known(piece.topology.adapters):
            topology["adapters"] = tuple(
                port.model_copy(
                    update={"distances": tuple((names.get(card, card), way) for card, way in port.distances)}
                )
                for port in piece.topology.adapters
            )
        update["topology"] = piece.topology.model_copy(update=topology)
    if known(piece.measurements):
        found = piece.measurements
        update["measurements"] = found.model_copy(
            update={
                name: tuple(
                    item.model_copy(update={"cards": named(item.cards)}) for item in getattr(found, name)
                )
                for name in ("stages", "figures", "checks", "transports")
            }
        )
    if piece.diagnoses:
        update["diagnoses"] = tuple(
            diagnosis.model_copy(update={"card": names.get(diagnosis.card, diagnosis.card)})
            for diagnosis in piece.diagnoses
        )
    return replace(piece, **update)


# Kernel log, figures, doors


def _logs(logs: Sequence[Maybe[KernelLog]]) -> Maybe[KernelLog]:
    """Several logs of one boot, which may hold the same lines: what is in two of them is counted once."""
    seen = [log for log in logs if not isinstance(log, Absent)]
    if len(seen) < 2:
        return seen[0] if seen else _first(logs)
    events: dict[tuple[Any, ...], LogEvent] = {}
    for log in seen:
        for event in log.events if known(log.events) else ():
            key = (event.kind, event.code, str(event.device), event.severity)
            other = events.setdefault(key, event)
            if event.count > other.count:
                events[key] = event
    return KernelLog(
        source=", ".join(dict.fromkeys(log.source for log in seen if isinstance(log.source, str))),
        lines=max(log.lines for log in seen),
        complete=next((log.complete for log in seen if log.complete is True), seen[0].complete),
        excerpt=all(log.excerpt for log in seen),
        first_line_seconds=_first([log.first_line_seconds for log in seen]),
        events=tuple(events.values()),
    )


def _figures(found: Sequence[Measurements]) -> Measurements:
    return Measurements(
        **{
            name: tuple(item for one in found for item in getattr(one, name))
            for name in Measurements.model_fields
            if name != "seconds"
        },
        seconds=sum(one.seconds for one in found),
    )


_DOORS: tuple[tuple[str, Callable[[Piece | Node], Maybe[Any]]], ...] = (
    ("nvml", lambda facts: _of_vendor(facts.cards, "nvidia")),
    ("amd_smi", lambda facts: _of_vendor(facts.cards, "amd")),
    ("kernel_log", lambda facts: facts.kernel_log),
    ("torch", lambda facts: facts.stack if isinstance(facts.stack, Absent) else facts.stack.torch),
    ("host", lambda facts: facts.host),
    (
        "pci",
        lambda facts: facts.topology if isinstance(facts.topology, Absent) else facts.topology.pci_devices,
    ),
)
"""The ways to see a node, and what an output that went this way tells."""


def _of_vendor(cards: Maybe[tuple[Card, ...]], vendor: str) -> Maybe[tuple[Card, ...]]:
    if isinstance(cards, Absent):
        return cards
    return tuple(card for card in cards if card.vendor == vendor) or (NOT_ASKED if cards else cards)


def _doors(node: Node, told: Sequence[Told]) -> tuple[Door, ...]:
    """The ways that the outputs looked: each by the names of those that went it."""
    doors = []
    for door, part in _DOORS:
        if known(part(node)):
            names = dict.fromkeys(one.kind.name for one in told if known(part(one.piece)))
            doors.append(Door(name=door, open=True, detail=f"Read from pasted output: {', '.join(names)}."))
    return tuple(doors)
