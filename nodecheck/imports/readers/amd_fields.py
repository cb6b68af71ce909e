"""What AMD's tools have in common when their outputs are pasted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from nodecheck.facts import NOT_ASKED, Absent, Card, Maybe, Why
from nodecheck.facts.base import NVIDIA_ALONE
from nodecheck.facts.stack import Driver
from nodecheck.facts.topology import Pair
from nodecheck.imports.kind import Section
from nodecheck.probes import belief
from nodecheck.probes.amd import both_ways, hops, of_one, pair_by_amd_smi
from nodecheck.probes.amd_smi import PairTold
from nodecheck.probes.amdgpu import VIRTUAL_FUNCTIONS
from nodecheck.probes.belief import Reading

MAX_CARDS = 256
"""Eight packages of eight partitions are 64."""
MAX_TEXT = 4_000_000
"""Characters of one output that are read; the answers of 64 partitions have under two million."""

_CUT = Absent(why=Why.failed, detail="the output is cut short")
_MAKERS = re.compile(r"\b(?:AMD|Instinct|Radeon)\b", re.IGNORECASE)
_ONE_ALONE = re.compile(r"\s(?:-[gd]|--gpu|--device)[ =]")


def is_amd(name: str) -> bool:
    """Whether a card of this name is AMD's."""
    return bool(_MAKERS.search(name))


def card(
    source: str, index: int, address: str | None = None, values: Mapping[str, Any] | None = None
) -> Card:
    """A card of AMD's out of one output, `values` by dotted paths below `Card`. What is not in it was not asked."""
    told = {
        path: value
        for path, value in (values or {}).items()
        if not isinstance(value, Absent) or value.why is not Why.not_present
    }
    if told.get("identity.pci_id") in VIRTUAL_FUNCTIONS:
        told["modes.virtualization"] = "virtual_function"
    return belief.card(address or NOT_ASKED, index, [Reading(source, told)], untold=NOT_ASKED)


def cards(source: str, told: Mapping[int, tuple[str | None, Mapping[str, Any]]]) -> tuple[Card, ...]:
    """Cards out of number → (PCI address, values). Of partitions, what tools say of the whole package is left out."""
    packages = Counter(_package(address) for address, _ in told.values() if address)
    found = []
    for index, (address, values) in list(told.items())[:MAX_CARDS]:
        parts = packages[_package(address)] if address else 1
        own = dict(of_one(Reading(source, values), parts).values)
        if address and parts > 1:
            own["package"] = f"{_package(address)}.0"
        found.append(card(source, index, address, own))
    return tuple(found)


def _package(address: str) -> str:
    return address.rpartition(".")[0]


def pairs(
    source: str, found: Sequence[Card], ways: Maybe[Mapping[tuple[int, int], PairTold]]
) -> Maybe[tuple[Pair, ...]]:
    """What joins each two of the cards, by the tool's numbers of them. The way there and the way back are one."""
    if isinstance(ways, Absent):
        return NOT_ASKED
    both = {(b, a): told for (a, b), told in ways.items()} | dict(ways)
    told = tuple(_pair(source, a, b, both) for a, b in combinations(found, 2) if (a.index, b.index) in both)
    return told or NOT_ASKED


def _pair(source: str, a: Card, b: Card, ways: Mapping[tuple[int, int], PairTold]) -> Pair:
    values = both_ways(lambda x, y: pair_by_amd_smi(ways, x, y), a.index, b.index)
    return Pair(
        a=a.key,
        b=b.key,
        source=source,
        hops=hops(values["link_type"], values["weight"]),
        **dict.fromkeys(("nvlinks", "p2p_read", "p2p_write", "p2p_nvlink", "p2p_atomics"), NVIDIA_ALONE),
        **values,
    )


def driver(**versions: Maybe[str]) -> Driver:
    """Versions of AMD's driver and ROCm; what NVIDIA's driver alone has says so."""
    ours = ("version", "rocm_version", "amdsmi_version", "rocm_installations", "package_version", "in_tree")
    told: dict[str, Any] = {name: NOT_ASKED if name in ours else NVIDIA_ALONE for name in Driver.model_fields}
    return Driver(**told | versions)


def counted(found: Sequence[Card], section: Section, *, whole: bool) -> Maybe[int]:
    """How many cards an output lists that is of all of them, which its numbers and its command have to bear out."""
    if _ONE_ALONE.search(section.heading):
        return NOT_ASKED
    numbers = [card.index for card in found]
    return len(found) if whole and section.whole and numbers == list(range(len(found))) else _CUT


def lines(section: Section) -> list[str]:
    """The lines of an output, without one that has no end: it may be cut."""
    *ended, _ = section.text[:MAX_TEXT].split("\n")
    return ended
