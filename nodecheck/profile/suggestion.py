"""Which bundle a node looks like. A suggestion never accepts: the renter names what was rented."""

from __future__ import annotations

from typing import NamedTuple

from nodecheck.facts import Absent, Card, Node, Why, known, or_none
from nodecheck.profile.loading import load, names
from nodecheck.profile.model import CardSpec


class _Seen(NamedTuple):
    """What one card says it is."""

    pci_id: str | None
    name: str | None


def suggest(node: Node) -> str | None:
    """The name of the shipped profile whose cards and count are this node's; None where that cannot be said.

    Cards that do not say what they are (lost ones) are taken for what the others are. Where the driver lists
    none, the PCI bus is asked. A machine where no way of looking shows a card is `cpu`.
    """
    cards = [
        _Seen(or_none(card.identity.pci_id), or_none(card.identity.name))
        for card in node.known_cards
        if not _further_part(card)
    ]
    if not cards:
        cards = _on_the_bus(node)
    if not cards:
        return "cpu" if _looked_everywhere(node) else None
    telling = [card for card in cards if card.pci_id or card.name]
    for profile in map(load, names() if telling else ()):
        if profile.card and profile.count == len(cards) and all(_is(card, profile.card) for card in telling):
            return profile.name
    return None


def _further_part(card: Card) -> bool:
    """Whether it is one more partition of one of AMD's packages, which is one card."""
    mode, part = card.modes.compute_partition, card.partition
    return known(mode) and mode != "SPX" and known(part) and part > 0


def _is(card: _Seen, spec: CardSpec) -> bool:
    """By its PCI id, which is harder to forge than its name; by the name where there is no id."""
    return card.pci_id in spec.pci_ids if card.pci_id else card.name in spec.names


def _on_the_bus(node: Node) -> list[_Seen]:
    devices = None if isinstance(node.topology, Absent) else or_none(node.topology.pci_devices)
    return [_Seen(device.pci_id, None) for device in devices or () if device.kind == "card"]


def _looked_everywhere(node: Node) -> bool:
    """Whether absence was seen: a way of looking that failed does not say that there are no cards."""
    devices = node.topology if isinstance(node.topology, Absent) else node.topology.pci_devices
    looks = (node.cards, devices)
    return not any(isinstance(look, Absent) and look.why is not Why.not_present for look in looks)
