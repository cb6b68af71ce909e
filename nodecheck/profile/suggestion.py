"""Which bundle a node looks like. A suggestion never accepts: the renter names what was rented."""

from __future__ import annotations

from collections.abc import Iterator

from nodecheck.facts import Absent, Card, Node, Why
from nodecheck.profile.loading import load, names
from nodecheck.profile.model import CardSpec


def suggest(node: Node) -> str | None:
    """The name of the shipped profile whose cards and count are this node's; None where that cannot be said.

    Cards that do not say what they are (lost ones) are taken for what the others are. A machine where every way of
    looking shows no card is `cpu`.
    """
    count = len(node.known_cards)
    if count == 0:
        return "cpu" if _no_card(node) else None
    told = [card for card in node.known_cards if _tells(card)]
    for name in names():
        profile = load(name)
        spec = profile.card
        if spec is not None and profile.count == count and told and all(_is(card, spec) for card in told):
            return name
    return None


def _no_card(node: Node) -> bool:
    """Whether NVML has no card (or is not installed) and the PCI bus shows none either."""
    seen = list(_card_counts(node))
    return bool(seen) and not any(seen)


def _card_counts(node: Node) -> Iterator[int]:
    """What each way of looking counts. One that failed counts as a card: it does not say that there is none."""
    if isinstance(node.cards, Absent):
        yield 0 if node.cards.why is Why.not_present else 1
    else:
        yield len(node.cards)
    if not isinstance(node.topology, Absent):
        devices = node.topology.pci_devices
        if not isinstance(devices, Absent):
            yield sum(device.kind == "card" for device in devices)
        elif devices.why is not Why.not_present:
            yield 1


def _tells(card: Card) -> bool:
    return not isinstance(card.identity.pci_id, Absent) or not isinstance(card.identity.name, Absent)


def _is(card: Card, spec: CardSpec) -> bool:
    """By its PCI id, which is harder to forge than its name; by the name where there is no id."""
    if not isinstance(card.identity.pci_id, Absent):
        return card.identity.pci_id in spec.pci_ids
    return card.identity.name in spec.names
