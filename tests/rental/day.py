"""A day of checks, one a minute, of a node that works: everything that moves moves, and some things go wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from nodecheck.facts import Card, LogEvent, Node, known
from nodecheck.facts.card import Process
from nodecheck.judge import judge
from nodecheck.profile import load
from nodecheck.rental.check import Memory, check
from nodecheck.rental.result import Change
from nodecheck.rental.state import State, Terms
from nodecheck.report import document
from tests.healthy import change, node

GIB = 1024**3
MINUTES = 24 * 60
PROFILE = "h200x8"

CRASH, CAPPED, UNCAPPED, LINK_DOWN, LINK_UP, REBOOT, LOST, BACK, UPDATED, FULL = (
    100, 200, 260, 400, 440, 600, 800, 860, 1000, 1200,
)  # fmt: skip
"""Minutes at which something happens; `STEP` divides them."""
STEP = 20

EXPECTED = (
    (CRASH, "new", "drift.kernel_log.xid"),
    (CAPPED, "new", "cards.power_limit"),
    (CAPPED, "new", "drift.cards.power_limit"),
    (UNCAPPED, "gone", "cards.power_limit"),
    (UNCAPPED, "gone", "drift.cards.power_limit"),
    (LINK_DOWN, "new", "drift.links.active"),
    (LINK_DOWN, "new", "topology.nvlink.active_links"),
    (LINK_UP, "gone", "drift.links.active"),
    (LINK_UP, "gone", "topology.nvlink.active_links"),
    (REBOOT, "new", "drift.host.boot"),
    (LOST, "new", "cards.usable"),
    (BACK, "gone", "cards.usable"),
    (UPDATED, "new", "drift.stack.torch"),
    (FULL, "new", "drift.host.disk_filling"),
)
"""Minute, what, id of the finding: all that a day of checks may tell, each once."""


@dataclass
class Day:
    told: list[tuple[int, str, str]]
    changes: list[Change]
    accepted_at: datetime
    state_bytes: int
    seconds: list[float]


def run(folder: Path, minutes: int = MINUTES, step: int = 1) -> Day:
    """Accept the node, and check it every `step` minutes."""
    import time

    profile = load(PROFILE)
    healthy = node(profile)
    state = State(folder)
    state.accept(
        document.build(healthy, profile, judge(healthy, profile), created_at=healthy.taken_at), Terms()
    )
    state.close()
    day = Day([], [], healthy.taken_at, 0, [])
    for minute in range(step, minutes + 1, step):
        began = time.perf_counter()
        memory = Memory(folder)
        seen = at_minute(healthy, minute)
        said = check(seen, memory.acceptance(), memory.last_look(), seconds=0.3, compare=memory.changes)
        memory.record(said, seen)
        memory.close()
        assert memory.notes == (), memory.notes
        day.seconds.append(time.perf_counter() - began)
        day.told += [(minute, change.what, change.finding.id) for change in said.changes]
        day.changes += said.changes
    day.state_bytes = sum(path.stat().st_size for path in folder.iterdir())
    return day


def at_minute(healthy: Node, minute: int) -> Node:
    """The node as it is so many minutes after it was accepted."""
    up = 85_500.0 + 60 * minute if minute < REBOOT else 60.0 * (minute - REBOOT) + 30
    now = healthy.model_copy(
        update={
            "taken_at": healthy.taken_at + timedelta(minutes=minute),
            "cards": tuple(_card(card, i, minute) for i, card in enumerate(healthy.known_cards)),
        }
    )
    assert known(now.host)
    host = now.host.model_copy(update={"uptime_seconds": up})
    if minute >= REBOOT:
        host = host.model_copy(update={"boot_id": "99999999-2222-4333-8444-555555555555"})
    assert known(host.disks)
    disks = tuple(
        disk.model_copy(
            update={"free_bytes": (40 * GIB if minute >= FULL else disk.free_bytes) - 10_000_000 * minute}
        )  # type: ignore[operator]
        if i == 0
        else disk
        for i, disk in enumerate(host.disks)
    )
    now = now.model_copy(update={"host": host.model_copy(update={"disks": disks})})
    if minute >= UPDATED:
        now = change(now, "stack.torch.version", "2.12.0+cu130")
    return change(now, "kernel_log.events", tuple(_events(minute)))


def _events(minute: int) -> Iterator[LogEvent]:
    """Harmless complaints of the driver keep coming; at one time a program of the renter's crashes."""
    since_boot = minute if minute < REBOOT else minute - REBOOT
    yield LogEvent(
        kind="nvrm",
        code=None,
        device="the driver",
        count=since_boot + 1,
        first_seconds=10.0,
        last_seconds=60.0 * since_boot + 20,
        text="NVRM: a harmless line",
    )
    if CRASH <= minute < REBOOT:
        at = 85_500.0 + 60 * CRASH - 20
        yield LogEvent(
            kind="xid",
            code=31,
            device="0000:2a:00.0",
            count=1,
            first_seconds=at,
            last_seconds=at,
            text="NVRM: Xid (PCI:0000:2a:00): 31, pid=4711, name=python, MMU fault",
        )


def _card(card: Card, i: int, minute: int) -> Card:
    busy = (minute // 90) % 3 != 2
    since_load = minute if minute < REBOOT else minute - REBOOT
    counted = {
        "violations": card.clocks.violations.model_copy(
            update={"power_seconds": 40.0 * since_load, "thermal_seconds": 0.2 * since_load}
        )
    }  # type: ignore[union-attr]
    card = card.model_copy(
        update={
            "processes": (Process(pid=4000 + i, kind="compute", used_bytes=90 * GIB, name="python"),)
            if busy
            else (),
            "gpu_utilization_percent": (97 + i % 3) if busy else 0,
            "memory": card.memory.model_copy(
                update={"used_bytes": 90 * GIB if busy else 0, "free_bytes": (49 if busy else 139) * GIB}
            ),
            "temperature": card.temperature.model_copy(
                update={"gpu_celsius": 60 + (minute * 7 + i) % 25 if busy else 33}
            ),
            "power": card.power.model_copy(
                update={
                    "draw_watts": 690.0 if busy else 90.0,
                    "energy_joules": 1000.0 + since_load * 40_000.0,
                }
            ),
            "clocks": card.clocks.model_copy(
                update={
                    "sm_mhz": 1400 + minute % 300,
                    "event_reasons": ("sw_power_cap",) if busy else ("gpu_idle",),
                    **counted,
                }
            ),
            "pcie": card.pcie.model_copy(
                update={"generation": 5 if busy else 1, "replays": since_load // 200}
            ),
            "health": card.health.model_copy(
                update={
                    "ecc_volatile": card.health.ecc_volatile.model_copy(
                        update={"corrected": since_load // 300}
                    )
                }  # type: ignore[union-attr]
            ),
            "links": tuple(
                link.model_copy(
                    update={
                        "crc_data_errors": 4 + link.index + since_load * 3,
                        "active": not (i == 3 and link.index == 7 and LINK_DOWN <= minute < LINK_UP),
                    }
                )
                for link in (card.links if known(card.links) else ())
            ),
        }
    )
    if i == 1 and CAPPED <= minute < UNCAPPED:
        return change(card, "power.limit_watts", 450.0)
    if i == 5 and LOST <= minute < BACK:
        return card.model_copy(update={"usable": False})
    return card
