"""The numbers of one look that are worth a graph."""

from __future__ import annotations

from collections.abc import Iterator

from nodecheck.facts import Absent, Card, Node, known
from nodecheck.judge import Subject
from nodecheck.judge.rule import observe, of_card
from nodecheck.rental.result import Reading


def readings(node: Node) -> tuple[Reading, ...]:
    """Of every card and every disk, what could be read."""
    return (*_of_cards(node), *_of_disks(node))


_GAUGES: tuple[tuple[str, str], ...] = (
    ("temperature_celsius", "temperature.gpu_celsius"),
    ("memory_temperature_celsius", "temperature.memory_celsius"),
    ("power_draw_watts", "power.draw_watts"),
    ("power_limit_watts", "power.limit_watts"),
    ("utilization_percent", "gpu_utilization_percent"),
    ("memory_used_bytes", "memory.used_bytes"),
)
_COUNTERS: tuple[tuple[str, str], ...] = (
    ("energy_joules", "power.energy_joules"),
    ("ecc_corrected", "health.ecc_volatile.corrected"),
    ("ecc_uncorrected", "health.ecc_volatile.uncorrected"),
    ("ecc_lifetime_corrected", "health.ecc_aggregate.corrected"),
    ("ecc_lifetime_uncorrected", "health.ecc_aggregate.uncorrected"),
    ("remapped_rows_corrected", "health.remapped_rows_corrected"),
    ("remapped_rows_uncorrected", "health.remapped_rows_uncorrected"),
    ("pcie_replays", "pcie.replays"),
    ("throttled_by_heat_seconds", "clocks.violations.thermal_seconds"),
    ("throttled_by_power_limit_seconds", "clocks.violations.power_seconds"),
)
"""Name of the reading, path of the fact."""
_OF_LINKS: tuple[tuple[str, str], ...] = (
    ("link_recoveries", "recovery_errors"),
    ("link_replays", "replay_errors"),
    ("link_crc_data_errors", "crc_data_errors"),
)
"""Counters of all links of a card together."""


def _of_cards(node: Node) -> Iterator[Reading]:
    for card in node.known_cards:
        subject = of_card(card)
        for names, counter in ((_GAUGES, False), (_COUNTERS, True)):
            for name, path in names:
                value = observe(card, path, card.source).value
                if not isinstance(value, Absent):
                    yield Reading(name=name, subject=subject, value=float(value), counter=counter)
        for name, field in _OF_LINKS:
            total = _sum(card, field)
            if total is not None:
                yield Reading(name=name, subject=subject, value=total, counter=True)


def _sum(card: Card, field: str) -> float | None:
    links = () if isinstance(card.links, Absent) else card.links
    values = [value for link in links if known(value := getattr(link, field))]
    return float(sum(values)) if values else None


def _of_disks(node: Node) -> Iterator[Reading]:
    if isinstance(node.host, Absent) or isinstance(node.host.disks, Absent):
        return
    for disk in node.host.disks:
        if disk.kind != "memory" and not disk.read_only and known(disk.free_bytes):
            subject = Subject(kind="disk", key=disk.mount, label=disk.mount)
            yield Reading(name="disk_free_bytes", subject=subject, value=float(disk.free_bytes))
