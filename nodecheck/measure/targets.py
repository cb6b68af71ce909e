"""What may be put under load: cards that work and that nobody else uses, or the CPU where there is no card."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nodecheck.facts import Absent, Card, Node, known, or_none
from nodecheck.facts.card import BUSY_BYTES, BUSY_PERCENT

MIB = 1024**2


@dataclass(frozen=True)
class Target:
    """A card, or a share of the CPU, that a worker can be started for."""

    key: str
    """`Card.key`, or `cpu0`, `cpu1`, …"""
    cpus: str = ""
    """CPUs near the card, `0-31`; empty where they are not known."""
    model: str = ""
    """Only cards of one model are siblings."""
    numa_node: int | None = None
    memory_bytes: int | None = None
    obstacle: str = ""
    """Why it is not to be loaded; empty: it may be."""


def targets(node: Node, *, force: bool = False) -> tuple[Target, ...]:
    """Everything there is to measure, in the order of `Node.cards`; `force` loads cards that are in use, too."""
    trouble = _no_torch(node)
    if node.known_cards:
        return tuple(
            _target(card, trouble or _lost(card) or _context(node, card.key) or _in_use(card, force))
            for card in node.known_cards
        )
    trouble = trouble or _hidden_cards(node) or _context(node, "cpu")
    return tuple(Target(key=f"cpu{rank}", model="cpu", obstacle=trouble) for rank in range(_cpu_ranks(node)))


def idle(cards: Iterable[Card], *, force: bool = False) -> tuple[Target, ...]:
    """Those of `cards` that may be loaded, as far as they themselves tell."""
    return tuple(_target(card, "") for card in cards if not (_lost(card) or _in_use(card, force)))


def _target(card: Card, obstacle: str) -> Target:
    return Target(
        key=card.key,
        cpus=or_none(card.cpu_affinity) or "",
        model=or_none(card.identity.name) or "",
        numa_node=_numa_node(card),
        memory_bytes=or_none(card.memory.total_bytes),
        obstacle=obstacle,
    )


def _cpu_ranks(node: Node) -> int:
    """Two ranks, which make a group; four where there are CPUs for them."""
    return 4 if cpus(node) >= 4 else 2


def cpus(node: Node) -> float:
    """CPUs that this process may use; 0 where that is not known."""
    if isinstance(node.host, Absent):
        return 0.0
    affinity, quota = or_none(node.host.cpu.affinity), or_none(node.host.cpu.quota_cpus)
    return min(affinity or 0, quota if isinstance(quota, float) else math.inf)


def environment(node: Node, loaded: tuple[Target, ...]) -> dict[str, str]:
    """Variables for the workers beside the renter's own.

    Ranks on the CPU share it: with a thread on every CPU in each of them they would measure how they get in each
    other's way. What the renter has set stands.
    """
    if isinstance(node.host, Absent) or not any(target.model == "cpu" for target in loaded):
        return {}
    told = () if isinstance(node.stack, Absent) else or_none(node.stack.environment) or ()
    threads = max((or_none(node.host.cpu.affinity) or 1) // len(loaded), 1)
    return {} if "OMP_NUM_THREADS" in dict(told) else {"OMP_NUM_THREADS": str(threads)}


def _no_torch(node: Node) -> str:
    if isinstance(node.stack, Absent):
        return f"the software could not be looked at ({node.stack})"
    if isinstance(node.stack.interpreter, Absent):
        return f"no interpreter was found ({node.stack.interpreter})"
    if isinstance(node.stack.torch, Absent):
        return f"PyTorch cannot be used ({node.stack.torch})"
    return ""


def _hidden_cards(node: Node) -> str:
    """Figures of the CPU say nothing about a node whose cards are there and cannot be listed."""
    if isinstance(node.topology, Absent):
        return ""
    devices = or_none(node.topology.pci_devices) or ()
    count = sum(device.kind == "card" for device in devices)
    for others in (node.topology.device_files, node.topology.driver_cards):
        count = max(count, len(or_none(others) or ()))
    why = node.cards if isinstance(node.cards, Absent) else "NVML counts none"
    return f"{count} cards are there and cannot be listed ({why})" if count else ""


def _lost(card: Card) -> str:
    return "the driver does not hand it out" if card.usable is False else ""


def _in_use(card: Card, force: bool) -> str:
    return "" if force else "; ".join(_users(card))


def _context(node: Node, key: str) -> str:
    contexts = node.stack if isinstance(node.stack, Absent) else node.stack.contexts
    if isinstance(contexts, Absent):
        return f"its context test was not made ({contexts})"
    test = next((test for test in contexts if test.card == key), None)
    if test is None:
        return "its context test was not made"
    if test.ok is True:
        return ""
    return "its context test failed" + (f" ({test.ok})" if isinstance(test.ok, Absent) else "")


def _users(card: Card) -> Iterator[str]:
    """Signs that somebody else uses the card now."""
    for process in or_none(card.processes) or ():
        name = process.name.rpartition("/")[2] if known(process.name) and process.name else "a program"
        yield f"{name} (process {process.pid}) is on it"
    used = or_none(card.memory.used_bytes)
    if used is not None and used > BUSY_BYTES:
        yield f"{used / MIB:,.0f} MiB of its memory are in use"
    busy = or_none(card.gpu_utilization_percent)
    if busy is not None and busy >= BUSY_PERCENT:
        yield f"it is {busy} % busy"


def _numa_node(card: Card) -> int | None:
    number = or_none(card.numa_node)
    return None if number is None or number < 0 else number


@dataclass(frozen=True)
class Group:
    """Cards that run collectives together, in the order of their ranks."""

    name: str
    cards: tuple[str, ...]


def groups(loaded: tuple[Target, ...]) -> tuple[Group, ...]:
    """All; from four on each half; each NUMA node's, where those are other cards than the groups before."""
    keys = tuple(target.key for target in loaded)
    if len(keys) < 2:
        return ()
    found = [Group("all", keys)]
    if len(keys) >= 4:
        middle = len(keys) // 2
        found += [Group("first half", keys[:middle]), Group("second half", keys[middle:])]
    for number in sorted({target.numa_node for target in loaded if target.numa_node is not None}):
        near = tuple(target.key for target in loaded if target.numa_node == number)
        if len(near) >= 2 and near not in (group.cards for group in found):
            found.append(Group(f"NUMA node {number}", near))
    return tuple(found)
